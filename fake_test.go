package spool

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool/chunk"
)

// fakeStore is the store of this package's own tests: a few maps, and faults on
// demand. It exists because package memstore imports this one.
type fakeStore struct {
	mu       sync.Mutex
	now      func() time.Time
	sessions map[string]*fakeSession
	dead     map[string]fakeGrave
	changed  chan struct{}
	calls    map[string]int
	// fault runs at each append: lose the request, or lose the answer.
	fault func(a Append) (before, after error)
	gate  chan struct{} // when set, each append takes one from it first
}

type fakeGrave struct{ epoch, incarnation uint64 }

type fakeSession struct {
	head    Head
	recs    []chunk.Record
	writers map[string]fakeLast
	command uint64 // latest command's sequence
	blobs   map[string][]byte
	folds   map[string]SavedFold
	row     Row
}

type fakeLast struct {
	ordinal uint64
	res     Appended
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		now: time.Now, sessions: map[string]*fakeSession{}, dead: map[string]fakeGrave{},
		changed: make(chan struct{}), calls: map[string]int{},
	}
}

func (f *fakeStore) count(call string) {
	f.calls[call]++
}

func (f *fakeStore) session(id, principal string) *fakeSession {
	s := f.sessions[id]
	if s == nil {
		g := f.dead[id]
		s = &fakeSession{
			head:    Head{Incarnation: g.incarnation + 1, Epoch: g.epoch, Status: chunk.StatusEnded, Principal: principal},
			writers: map[string]fakeLast{}, blobs: map[string][]byte{}, folds: map[string]SavedFold{},
		}
		f.sessions[id] = s
	}
	return s
}

func (f *fakeStore) bump() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeStore) Append(ctx context.Context, a Append) (Appended, error) {
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return Appended{}, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count("append")
	var before, after error
	if f.fault != nil {
		before, after = f.fault(a)
	}
	if before != nil {
		return Appended{}, before
	}
	res, err := f.append(a)
	if err == nil && after != nil {
		return Appended{}, after
	}
	return res, err
}

func (f *fakeStore) append(a Append) (Appended, error) {
	if _, size := sizeOf(a.Records); size > MaxAppendBytes || len(a.Records) > MaxAppendRecords {
		return Appended{}, chunk.ErrTooLarge
	}
	s := f.session(a.Session, a.Row.Principal)
	if a.Epoch > 0 {
		if a.Epoch != s.head.Epoch {
			return Appended{}, ErrSuperseded.With(a.Session, nil)
		}
		if last := s.writers[a.Writer]; a.Ordinal > 0 && last.ordinal == a.Ordinal {
			last.res.Head, last.res.Repeated = s.head, true
			return last.res, nil
		}
	}
	first := s.head.Seq + 1
	for i, r := range a.Records {
		r.Seq = first + uint64(i)
		s.recs = append(s.recs, r)
	}
	s.head.Seq += uint64(len(a.Records))
	if a.Row.Status != "" {
		s.head.Status, s.row.Status = a.Row.Status, a.Row.Status
	}
	if a.Epoch == 0 {
		s.command = s.head.Seq
		if now := f.now().UnixMilli(); s.head.Due == 0 || s.head.Due > now {
			s.head.Due = now
		}
	} else if a.Settle != nil && s.command <= a.Settle.Seen {
		s.head.Due = a.Settle.Next
	}
	res := Appended{First: first, Last: s.head.Seq, Head: s.head}
	if a.Epoch > 0 && a.Ordinal > 0 {
		s.writers[a.Writer] = fakeLast{a.Ordinal, res}
	}
	f.bump()
	return res, nil
}

func (f *fakeStore) Read(_ context.Context, session string, after uint64, max int) ([]chunk.Record, Head, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count("read")
	s := f.sessions[session]
	if s == nil {
		return nil, Head{}, nil
	}
	if after < s.head.TraceFloor {
		return nil, s.head, ErrTrimmed.With(session, nil)
	}
	return f.after(s, after, max, func(chunk.Record) bool { return true }), s.head, nil
}

func (f *fakeStore) after(s *fakeSession, after uint64, max int, want func(chunk.Record) bool) []chunk.Record {
	i, _ := slices.BinarySearchFunc(s.recs, after+1, func(r chunk.Record, n uint64) int { return int(int64(r.Seq) - int64(n)) })
	var out []chunk.Record
	for ; i < len(s.recs) && len(out) < max; i++ {
		if want(s.recs[i]) {
			out = append(out, s.recs[i])
		}
	}
	return out
}

func (f *fakeStore) ReadKept(_ context.Context, session string, q KeptQuery) ([]chunk.Record, Head, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count("readkept")
	s := f.sessions[session]
	if s == nil {
		return nil, Head{}, nil
	}
	if !q.Backwards {
		if q.After < s.head.Floor {
			return nil, s.head, ErrTrimmed.With(session, nil)
		}
		return f.after(s, q.After, q.Max, func(r chunk.Record) bool { return r.Class == chunk.Kept }), s.head, nil
	}
	var out []chunk.Record
	for _, r := range slices.Backward(s.recs) {
		if r.Class == chunk.Kept && (q.Before == 0 || r.Seq < q.Before) && len(out) < q.Max {
			out = append(out, r)
		}
	}
	return out, s.head, nil
}

func (f *fakeStore) Head(_ context.Context, session string) (Head, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count("head")
	if s := f.sessions[session]; s != nil {
		return s.head, nil
	}
	return Head{}, ErrNotFound.With(session, nil)
}

func (f *fakeStore) Wait(ctx context.Context, session string, seen Head) (Head, []chunk.Record, error) {
	for {
		f.mu.Lock()
		s, changed := f.sessions[session], f.changed
		f.mu.Unlock()
		switch {
		case s == nil && seen != Head{}:
			return Head{}, nil, ErrNotFound.With(session, nil)
		case s != nil:
			f.mu.Lock()
			h := s.head
			f.mu.Unlock()
			if h != seen {
				return h, nil, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Head{}, nil, ctx.Err()
		}
	}
}

// claim takes the session under the next epoch.
func (f *fakeStore) claim(session string) Lease {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.session(session, "")
	s.head.Epoch++
	s.writers = map[string]fakeLast{}
	f.bump()
	return Lease{Session: session, Epoch: s.head.Epoch, TTL: 30 * time.Second, Head: s.head}
}

func (f *fakeStore) Trim(_ context.Context, session string, traceFloor, floor uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.session(session, "")
	s.head.TraceFloor, s.head.Floor = max(s.head.TraceFloor, traceFloor), max(s.head.Floor, floor)
	s.recs = slices.DeleteFunc(slices.Clone(s.recs), func(r chunk.Record) bool {
		return r.Seq <= floor || r.Class == chunk.Trace && r.Seq <= traceFloor
	})
	f.bump()
	return nil
}

func (f *fakeStore) Delete(_ context.Context, session string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[session]
	if s == nil {
		return ErrNotFound.With(session, nil)
	}
	f.dead[session] = fakeGrave{s.head.Epoch, s.head.Incarnation}
	delete(f.sessions, session)
	f.bump()
	return nil
}

func (f *fakeStore) PutBlob(_ context.Context, session, hash string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session(session, "").blobs[hash] = slices.Clone(data)
	return nil
}

func (f *fakeStore) GetBlob(_ context.Context, session, hash string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sessions[session]; s != nil && s.blobs[hash] != nil {
		data := s.blobs[hash]
		return slices.Clone(data), nil
	}
	return nil, ErrNotFound.With(session, nil)
}

func (f *fakeStore) SaveFold(_ context.Context, session, name string, s SavedFold) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count("savefold")
	f.session(session, "").folds[name] = s
	return nil
}

func (f *fakeStore) LoadFold(_ context.Context, session, name string) (SavedFold, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count("loadfold")
	if s := f.sessions[session]; s != nil {
		if saved, ok := s.folds[name]; ok {
			return saved, nil
		}
	}
	return SavedFold{}, ErrNotFound.With(session, nil)
}

// log returns a copy of a session's records.
func (f *fakeStore) log(session string) []chunk.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.session(session, "").recs)
}

func (f *fakeStore) called(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

var _ interface {
	Store
	Trimmer
	FoldStore
	BlobStore
} = (*fakeStore)(nil)

package natsstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
	"github.com/spool-run/spool/store/watch"
)

// A session's trace is shown to the index of the processes so often, in milliseconds.
const showEvery = 5000

// Append implements [spool.Store].
func (s *Store) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Appended{}, err
	}
	if err := contract.CheckAppend(&a); err != nil {
		return spool.Appended{}, err
	}
	if a.Epoch > 0 {
		if err := s.giveWay(ctx, a.Session); err != nil {
			return spool.Appended{}, err
		}
	}
	var res spool.Appended
	st, _, err := s.update(ctx, a.Session, func(st *state, seq uint64, now int64) (w *write, err error) {
		res, w, err = st.append(&a, seq, now)
		return w, err
	})
	if err != nil {
		return spool.Appended{}, err
	}
	res.Head = st.Head
	return res, nil
}

func (st *state) append(a *spool.Append, seq uint64, now int64) (res spool.Appended, w *write, err error) {
	if err := st.admit(a, now); err != nil {
		return res, nil, err
	}
	key := writerKey(a.Writer)
	numbered := a.Epoch > 0 && a.Ordinal > 0
	last := st.writer(key)
	switch {
	case !numbered:
	case last == nil:
		if err := contract.CheckWriter(a.Session, len(st.writers)); err != nil {
			return res, nil, err
		}
		st.writers = append(st.writers, written{writer: key})
		last = &st.writers[len(st.writers)-1]
	case a.Ordinal < last.ordinal:
		return res, nil, chunk.ErrInvalid.Because("a later append of this writer is stored").With(a.Session, nil)
	case a.Ordinal == last.ordinal:
		return spool.Appended{First: last.first, Last: last.last, Repeated: true}, nil, nil
	}
	was := *st
	st.create(a.Row.Principal, false, now, seq)
	st.Updated = now
	w = &write{kind: kindTrace, records: slices.Clone(a.Records)}
	first := st.Head.Seq + 1
	for i := range w.records {
		r := &w.records[i]
		st.Head.Seq++
		r.Seq = st.Head.Seq
		st.Bytes += int64(len(r.Data))
		if r.Class == chunk.Kept {
			w.kind = kindKept
		}
	}
	contract.SetRow(&st.Head, &st.Row, a.Row)
	contract.SetDue(&st.Head, &st.Command, a, now)
	st.Head.Hidden = st.Head.Hidden && !a.Show
	if numbered {
		*last = written{key, a.Ordinal, first, st.Head.Seq}
	}
	switch {
	case a.Epoch == 0:
		w.kind = kindCommand
	case w.kind == kindKept:
	case len(w.records) == 0:
		w.kind = kindMeta
	case st.differs(&was) || now-st.Shown >= showEvery || now < st.Shown:
		w.kind = kindShown
	}
	return spool.Appended{First: first, Last: st.Head.Seq}, w, nil
}

// differs reports whether listings or claims have to know of a change.
func (st *state) differs(was *state) bool {
	return st.Row != was.Row || st.Exists != was.Exists || st.Head.Due != was.Head.Due || st.Head.Hidden != was.Head.Hidden || st.Head.Status != was.Head.Status
}

// admit checks who appends: the owner with the lease of this epoch, which it renews, or
// anyone with a command, unless the session is hidden.
func (st *state) admit(a *spool.Append, now int64) error {
	switch {
	case a.Epoch > 0:
		if !st.Exists || a.Epoch != st.Head.Epoch {
			return spool.ErrSuperseded.With(a.Session, nil)
		}
		st.renew(now)
	case st.Exists && st.Head.Hidden:
		return spool.ErrNotFound.With(a.Session, nil)
	case st.Exists:
		return contract.CheckPrincipal(a.SamePrincipal, a.Row.Principal, &st.Head, a.Session)
	}
	return nil
}

// Head implements [spool.Store].
func (s *Store) Head(ctx context.Context, session string) (spool.Head, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, err
	}
	st, _, err := s.existing(ctx, session)
	if err != nil {
		return spool.Head{}, err
	}
	return st.Head, nil
}

// Wait implements [spool.Store].
func (s *Store) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, nil, err
	}
	return s.hub.Wait(ctx, session, seen)
}

// heads reads sessions for the hub, a few at a time.
func (s *Store) heads(ctx context.Context, sessions []string, found func(string, watch.State)) error {
	const atOnce = 16
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	next := make(chan string)
	for range min(atOnce, len(sessions)) {
		all.Go(func() {
			for id := range next {
				st, seq, recs, err := s.load(ctx, id)
				mu.Lock()
				if err != nil {
					failed = err
				} else if seq > 0 {
					found(id, s.seen(st, seq, recs))
				}
				mu.Unlock()
			}
		})
	}
	for _, id := range sessions {
		next <- id
	}
	close(next)
	all.Wait()
	return failed
}

// subscribe asks for a session's messages as they are stored.
func (s *Store) subscribe(ctx context.Context, session string) (func(), error) {
	subject := s.prefix + ".live." + token(session) + ".>"
	sub, err := s.nc.Subscribe(subject, func(m *nats.Msg) {
		for range s.deliver.Load() {
			s.notified(m)
		}
	})
	if err == nil {
		err = s.nc.FlushWithContext(ctx)
	}
	if err != nil {
		return nil, s.failed(ctx, session, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

func (s *Store) notified(m *nats.Msg) {
	seq, ok := sequence(m)
	st, recs, err := s.decode(message{seq: seq, header: m.Header, data: m.Data})
	if !ok || err != nil {
		return // the hub reads the session once a second
	}
	if st.Generation > s.history.now() {
		s.reconnected()
		return
	}
	s.history.see(seq, true)
	s.hub.Apply(st.Session, s.seen(st, seq, recs))
}

// listen subscribes to what processes tell each other.
func (s *Store) listen() error {
	me := s.me
	_, err := s.nc.Subscribe(s.prefix+".yield", func(m *nats.Msg) {
		if m.Reply == me {
			return
		}
		s.mu.Lock()
		if e := s.entries[string(m.Data)]; e != nil {
			e.yield = time.Now().Add(yieldFor)
		}
		s.mu.Unlock()
	})
	if err == nil {
		_, err = s.nc.Subscribe(s.prefix+".raised", func(*nats.Msg) { s.reconnected() })
	}
	if err == nil {
		err = s.nc.FlushTimeout(s.o.Timeout)
	}
	return err
}

// errMoved says that a session changed under a read in a way that matters to it.
var errMoved = errors.New("the session changed")

// reading repeats a read as long as the session changes under it.
func (s *Store) reading(ctx context.Context, session string, read func(st *state, seq uint64) ([]chunk.Record, error)) ([]chunk.Record, spool.Head, error) {
	if err := s.usable(ctx); err != nil {
		return nil, spool.Head{}, err
	}
	for {
		st, seq, _, err := s.load(ctx, session)
		if err != nil {
			return nil, spool.Head{}, err
		}
		if !st.Exists {
			return nil, spool.Head{}, nil
		}
		recs, err := read(st, seq)
		if errors.Is(err, errMoved) && ctx.Err() == nil {
			if err := s.moved(ctx, st, seq); err != nil {
				return nil, spool.Head{}, err
			}
			continue
		}
		var known *chunk.Error
		if err != nil && !errors.As(err, &known) {
			err = s.failed(ctx, session, err)
		}
		return recs, st.Head, err
	}
}

// moved checks that a session has indeed changed since it was read. Otherwise messages that
// should be there are not.
func (s *Store) moved(ctx context.Context, st *state, seq uint64) error {
	now, nowSeq, _, err := s.load(ctx, st.Session)
	if err != nil {
		return err
	}
	if nowSeq == seq && now.Generation == st.Generation {
		return spool.ErrUnavailable.With(st.Session, errors.New("the stream lacks messages"))
	}
	return nil
}

// Read implements [spool.Store].
func (s *Store) Read(ctx context.Context, session string, after uint64, limit int) ([]chunk.Record, spool.Head, error) {
	return s.reading(ctx, session, func(st *state, seq uint64) ([]chunk.Record, error) {
		if after < st.Head.TraceFloor {
			return nil, spool.ErrTrimmed.With(session, nil)
		}
		p := page{limit: limitOf(limit)}
		if after >= st.Head.Seq {
			return nil, nil
		}
		err := s.scan(ctx, st, seq, ">", after, func(r *chunk.Record, _ uint64) bool { return p.add(r) })
		if err != nil {
			return nil, err
		}
		next := after
		for _, r := range p.recs {
			if next++; r.Seq != next {
				return nil, errMoved
			}
		}
		if !p.full() && next != st.Head.Seq {
			return nil, errMoved
		}
		return p.recs, nil
	})
}

// ReadKept implements [spool.Store].
func (s *Store) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	return s.reading(ctx, session, func(st *state, seq uint64) ([]chunk.Record, error) {
		var recs []chunk.Record
		var err error
		if q.Backwards {
			recs, err = s.keptBefore(ctx, st, seq, q)
		} else if q.After < st.Head.Floor {
			return nil, spool.ErrTrimmed.With(session, nil)
		} else {
			p := page{limit: limitOf(q.Max)}
			err = s.scan(ctx, st, seq, "i.>", q.After, func(r *chunk.Record, _ uint64) bool {
				return r.Class != chunk.Kept || p.add(r)
			})
			recs = p.recs
		}
		if err != nil {
			return nil, err
		}
		// Messages are removed after the floor was raised: if it was not, none are missing.
		now, _, _, err := s.load(ctx, session)
		if err != nil {
			return nil, err
		}
		if !now.Exists || now.Head.Floor != st.Head.Floor || now.Head.Incarnation != st.Head.Incarnation || now.Base != st.Base {
			return nil, errMoved
		}
		return recs, nil
	})
}

// keptBefore reads backwards: from one mark to the next, the latest first.
func (s *Store) keptBefore(ctx context.Context, st *state, seq uint64, q spool.KeptQuery) ([]chunk.Record, error) {
	before := q.Before
	if before == 0 || before > st.Head.Seq {
		before = st.Head.Seq + 1
	}
	p := page{limit: limitOf(q.Max)}
	for before > st.Head.Floor+1 && !p.full() {
		after := st.Head.Floor
		for _, m := range st.Marks {
			if m.Seq < before && m.Seq > after+1 {
				after = m.Seq - 1
			}
		}
		var part []chunk.Record
		err := s.scan(ctx, st, seq, "i.>", after, func(r *chunk.Record, _ uint64) bool {
			if r.Seq < before && r.Class == chunk.Kept {
				part = append(part, *r)
			}
			return r.Seq < before
		})
		if err != nil {
			return nil, err
		}
		for _, r := range slices.Backward(part) {
			if !p.add(&r) {
				break
			}
		}
		before = after + 1
	}
	return p.recs, nil
}

// page collects as many records as one read may return.
type page struct {
	limit, size int
	recs        []chunk.Record
}

func (p *page) full() bool { return len(p.recs) >= p.limit || p.size >= spool.MaxReadBytes }

// add reports whether there is room for more.
func (p *page) add(r *chunk.Record) bool {
	if p.full() {
		return false
	}
	p.recs = append(p.recs, *r)
	p.size += len(r.Data)
	return !p.full()
}

func limitOf(n int) int {
	if n <= 0 {
		return spool.MaxRead
	}
	return n
}

// batchSize is how many messages are asked for at once. The server sends all of them, be the
// reader's page full or not, so the first batch is small.
const (
	batchSize  = 512
	firstBytes = 256 << 10
	maxBytes   = 4 << 20
)

// scan calls each with the records after a sequence, and the sequences of their messages,
// until it returns false: those of the subjects that a filter selects, without trace that
// was trimmed, up to the message at last. Some at the end may be missing if the session
// changes meanwhile.
func (s *Store) scan(ctx context.Context, st *state, last uint64, filter string, after uint64, each func(*chunk.Record, uint64) bool) error {
	start := st.Base + 1
	for _, m := range st.Marks {
		if m.Seq <= after+1 {
			start = max(start, m.Stream)
		}
	}
	if filter != ">" && st.Kind == kindTrace {
		last = st.Indexed
	}
	done := false
	one := func(m message) (bool, error) {
		start = m.seq + 1
		if m.seq > last {
			done = true
			return false, nil
		}
		_, recs, _, err := decodePayload(m.data)
		if err != nil {
			return false, err
		}
		for i := range recs {
			r := &recs[i]
			if r.Seq <= after || r.Seq <= st.Head.Floor || r.Class != chunk.Kept && r.Seq <= st.Head.TraceFloor {
				continue
			}
			if !each(r, m.seq) {
				done = true
				return false, nil
			}
		}
		return true, nil
	}
	subject := s.subject(st.Session, filter)
	for size := firstBytes; !done && start <= last; size = min(2*size, maxBytes) {
		was := start
		if err := s.batch(ctx, s.log, query{Seq: start, Next: subject, Batch: batchSize, MaxBytes: size}, one); err != nil {
			return err
		}
		if start > was || done {
			continue
		}
		// The replica that has answered is behind, or there are no more.
		m, err := s.get(ctx, s.log, query{Seq: start, Next: subject})
		if errors.Is(err, errNoMessage) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := one(m); err != nil {
			return err
		}
	}
	return nil
}

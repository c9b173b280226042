package redisstore

import (
	"context"
	"slices"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
	"github.com/spool-run/spool/store/watch"
)

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// Append implements [spool.Store].
func (s *Store) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if err := contract.CheckAppend(&a); err != nil {
		return spool.Appended{}, err
	}
	seen, next := "", ""
	if a.Settle != nil {
		seen, next = decimal(a.Settle.Seen), strconv.FormatInt(a.Settle.Next, 10)
	}
	args := make([]string, 0, 16+3*len(a.Records))
	args = append(args, a.Session, decimal(a.Epoch), a.Writer, decimal(a.Ordinal), string(a.Row.Status), a.Row.Agent, a.Row.Principal,
		a.Row.Title, seen, next, flag(a.Show), flag(a.SamePrincipal), strconv.Itoa(contract.MaxWriters))
	for i := range a.Records {
		r := &a.Records[i]
		args = append(args, classKey(r.Class), header(r), string(r.Data))
	}
	r, err := s.run(ctx, s.bucket(a.Session), appendScript, a.Session, args...)
	if err != nil {
		return spool.Appended{}, err
	}
	now := r.row(0, a.Session)
	done := spool.Appended{First: r.number(1), Last: r.number(2), Head: now.info.Head, Repeated: r.text(3) == "1"}
	var records []chunk.Record
	if !done.Repeated {
		records = slices.Clone(a.Records)
		for i := range records {
			records[i].Seq = done.First + uint64(i)
		}
	}
	s.hub.Apply(a.Session, now.state(records))
	return done, nil
}

// Read implements [spool.Store].
func (s *Store) Read(ctx context.Context, session string, after uint64, most int) ([]chunk.Record, spool.Head, error) {
	r, at, err := s.read(ctx, session, "all", after, most)
	if err != nil {
		return nil, at, err
	}
	recs := merged(after, entries(chunk.Kept, r.list(1)), entries(chunk.Trace, r.list(2)))
	return page(recs, limit(most)), at, nil
}

// ReadKept implements [spool.Store].
func (s *Store) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	kind, seq := "kept", q.After
	if q.Backwards {
		kind, seq = "back", q.Before
	}
	r, at, err := s.read(ctx, session, kind, seq, q.Max)
	if err != nil {
		return nil, at, err
	}
	return page(entries(chunk.Kept, r.list(1)), limit(q.Max)), at, nil
}

func limit(most int) int {
	if most <= 0 {
		return spool.MaxRead
	}
	return most
}

func (s *Store) read(ctx context.Context, session, kind string, seq uint64, most int) (reply, spool.Head, error) {
	seq = min(seq, contract.MaxNumber)
	r, err := s.run(ctx, s.bucket(session), readScript, session, session, kind, decimal(seq), strconv.Itoa(limit(most)), strconv.Itoa(spool.MaxReadBytes))
	if len(r) == 0 {
		return nil, spool.Head{}, err
	}
	now := r.row(0, session)
	if !now.exists {
		return nil, spool.Head{}, err
	}
	return r, now.info.Head, err
}

// Head implements [spool.Store].
func (s *Store) Head(ctx context.Context, session string) (spool.Head, error) {
	i, err := s.Session(ctx, session)
	return i.Head, err
}

// Session implements [spool.Lister].
func (s *Store) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	r, err := s.run(ctx, s.bucket(session), rowsScript, session, session)
	if err != nil {
		return spool.SessionInfo{}, err
	}
	now := r.row(0, session)
	if !now.exists {
		return spool.SessionInfo{}, spool.ErrNotFound.With(session, nil)
	}
	return now.info, nil
}

// Wait implements [spool.Store].
func (s *Store) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, nil, err
	}
	return s.hub.Wait(ctx, session, seen)
}

// states reads the rows of sessions with waiters.
func (s *Store) states(ctx context.Context, sessions []string, found func(string, watch.State)) error {
	parts := map[int][]string{}
	for _, id := range sessions {
		b := s.bucket(id)
		parts[b] = append(parts[b], id)
	}
	for b, ids := range parts {
		r, err := s.run(ctx, b, rowsScript, "", ids...)
		if err != nil {
			return err
		}
		for i, id := range ids {
			now := r.row(i, id)
			found(id, now.state(nil))
		}
	}
	return nil
}

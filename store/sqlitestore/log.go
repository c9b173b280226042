package sqlitestore

import (
	"context"
	"database/sql/driver"
	"math"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Append implements [spool.Store].
func (s *Store) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Appended{}, err
	}
	if err := a.Check(); err != nil {
		return spool.Appended{}, err
	}
	// The answer is handed over through a variable of its own: the caller may
	// be gone before the writer sets it.
	out := new(spool.Appended)
	if err := s.write(ctx, len(a.Records)+1, func(t *tx) error {
		var err error
		*out, err = t.append(&a)
		return err
	}); err != nil {
		return spool.Appended{}, err
	}
	return *out, nil
}

func (t *tx) append(a *spool.Append) (spool.Appended, error) {
	st, err := t.session(a.Session)
	if err != nil {
		return spool.Appended{}, err
	}
	if a.Epoch > 0 {
		if !st.alive || st.head.Epoch != a.Epoch {
			return spool.Appended{}, spool.ErrSuperseded.With(a.Session, nil)
		}
		if err := t.loadWriters(st); err != nil {
			return spool.Appended{}, err
		}
		st.renew(t.now)
		t.touch(st)
		if w := st.writers[a.Writer]; w != nil && a.Ordinal > 0 && a.Ordinal <= w.ordinal {
			if a.Ordinal < w.ordinal {
				return spool.Appended{}, chunk.ErrInvalid.Because("a later append of this writer is stored").With(a.Session, nil)
			}
			return spool.Appended{First: w.first, Last: w.last, Head: st.head, Repeated: true}, nil
		}
	} else if st.alive && st.head.Status == chunk.StatusCopying {
		return spool.Appended{}, spool.ErrNotFound.With(a.Session, nil)
	}
	if err := t.create(st); err != nil {
		return spool.Appended{}, err
	}
	st.updated = t.now
	first := st.head.Seq + 1
	for i := range a.Records {
		r := a.Records[i]
		st.head.Seq++
		r.Seq = st.head.Seq
		if err := t.add(st.sid, &r); err != nil {
			return spool.Appended{}, err
		}
	}
	if a.Row.Agent != "" && a.Row.Agent != st.row.Agent {
		t.sooner = true // for those who wait for this agent's sessions
	}
	st.setRow(a.Row)
	switch {
	case a.Epoch == 0:
		st.command = st.head.Seq
		if st.head.Due == 0 || st.head.Due > t.now {
			st.head.Due = t.now
		}
	case a.Settle != nil && st.command <= a.Settle.Seen:
		st.head.Due = a.Settle.Next
	}
	if a.Epoch > 0 && a.Ordinal > 0 {
		st.writers[a.Writer] = &written{a.Ordinal, first, st.head.Seq, true}
	}
	return spool.Appended{First: first, Last: st.head.Seq, Head: st.head}, nil
}

func (st *state) setRow(r spool.Row) {
	if r.Status != "" {
		st.head.Status, st.row.Status = r.Status, r.Status
	}
	if r.Agent != "" {
		st.row.Agent = r.Agent
	}
	if r.Principal != "" {
		st.row.Principal = r.Principal
	}
	if r.Title != "" {
		st.row.Title = r.Title
	}
}

// Each read is one statement, so that floors and records are of one moment.
// The first row says whether the session exists and what its floors are.
const (
	recordColumns = "s.trace_floor, s.floor, r.seq, r.type, r.agent, r.time, r.trace, CAST(r.data AS BLOB)"
	readAll       = "SELECT " + recordColumns + " FROM session s LEFT JOIN record r ON r.sid = s.sid AND r.seq > +?2 WHERE s.id = +?1 AND s.alive = 1 ORDER BY r.seq LIMIT +?3"
	readKept      = "SELECT " + recordColumns + " FROM session s LEFT JOIN record r ON r.sid = s.sid AND r.seq > +?2 AND r.trace = 0 WHERE s.id = +?1 AND s.alive = 1 ORDER BY r.seq LIMIT +?3"
	readBack      = "SELECT " + recordColumns + " FROM session s LEFT JOIN record r ON r.sid = s.sid AND r.seq < +?2 AND r.seq > s.floor AND r.trace = 0 WHERE s.id = +?1 AND s.alive = 1 ORDER BY r.seq DESC LIMIT +?3"
)

// Read implements [spool.Store].
func (s *Store) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, error) {
	return s.records(ctx, readAll, session, after, max, func(traceFloor, _ uint64) bool { return after < traceFloor })
}

// ReadKept implements [spool.Store].
func (s *Store) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, error) {
	if q.Backwards {
		before := q.Before
		if before == 0 {
			before = math.MaxInt64
		}
		return s.records(ctx, readBack, session, before, q.Max, func(_, _ uint64) bool { return false })
	}
	return s.records(ctx, readKept, session, q.After, q.Max, func(_, floor uint64) bool { return q.After < floor })
}

func (s *Store) records(ctx context.Context, sql, session string, from uint64, limit int, trimmed func(traceFloor, floor uint64) bool) ([]chunk.Record, error) {
	if limit <= 0 {
		limit = spool.MaxRead
	}
	from = min(from, math.MaxInt64)
	var out []chunk.Record
	err := s.read(ctx, func(c *conn) error {
		types := map[string]chunk.Type{}
		agent := "" // hardly ever changes
		return c.query(func(row []driver.Value) error {
			n := func(i int) int64 { v, _ := row[i].(int64); return v }
			if len(out) == 0 && trimmed(uint64(n(0)), uint64(n(1))) {
				return spool.ErrTrimmed.With(session, nil)
			}
			if row[2] == nil {
				return nil // no records
			}
			typ, _ := row[3].(string)
			kind, ok := types[typ]
			if !ok {
				kind = chunk.Type(typ)
				types[typ] = kind
			}
			if a, _ := row[4].(string); a != agent {
				agent = a
			}
			data, _ := row[7].([]byte)
			out = append(out, chunk.Record{Seq: uint64(n(2)), Type: kind, Agent: agent, Time: n(5), Class: chunk.Class(n(6)), Data: data})
			return nil
		}, sql, session, int64(from), int64(limit))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Head implements [spool.Store].
func (s *Store) Head(ctx context.Context, session string) (spool.Head, error) {
	var row *headRow
	if err := s.read(ctx, func(c *conn) (err error) {
		row, err = loadHead(c, session)
		return err
	}); err != nil {
		return spool.Head{}, err
	}
	if row == nil || !row.alive {
		return spool.Head{}, spool.ErrNotFound.With(session, nil)
	}
	return row.head, nil
}

// state reads the row of a session that exists.
func (s *Store) state(ctx context.Context, session string) (st *state, err error) {
	err = s.read(ctx, func(c *conn) error {
		st, err = loadState(c, session)
		return err
	})
	if err != nil {
		return nil, err
	}
	if st == nil || !st.alive {
		return nil, spool.ErrNotFound.With(session, nil)
	}
	return st, nil
}

package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

// Append implements [spool.Store].
func (s *Store) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Appended{}, err
	}
	if err := contract.CheckAppend(&a); err != nil {
		return spool.Appended{}, err
	}
	// The result has a variable of its own: the caller may have left before the writer
	// sets it.
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
	if stored, err := t.admit(st, a); stored.Repeated || err != nil {
		return stored, err
	}
	if err := t.create(st, a.Row.Principal, false); err != nil {
		return spool.Appended{}, err
	}
	st.updated = t.now
	first := st.head.Seq + 1
	for i := range a.Records {
		r := a.Records[i]
		st.head.Seq++
		r.Seq = st.head.Seq
		st.bytes += int64(len(r.Data))
		if err := t.add(st.sid, &r); err != nil {
			return spool.Appended{}, err
		}
	}
	if a.Row.Agent != "" && a.Row.Agent != st.row.Agent {
		t.sooner++ // wakes those that wait for this agent's sessions
	}
	contract.SetRow(&st.head, &st.row, a.Row)
	contract.SetDue(&st.head, &st.command, a, t.now)
	st.head.Hidden = st.head.Hidden && !a.Show
	if a.Epoch > 0 && a.Ordinal > 0 {
		st.writers[a.Writer] = &written{a.Ordinal, first, st.head.Seq, true}
	}
	return spool.Appended{First: first, Last: st.head.Seq, Head: st.head}, nil
}

// admit says whether the caller may append, and returns the answer of an append that
// is stored already. It renews an owner's lease.
func (t *tx) admit(st *state, a *spool.Append) (spool.Appended, error) {
	if a.Epoch == 0 {
		if st.alive && st.head.Hidden {
			return spool.Appended{}, spool.ErrNotFound.With(a.Session, nil)
		}
		return spool.Appended{}, st.checkPrincipal(a.SamePrincipal, a.Row.Principal)
	}
	if !st.alive || st.head.Epoch != a.Epoch {
		return spool.Appended{}, spool.ErrSuperseded.With(a.Session, nil)
	}
	if err := t.loadWriters(st); err != nil {
		return spool.Appended{}, err
	}
	st.renew(t.now)
	t.touch(st)
	w := st.writers[a.Writer]
	switch {
	case w == nil && a.Ordinal > 0:
		return spool.Appended{}, contract.CheckWriter(a.Session, len(st.writers))
	case a.Ordinal == 0 || a.Ordinal > w.ordinal:
		return spool.Appended{}, nil
	case a.Ordinal < w.ordinal:
		return spool.Appended{}, chunk.ErrInvalid.Because("a later append of this writer is stored").With(a.Session, nil)
	}
	return spool.Appended{First: w.first, Last: w.last, Head: st.head, Repeated: true}, nil
}

// A read is two statements in one transaction, so that head and records match.
const (
	ofSession     = "sid = (SELECT sid FROM session WHERE id = +?1 AND alive = 1) AND "
	recordColumns = "SELECT seq, type, agent, time, trace, data FROM record WHERE "
	readAll       = recordColumns + ofSession + "seq > +?2 ORDER BY seq LIMIT +?3"
	readKept      = recordColumns + ofSession + "seq > +?2 AND trace = 0 ORDER BY seq LIMIT +?3"
	readBack      = recordColumns + ofSession + "seq < +?2 AND seq > +?4 AND trace = 0 ORDER BY seq DESC LIMIT +?3"
	readRows      = recordColumns + "rowid BETWEEN +?1 AND +?2 ORDER BY rowid"
	rowOf         = "SELECT rowid FROM record WHERE " + ofSession + "seq = +?2"
)

// Read implements [spool.Store].
func (s *Store) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	return s.records(ctx, session, max, func(h spool.Head) (string, uint64, bool) { return readAll, after, after < h.TraceFloor })
}

// ReadKept implements [spool.Store].
func (s *Store) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	return s.records(ctx, session, q.Max, func(h spool.Head) (string, uint64, bool) {
		switch {
		case !q.Backwards:
			return readKept, q.After, q.After < h.Floor
		case q.Before == 0:
			return readBack, math.MaxInt64, false
		}
		return readBack, q.Before, false
	})
}

// records reads a page. how decides from the head which statement to use, where to
// start, and whether records there are gone.
func (s *Store) records(ctx context.Context, session string, limit int, how func(spool.Head) (sql string, from uint64, trimmed bool)) (out []chunk.Record, h spool.Head, err error) {
	if limit <= 0 {
		limit = spool.MaxRead
	}
	err = s.read(ctx, func(c *conn) error {
		return c.snapshot(func() error {
			row, err := loadHead(c, session)
			if err != nil || row == nil || !row.alive {
				return err
			}
			h = row.head
			sql, from, trimmed := how(h)
			if trimmed {
				return spool.ErrTrimmed.With(session, nil)
			}
			args := []driver.Value{session, int64(min(from, math.MaxInt64)), int64(limit)}
			if sql == readBack {
				args = append(args, int64(h.Floor))
			}
			if sql == readAll && from < h.Seq {
				n := min(h.Seq-from, uint64(limit), spool.MaxRead)
				out = make([]chunk.Record, 0, n)
				if args, err = c.together(session, from+1, from+n); err != nil {
					return err
				}
				if sql = readRows; args == nil {
					sql, args = readAll, []driver.Value{session, int64(from), int64(limit)}
				}
			}
			out, err = c.records(out, session, sql, args...)
			return err
		})
	})
	if err != nil {
		return nil, h, err
	}
	return out, h, nil
}

// leastTogether is how many records must be read for two look-ups to pay.
const leastTogether = 16

// together returns the first and the last row of a series of records if the table has
// nothing else between them, or nil. To go from row to row costs a third less than to find
// each of them by the index. A session's rows are in the order of their sequences, since a
// new row comes after all others.
func (c *conn) together(session string, first, last uint64) ([]driver.Value, error) {
	if last-first < leastTogether {
		return nil, nil
	}
	var rows [2]int64
	for i, seq := range [...]uint64{first, last} {
		row, err := c.number(rowOf, session, int64(seq))
		if err != nil {
			return nil, err
		}
		rows[i] = row
	}
	if rows[0] == 0 || uint64(rows[1]-rows[0]) != last-first {
		return nil, nil
	}
	return []driver.Value{rows[0], rows[1]}, nil
}

// errEnough ends a query whose other rows nobody needs.
var errEnough = errors.New("enough rows")

// records appends a page of the rows of a statement that selects recordColumns.
func (c *conn) records(out []chunk.Record, session, sql string, args ...driver.Value) ([]chunk.Record, error) {
	names := map[string]string{} // types are few, and agents, too
	agent, size := session, 0
	var typ chunk.Type
	var data block
	err := c.each(func(row row) error {
		if b := row.bytes(1); string(b) != string(typ) {
			typ = chunk.Type(known(names, b))
		}
		if b := row.bytes(2); string(b) != agent {
			agent = known(names, b)
		}
		r := chunk.Record{Seq: uint64(row.number(0)), Type: typ, Agent: agent, Time: row.number(3), Class: chunk.Class(row.number(4))}
		r.Data = data.copy(row.bytes(5), r.Class)
		out = append(out, r)
		if size += len(r.Data); size >= spool.MaxReadBytes {
			return errEnough
		}
		return nil
	}, sql, args...)
	if err == errEnough {
		err = nil
	}
	return out, err
}

// known returns the string with these bytes, one for all.
func known(names map[string]string, b []byte) string {
	s, ok := names[string(b)]
	if !ok {
		s = string(b)
		names[s] = s
	}
	return s
}

const (
	blockBytes  = 16 << 10
	sharedBytes = 1 << 10 // a larger record has memory of its own
)

// block is memory that the data of several records share. Kept records do not share any:
// what is folded from them may stay in memory for long, when the others are not used any more.
type block []byte

func (k *block) copy(b []byte, class chunk.Class) []byte {
	switch {
	case len(b) == 0:
		return nil
	case class == chunk.Kept || len(b) > sharedBytes:
		return append(make([]byte, 0, len(b)), b...)
	}
	if cap(*k)-len(*k) < len(b) {
		*k = make([]byte, 0, max(len(b), min(2*cap(*k), blockBytes))) // of one record, no more than that
	}
	from := len(*k)
	*k = append(*k, b...)
	return (*k)[from:len(*k):len(*k)]
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

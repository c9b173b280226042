package sqlitestore

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/contract"
)

// slice is how many rows one transaction removes.
const slice = 1000

// Trim implements [spool.Trimmer].
func (s *Store) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	if err := s.write(ctx, 1, func(t *tx) error {
		st, err := t.existing(session)
		if err != nil {
			return err
		}
		contract.RaiseFloors(&st.head, traceFloor, floor)
		t.touch(st)
		return nil
	}); err != nil {
		return err
	}
	return s.free(ctx, session)
}

// free removes the rows below the floors, which are valid already. It does so in slices, so
// that appends can run in between. The next call finishes an interrupted one.
func (s *Store) free(ctx context.Context, session string) error {
	for done := false; !done; {
		if err := s.write(ctx, slice, func(t *tx) error {
			var err error
			done, err = t.trimSlice(session)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) trimSlice(session string) (done bool, err error) {
	st, err := t.session(session)
	if err != nil || !st.alive {
		return true, err
	}
	if err := t.flushRecords(); err != nil {
		return false, err
	}
	remove := func(sql string, from, to uint64) error {
		return t.c.query(func(row []driver.Value) error {
			n, _ := row[0].(int64)
			st.bytes -= n
			return nil
		}, sql+" RETURNING octet_length(data)", st.sid, int64(from), int64(to))
	}
	switch h := &st.head; {
	case st.trimmed < h.Floor:
		to := min(st.trimmed+slice, h.Floor)
		if err := remove("DELETE FROM record WHERE sid = +? AND seq > +? AND seq <= +?", st.trimmed, to); err != nil {
			return false, err
		}
		st.trimmed, st.traceTrimmed = to, max(st.traceTrimmed, to)
	case st.traceTrimmed < h.TraceFloor:
		to := min(st.traceTrimmed+slice, h.TraceFloor)
		if err := remove("DELETE FROM record WHERE sid = +? AND seq > +? AND seq <= +? AND trace = 1", st.traceTrimmed, to); err != nil {
			return false, err
		}
		st.traceTrimmed = to
	default:
		return true, nil
	}
	t.touch(st)
	return st.trimmed == st.head.Floor && st.traceTrimmed == st.head.TraceFloor, nil
}

// Delete implements [spool.Trimmer]. The first commit deletes the session; its records
// and blobs are removed in slices.
func (s *Store) Delete(ctx context.Context, session string) error {
	return s.remove(ctx, session, func(*state, int64) bool { return true })
}

// Expire implements [spool.Expirer].
func (s *Store) Expire(ctx context.Context, session string, idle time.Duration) error {
	return s.remove(ctx, session, func(st *state, now int64) bool { return contract.Expires(idle, st.updated, st.expires, now) })
}

// remove deletes a session if it may.
func (s *Store) remove(ctx context.Context, session string, may func(st *state, now int64) bool) error {
	sid := new(int64)
	if err := s.write(ctx, 1, func(t *tx) error {
		st, err := t.existing(session)
		if err != nil {
			return err
		}
		if !may(st, t.now) {
			return spool.ErrBusy.With(session, nil)
		}
		if err := t.flush(); err != nil {
			return err
		}
		*sid = st.sid
		if err := t.c.exec("INSERT INTO garbage (sid) VALUES (?)", st.sid); err != nil {
			return err
		}
		if err := t.c.exec("DELETE FROM session WHERE sid = +?", st.sid); err != nil {
			return err
		}
		st.sid, st.alive = 0, false
		st.head = contract.Deleted(st.head)
		st.row, st.updated, st.bytes, st.command = spool.Row{}, 0, 0, 0
		st.release()
		st.traceTrimmed, st.trimmed, st.writers = 0, 0, nil
		t.touch(st)
		return t.save(st) // the tombstone
	}); err != nil {
		return err
	}
	err := s.sweep(ctx, *sid)
	if err != nil && ctx.Err() != nil {
		go s.collect([]int64{*sid}) // the caller has left, and the session is deleted
		return nil
	}
	return err
}

// deleted returns the sessions whose deletion was cut short.
func deleted(c *conn) (sids []int64, err error) {
	err = c.query(func(row []driver.Value) error {
		sids = append(sids, row[0].(int64))
		return nil
	}, "SELECT sid FROM garbage")
	return sids, err
}

// collect removes what deleted sessions held, with nobody waiting. What it does
// not come to is left for the next open.
func (s *Store) collect(sids []int64) {
	for _, sid := range sids {
		if s.sweep(context.Background(), sid) != nil {
			return
		}
	}
}

// sweep removes what a deleted session held.
func (s *Store) sweep(ctx context.Context, sid int64) error {
	for _, sql := range []string{
		"DELETE FROM record WHERE rowid IN (SELECT rowid FROM record WHERE sid = +? LIMIT +?)",
		"DELETE FROM blob WHERE rowid IN (SELECT rowid FROM blob WHERE sid = +? LIMIT (? + 999) / 1000)", // one: they are large
		"DELETE FROM fold WHERE rowid IN (SELECT rowid FROM fold WHERE sid = +? LIMIT (? + 999) / 1000)",
		"DELETE FROM writer WHERE sid = +?1 AND +?2 > 0",
		"DELETE FROM garbage WHERE sid = +?1 AND +?2 > 0",
	} {
		for left := int64(1); left > 0; {
			if err := s.write(ctx, slice, func(t *tx) (err error) {
				if err := t.c.exec(sql, sid, int64(slice)); err != nil {
					return err
				}
				left, err = t.c.number("SELECT changes()")
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// A listing walks one of the indexes of listings backwards, from the place of the page
// before. What was updated within the same ten seconds is sorted.
const (
	listing      = "SELECT " + stateColumns + " FROM session WHERE listed <= +? AND hidden = +?"
	listingOrder = " ORDER BY listed DESC, updated DESC, id LIMIT +?"
)

// Sessions implements [spool.Lister].
func (s *Store) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	if err := s.usable(ctx); err != nil {
		return spool.SessionPage{}, err
	}
	after, err := contract.ParsePlace(q.After)
	if err != nil {
		return spool.SessionPage{}, err
	}
	limit := q.Max
	if limit <= 0 {
		limit = 100
	}
	page := spool.SessionPage{Now: s.clock.Now()}
	before := contract.IdleSince(q.Idle, page.Now)
	if q.After != "" {
		before = min(before, after.Updated)
	}
	if before != never {
		before /= listPrecision
	}
	sql, args := listing, []driver.Value{before, number(q.Hidden)}
	switch {
	case q.Status == "":
	case q.Principal != "": // that one's index is used
		sql, args = sql+" AND +status = +?", append(args, string(q.Status))
	default:
		sql, args = sql+" AND status = +?", append(args, string(q.Status))
	}
	if q.Principal != "" {
		sql, args = sql+" AND principal = +? AND principal <> ''", append(args, q.Principal)
	}
	if q.Idle > 0 {
		sql, args = sql+" AND updated <= +?", append(args, contract.IdleSince(q.Idle, page.Now))
	}
	if q.After != "" {
		sql, args = sql+" AND (updated < +? OR updated = +? AND id > +?)", append(args, after.Updated, after.Updated, after.Session)
	}
	sql += listingOrder
	args = append(args, int64(limit)+1)
	if err := s.read(ctx, func(c *conn) error {
		return c.query(func(row []driver.Value) error {
			page.Sessions = append(page.Sessions, scanState(row).info())
			return nil
		}, sql, args...)
	}); err != nil {
		return spool.SessionPage{}, err
	}
	if len(page.Sessions) > limit {
		page.Sessions = page.Sessions[:limit]
		page.NextAfter = contract.After(page.Sessions[limit-1])
	}
	return page, nil
}

// Usage implements [spool.Measurer].
func (s *Store) Usage(ctx context.Context, principal string) (u spool.Usage, err error) {
	u.Now = s.clock.Now()
	sql, args := "SELECT count(*), sum(bytes), max(bytes), min(updated) FROM session WHERE listed <= +? AND hidden = 0", []driver.Value{int64(never)}
	if principal != "" {
		sql, args = sql+" AND principal = +? AND principal <> ''", append(args, principal)
	}
	return u, s.read(ctx, func(c *conn) error {
		return c.query(func(row []driver.Value) error {
			n := func(i int) int64 { v, _ := row[i].(int64); return v }
			u.Sessions, u.Bytes, u.Largest, u.Oldest = n(0), n(1), n(2), n(3)
			return nil
		}, sql, args...)
	})
}

func (st *state) info() spool.SessionInfo {
	return spool.SessionInfo{Session: st.id, Row: st.row, Head: st.head, Updated: st.updated, Bytes: st.bytes}
}

// Session implements [spool.Lister].
func (s *Store) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	st, err := s.state(ctx, session)
	if err != nil {
		return spool.SessionInfo{}, err
	}
	return st.info(), nil
}

// SaveFold implements [spool.FoldStore].
func (s *Store) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) error {
	if err := contract.CheckFold(session, name, &f); err != nil {
		return err
	}
	return s.write(ctx, 1+len(f.Data)/256, func(t *tx) error {
		st, err := t.existing(session)
		if err != nil {
			return err
		}
		return t.c.exec("INSERT OR REPLACE INTO fold (sid, name, version, incarnation, seq, data) VALUES (?,?,?,?,?,?)",
			st.sid, name, int64(f.Version), int64(f.Incarnation), int64(f.Seq), nonNil(f.Data))
	})
}

// LoadFold implements [spool.FoldStore].
func (s *Store) LoadFold(ctx context.Context, session, name string) (f spool.SavedFold, err error) {
	found := false
	if err := s.read(ctx, func(c *conn) error {
		return c.query(func(row []driver.Value) error {
			n := func(i int) int64 { v, _ := row[i].(int64); return v }
			data, _ := row[3].([]byte)
			f = spool.SavedFold{Version: int(n(0)), Incarnation: uint64(n(1)), Seq: uint64(n(2)), Data: data}
			found = true
			return nil
		}, "SELECT f.version, f.incarnation, f.seq, f.data FROM session s JOIN fold f ON f.sid = s.sid WHERE s.id = +? AND s.alive = 1 AND f.name = +?", session, name)
	}); err != nil {
		return spool.SavedFold{}, err
	}
	if !found {
		return spool.SavedFold{}, spool.ErrNotFound.Because("there is no saved fold with this name").With(session, nil)
	}
	return f, nil
}

// PutBlob implements [spool.BlobStore].
func (s *Store) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	if err := contract.CheckBlob(session, hash, data); err != nil {
		return err
	}
	return s.write(ctx, 1+len(data)/256, func(t *tx) error {
		st, err := t.session(session)
		if err != nil {
			return err
		}
		if err := t.identify(st); err != nil {
			return err
		}
		if err := t.c.exec("INSERT OR IGNORE INTO blob (sid, hash, data) VALUES (?,?,?)", st.sid, hash, nonNil(data)); err != nil {
			return err
		}
		n, err := t.c.number("SELECT changes()")
		if n > 0 {
			st.bytes += int64(len(data))
			t.touch(st)
		}
		return err
	})
}

// GetBlob implements [spool.BlobStore].
func (s *Store) GetBlob(ctx context.Context, session, hash string) (data []byte, err error) {
	found := false
	if err := s.read(ctx, func(c *conn) error {
		return c.query(func(row []driver.Value) error {
			data, found = row[0].([]byte)
			return nil
		}, "SELECT b.data FROM session s JOIN blob b ON b.sid = s.sid WHERE s.id = +? AND b.hash = +?", session, hash)
	}); err != nil {
		return nil, err
	}
	if !found {
		return nil, spool.ErrNotFound.Because("there is no such blob").With(session, nil)
	}
	return data, nil
}

// nonNil prevents that empty data becomes NULL.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/contract"
)

// slice is how many rows one transaction removes.
const slice = 1000

// Trim implements [spool.Trimmer].
func (s *Store) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	if err := s.change(ctx, need{session: session}, func(t *tx) error {
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
		if err := s.change(ctx, need{session: session}, func(t *tx) (err error) {
			done, err = t.trimSlice(session)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) trimSlice(session string) (done bool, err error) {
	st := t.states[session]
	if st == nil || !st.alive {
		return true, nil
	}
	h := &st.head
	switch {
	case st.trimmed < h.Floor:
		to := min(st.trimmed+slice, h.Floor)
		_, err = t.remove(st, "DELETE FROM record WHERE sid = $1 AND seq > $2 AND seq <= $3", st.sid, st.trimmed, to)
		st.trimmed, st.traceTrimmed = to, max(st.traceTrimmed, to)
	case st.traceTrimmed < h.TraceFloor:
		to := min(st.traceTrimmed+slice, h.TraceFloor)
		_, err = t.remove(st, "DELETE FROM record WHERE sid = $1 AND seq > $2 AND seq <= $3 AND trace = 1", st.sid, st.traceTrimmed, to)
		st.traceTrimmed = to
	default:
		return true, nil
	}
	t.touch(st)
	return st.trimmed == h.Floor && st.traceTrimmed == h.TraceFloor, err
}

// remove deletes records of the session, and counts their bytes.
func (t *tx) remove(st *state, sql string, args ...any) (n int64, err error) {
	var bytes int64
	err = t.c.QueryRow(t.ctx, "WITH gone AS ("+sql+" RETURNING octet_length(data) AS size) SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone", args...).Scan(&n, &bytes)
	st.bytes -= bytes
	return n, err
}

// Delete implements [spool.Trimmer]. The first commit deletes the session; its records
// and blobs are removed in slices.
func (s *Store) Delete(ctx context.Context, session string) error {
	return s.drop(ctx, session, func(*state, int64) bool { return true })
}

// Expire implements [spool.Expirer].
func (s *Store) Expire(ctx context.Context, session string, idle time.Duration) error {
	return s.drop(ctx, session, func(st *state, now int64) bool { return contract.Expires(idle, st.updated, st.expires, now) })
}

// drop deletes a session if it may. What it held stays under its number, and the tombstone
// gets another one.
func (s *Store) drop(ctx context.Context, session string, may func(st *state, now int64) bool) error {
	var sid int64
	if err := s.change(ctx, need{session: session}, func(t *tx) error {
		st, err := t.existing(session)
		if err != nil {
			return err
		}
		if !may(st, t.now) {
			return spool.ErrBusy.With(session, nil)
		}
		sid = st.sid
		t.last.Queue("INSERT INTO garbage (sid) VALUES ($1)", sid)
		if err := t.c.QueryRow(t.ctx, "SELECT nextval('session_sid')").Scan(&st.sid); err != nil {
			return err
		}
		st.alive = false
		st.head = contract.Deleted(st.head)
		st.row, st.updated, st.bytes, st.command = spool.Row{}, 0, 0, 0
		st.release()
		st.traceTrimmed, st.trimmed, st.writers = 0, 0, 0
		t.touch(st)
		return nil
	}); err != nil {
		return err
	}
	err := s.sweep(ctx, sid)
	if err != nil && ctx.Err() != nil {
		return nil // the caller has left, and the session is deleted: the next store to open removes the rest
	}
	return err
}

// collectAll removes what deletions that were cut short have left. What it does not come to
// is left for the next open.
func (s *Store) collectAll() {
	var sids []int64
	if s.read(s.ctx, func(ctx context.Context, c *pgx.Conn) (err error) {
		rows, err := c.Query(ctx, "SELECT sid FROM garbage")
		if err == nil {
			sids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	}) != nil {
		return
	}
	for _, sid := range sids {
		if s.sweep(s.ctx, sid) != nil {
			return
		}
	}
}

// sweep removes what a deleted session held.
func (s *Store) sweep(ctx context.Context, sid int64) error {
	for _, part := range []struct {
		table, key string
		limit      int // few of those that are large
	}{{"record", "seq", slice}, {"blob", "hash", 1}, {"fold", "name", 1}, {"writer", "name", slice}, {"garbage", "sid", 1}} {
		sql := fmt.Sprintf("DELETE FROM %[1]s WHERE sid = $1 AND %[2]s IN (SELECT %[2]s FROM %[1]s WHERE sid = $1 LIMIT %[3]d)", part.table, part.key, part.limit)
		for left := true; left; {
			if err := s.read(ctx, func(ctx context.Context, c *pgx.Conn) error {
				tag, err := c.Exec(ctx, sql, sid)
				left = tag.RowsAffected() > 0
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Sessions implements [spool.Lister]. A listing walks one of the indexes of listings backwards,
// from the place of the page before. What was updated within the same ten seconds is sorted.
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
	var page spool.SessionPage
	err = s.read(ctx, func(ctx context.Context, c *pgx.Conn) error {
		page = spool.SessionPage{}
		var err error
		if page.Now, err = s.time(ctx, c); err != nil {
			return err
		}
		sql, args := listing(&q, after, limit, page.Now)
		rows, err := c.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		page.Sessions, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (spool.SessionInfo, error) {
			st, err := scanState(row)
			return st.info(), err
		})
		return err
	})
	if err != nil {
		return spool.SessionPage{}, err
	}
	if len(page.Sessions) > limit {
		page.Sessions = page.Sessions[:limit]
		page.NextAfter = contract.After(page.Sessions[limit-1])
	}
	return page, nil
}

// listing is the statement for a page, and one row more.
func listing(q *spool.SessionQuery, after contract.Place, limit int, now int64) (sql string, args []any) {
	arg := func(v any) string { args = append(args, v); return fmt.Sprintf("$%d", len(args)) }
	before := contract.IdleSince(q.Idle, now)
	if q.After != "" {
		before = min(before, after.Updated)
	}
	if before != contract.Never {
		before /= listPrecision
	}
	sql = "SELECT " + stateColumns + " FROM session WHERE listed IS NOT NULL AND listed <= " + arg(before) + " AND hidden = " + arg(q.Hidden)
	if q.Status != "" {
		sql += " AND status = " + arg(string(q.Status))
	}
	if q.Principal != "" {
		sql += " AND principal <> '' AND principal = " + arg(q.Principal)
	}
	if q.Idle > 0 {
		sql += " AND updated <= " + arg(contract.IdleSince(q.Idle, now))
	}
	if q.After != "" {
		place := arg(after.Updated)
		sql += " AND (updated < " + place + " OR updated = " + place + " AND id > " + arg(after.Session) + ")"
	}
	return sql + " ORDER BY listed DESC, updated DESC, id LIMIT " + arg(limit+1), args
}

// Session implements [spool.Lister].
func (s *Store) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	var st *state
	if err := s.read(ctx, func(ctx context.Context, c *pgx.Conn) (err error) {
		st, err = scanState(c.QueryRow(ctx, "SELECT "+stateColumns+" FROM session WHERE id = $1", session))
		return none(err)
	}); err != nil {
		return spool.SessionInfo{}, err
	}
	if !st.alive {
		return spool.SessionInfo{}, spool.ErrNotFound.With(session, nil)
	}
	return st.info(), nil
}

// Usage implements [spool.Measurer].
func (s *Store) Usage(ctx context.Context, principal string) (u spool.Usage, err error) {
	sql, args := "SELECT count(*), coalesce(sum(bytes), 0)::bigint, coalesce(max(bytes), 0), coalesce(min(updated), 0) FROM session WHERE listed IS NOT NULL AND NOT hidden", []any(nil)
	if principal != "" {
		sql, args = sql+" AND principal = $1 AND principal <> ''", []any{principal}
	}
	err = s.read(ctx, func(ctx context.Context, c *pgx.Conn) error {
		if u.Now, err = s.time(ctx, c); err != nil {
			return err
		}
		return c.QueryRow(ctx, sql, args...).Scan(&u.Sessions, &u.Bytes, &u.Largest, &u.Oldest)
	})
	return u, err
}

// SaveFold implements [spool.FoldStore].
func (s *Store) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) error {
	if err := contract.CheckFold(session, name, &f); err != nil {
		return err
	}
	return s.change(ctx, need{session: session}, func(t *tx) error {
		st, err := t.existing(session)
		if err != nil {
			return err
		}
		t.last.Queue("INSERT INTO fold (sid, name, version, incarnation, seq, data) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (sid, name) DO UPDATE SET version = excluded.version, incarnation = excluded.incarnation, seq = excluded.seq, data = excluded.data",
			st.sid, name, f.Version, f.Incarnation, f.Seq, nonNil(f.Data))
		return nil
	})
}

// LoadFold implements [spool.FoldStore].
func (s *Store) LoadFold(ctx context.Context, session, name string) (f spool.SavedFold, err error) {
	err = s.read(ctx, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, "SELECT f.version, f.incarnation, f.seq, f.data FROM session s JOIN fold f ON f.sid = s.sid WHERE s.id = $1 AND s.alive AND f.name = $2", session, name).
			Scan(&f.Version, &f.Incarnation, &f.Seq, &f.Data)
		if err == pgx.ErrNoRows {
			return spool.ErrNotFound.Because("there is no saved fold with this name").With(session, nil)
		}
		return err
	})
	return f, err
}

// PutBlob implements [spool.BlobStore].
func (s *Store) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	if err := contract.CheckBlob(session, hash, data); err != nil {
		return err
	}
	return s.change(ctx, need{session: session, create: true}, func(t *tx) error {
		st := t.states[session]
		tag, err := t.c.Exec(t.ctx, "INSERT INTO blob (sid, hash, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", st.sid, hash, nonNil(data))
		if err == nil && tag.RowsAffected() > 0 {
			st.bytes += int64(len(data))
			t.touch(st)
		}
		return err
	})
}

// GetBlob implements [spool.BlobStore].
func (s *Store) GetBlob(ctx context.Context, session, hash string) (data []byte, err error) {
	err = s.read(ctx, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, "SELECT b.data FROM session s JOIN blob b ON b.sid = s.sid WHERE s.id = $1 AND b.hash = $2", session, hash).Scan(&data)
		if err == pgx.ErrNoRows {
			return spool.ErrNotFound.Because("there is no such blob").With(session, nil)
		}
		return err
	})
	return data, err
}

// Probe implements [spool.Prober].
func (s *Store) Probe(ctx context.Context) error {
	return s.change(ctx, need{}, func(t *tx) error {
		t.last.Queue("INSERT INTO probe (at) VALUES (now())")
		t.last.Queue("DELETE FROM probe")
		return nil
	})
}

// nonNil prevents that empty data becomes NULL.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

package pgstore

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// A page ends with the record with which its data reaches MaxReadBytes. The server finds
// where from the lengths alone. The number of the session is a subquery, not a join, so that
// the index gives the order.
const (
	pageFrom = "SELECT seq, type, agent, time, trace, data FROM (SELECT *, sum(octet_length(data)) OVER (ORDER BY seq"
	pageOf   = " ROWS UNBOUNDED PRECEDING) - octet_length(data) AS before FROM (SELECT r.* FROM record r WHERE r.sid = (SELECT sid FROM session WHERE id = $1 AND alive) AND r.seq "
	pageTo   = " LIMIT $3) AS page) AS sized WHERE before < $4 ORDER BY seq"

	readAll  = pageFrom + pageOf + "> $2 ORDER BY r.seq" + pageTo
	readKept = pageFrom + pageOf + "> $2 AND r.trace = 0 ORDER BY r.seq" + pageTo
	readBack = pageFrom + " DESC" + pageOf + "< $2 AND r.seq > (SELECT floor FROM session WHERE id = $1) AND r.trace = 0 ORDER BY r.seq DESC" + pageTo + " DESC"
)

// Read implements [spool.Store].
func (s *Store) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	return s.records(ctx, session, readAll, after, max, func(h spool.Head) bool { return after < h.TraceFloor })
}

// ReadKept implements [spool.Store].
func (s *Store) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	switch {
	case !q.Backwards:
		return s.records(ctx, session, readKept, q.After, q.Max, func(h spool.Head) bool { return q.After < h.Floor })
	case q.Before == 0:
		q.Before = math.MaxInt64
	}
	return s.records(ctx, session, readBack, q.Before, q.Max, func(spool.Head) bool { return false })
}

// records reads the head and a page from one snapshot, in one round trip. trimmed says of
// the head whether records of the page may be gone.
func (s *Store) records(ctx context.Context, session, sql string, from uint64, limit int, trimmed func(spool.Head) bool) (out []chunk.Record, h spool.Head, err error) {
	if limit <= 0 {
		limit = spool.MaxRead
	}
	err = s.read(ctx, func(ctx context.Context, c *pgx.Conn) error {
		var row headRow
		out, h = nil, spool.Head{}
		b := &pgx.Batch{}
		b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		b.Queue("SELECT "+headColumns+" FROM session WHERE id = $1 AND alive", session).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(row.fields()...); err != nil {
					return err
				}
			}
			return rows.Err()
		})
		b.Queue(sql, session, int64(min(from, math.MaxInt64)), limit, spool.MaxReadBytes).Query(func(rows pgx.Rows) (err error) {
			out, err = scanRecords(rows, session)
			return err
		})
		b.Queue("COMMIT")
		if err := c.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		h = row.head
		if row.alive && trimmed(h) {
			return spool.ErrTrimmed.With(session, nil)
		}
		return nil
	})
	if err != nil {
		return nil, h, err
	}
	return out, h, nil
}

func scanRecords(rows pgx.Rows, session string) (out []chunk.Record, err error) {
	typ, agent := "", session // which hardly change
	for rows.Next() {
		var r chunk.Record
		var trace int16
		var data []byte
		raw := rows.RawValues() // in the memory of the connection
		if t := raw[1]; string(t) != typ {
			typ = string(t)
		}
		if a := raw[2]; string(a) != agent {
			agent = string(a)
		}
		if err := rows.Scan(&r.Seq, nil, nil, &r.Time, &trace, &data); err != nil {
			return nil, err
		}
		r.Type, r.Agent, r.Class, r.Data = chunk.Type(typ), agent, chunk.Class(trace), data
		out = append(out, r)
	}
	return out, rows.Err()
}

// Head implements [spool.Store].
func (s *Store) Head(ctx context.Context, session string) (spool.Head, error) {
	var row headRow
	if err := s.read(ctx, func(ctx context.Context, c *pgx.Conn) error {
		row = headRow{}
		return none(c.QueryRow(ctx, "SELECT "+headColumns+" FROM session WHERE id = $1", session).Scan(row.fields()...))
	}); err != nil {
		return spool.Head{}, err
	}
	if !row.alive {
		return spool.Head{}, spool.ErrNotFound.With(session, nil)
	}
	return row.head, nil
}

// none lets the absence of a row be no error.
func none(err error) error {
	if err == pgx.ErrNoRows {
		return nil
	}
	return err
}

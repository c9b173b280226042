package pgstore

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// A run appends a delta after its own last one, and mostly nothing else has changed the session
// in between. Then its process knows the session's row, and a plain statement that checks the
// row's version takes a third of append_group's time.

// known is a session's row as an owner's append has left it.
type known struct {
	headRow
	writer  string
	ordinal uint64
}

// maxKnown is how many rows a writer remembers.
const maxKnown = 1000

// remembered are the rows that are known on one connection. A row cannot be set back to an
// earlier version while it lasts.
type remembered struct {
	conn *pgx.Conn
	rows map[string]known
}

// on is called before the rows are used with a connection.
func (m *remembered) on(c *pgx.Conn) {
	if m.conn != c {
		m.conn, m.rows = c, map[string]known{}
	}
}

// note remembers the row after an append, or forgets it if it is of no use.
func (m *remembered) note(a *spool.Append, row headRow, good bool) {
	if !good || !row.alive || row.head.Hidden || a.Epoch == 0 || a.Ordinal == 0 {
		delete(m.rows, a.Session)
		return
	}
	if len(m.rows) >= maxKnown {
		clear(m.rows)
	}
	m.rows[a.Session] = known{row, a.Writer, a.Ordinal}
}

// next returns the row that the append follows, if the append changes nothing but the log.
func (m *remembered) next(a *spool.Append) (known, bool) {
	k, ok := m.rows[a.Session]
	return k, ok && a.Epoch == k.head.Epoch && a.Writer == k.writer && a.Ordinal > k.ordinal && a.Settle == nil && !a.Show &&
		(a.Row.Status == "" || a.Row.Status == k.head.Status) && a.Row.Agent == "" && a.Row.Title == ""
}

// The store's time, and the lease's end, of a row that is appended to: those that append_group
// gives.
const (
	rowNow     = "greatest(floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint + $7::bigint, $8::bigint, updated, lease_expires - lease_ttl)"
	rowExpires = "CASE WHEN lease_owner <> '' AND " + rowNow + " + lease_ttl - lease_expires >= lease_ttl / 32 THEN " + rowNow + " + lease_ttl ELSE lease_expires END"
)

// appendNext appends to a session whose row still has a version. It gives a row if it has.
const appendNext = `WITH s AS (
 UPDATE session SET seq = seq + $3, bytes = bytes + $4, version = version + 1, updated = ` + rowNow + `, listed = ` + rowNow + ` / ` + listPrecisionText + `, lease_expires = ` + rowExpires + `,
  ready = CASE WHEN status = 'active' THEN ` + rowExpires + ` WHEN due <> 0 THEN greatest(due, ` + rowExpires + `) END
 WHERE id = $1 AND version = $2 RETURNING sid, seq, updated
), w AS (
 UPDATE writer SET ordinal = $6, first = s.seq - $3 + 1, last = s.seq FROM s WHERE writer.sid = s.sid AND writer.name = $5
), r AS (
 INSERT INTO record (sid, seq, type, agent, time, trace, data)
  SELECT s.sid, s.seq - $3 + r.place, r.type, r.agent, r.time, r.trace, r.data
  FROM s, unnest($9::text[], $10::text[], $11::bigint[], $12::smallint[], $13::bytea[]) WITH ORDINALITY AS r (type, agent, time, trace, data, place)
) SELECT floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint, updated, pg_notify($14, $15)::text FROM s`

// appendNext makes a single append if the session's row is known. done: it has, and the request
// has its answer; if not, nothing was stored unless there is an error.
func (w *writer) appendNext(ctx context.Context, c *pgx.Conn, r *request) (done bool, err error) {
	a := r.append
	k, ok := w.known.next(a)
	if !ok {
		return false, nil
	}
	first := k.head.Seq + 1
	k.head.Seq += uint64(len(a.Records))
	k.version++
	k.ordinal = a.Ordinal
	var x records
	for i := range a.Records {
		x.add(&a.Records[i])
	}
	payload := w.s.nextNote(a, &k, first, r.bytes)
	ahead, floor := w.s.clock.leads()
	offset := w.s.offset()
	var wall, now int64
	err = c.QueryRow(ctx, appendNext, a.Session, k.version-1, len(a.Records), r.bytes, a.Writer, number(a.Ordinal), ahead+offset, floor,
		x.typ, x.agent, x.time, x.trace, x.data, w.s.channel, payload).Scan(&wall, &now, nil)
	if err == pgx.ErrNoRows {
		delete(w.known.rows, a.Session)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	w.s.clock.at(wall+offset, now)
	w.known.rows[a.Session] = k
	r.out = spool.Appended{First: first, Last: k.head.Seq, Head: k.head}
	state := k.watched()
	state.Records = follow(nil, a.Records, first)
	w.s.hub.Apply(a.Session, state)
	return true, nil
}

// nextNote is what the other processes are told.
func (s *Store) nextNote(a *spool.Append, k *known, first uint64, bytes int) string {
	h := noteHead{Session: a.Session, Version: k.version, Exists: true, Head: k.head}
	if hints := hints(a.Records, bytes); hints != nil {
		h.Appended = []noteAppend{{After: first - 1, Records: hints}}
	}
	n := note{From: s.name, Sessions: []noteHead{h}}
	text, _ := json.Marshal(n)
	if len(text) > maxPayload {
		n.Sessions[0].Appended = nil
		text, _ = json.Marshal(n)
	}
	return string(text)
}

// follow adds records with the sequences from first on.
func follow(to, records []chunk.Record, first uint64) []chunk.Record {
	for n, rec := range records {
		rec.Seq = first + uint64(n)
		to = append(to, rec)
	}
	return to
}

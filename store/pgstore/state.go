package pgstore

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
	"github.com/spool-run/spool/store/watch"
)

// headRow is the part of a session's row that says what its head is.
type headRow struct {
	id      string
	alive   bool
	head    spool.Head // Epoch and Incarnation also of a tombstone
	version int64      // grows with each commit that changes the row
}

func (h *headRow) watched() watch.State {
	return watch.State{Exists: h.alive, Head: h.head, Version: h.version}
}

const headColumns = "id, alive, seq, incarnation, trace_floor, floor, epoch, status, due, pending, hidden, principal, version"

func (h *headRow) fields() []any {
	x := &h.head
	return []any{&h.id, &h.alive, &x.Seq, &x.Incarnation, &x.TraceFloor, &x.Floor, &x.Epoch, (*string)(&x.Status), &x.Due, &x.Pending, &x.Hidden, &x.Principal, &h.version}
}

// state is a session's row in a transaction that has locked it.
type state struct {
	headRow
	sid     int64
	command uint64
	row     spool.Row
	updated int64
	bytes   int64

	claim   string // the ID of the lease's claim
	owner   string // "" when released or never claimed
	ttl     int64
	expires int64
	ready   int64 // as stored; Never for NULL

	traceTrimmed, trimmed uint64

	writers int  // how many number their appends under this epoch
	forget  bool // they are to be deleted
	touched bool
}

const stateColumns = headColumns + ", sid, last_command, agent, title, updated, bytes, lease_claim, lease_owner, lease_ttl, lease_expires, coalesce(ready, 9223372036854775807), trace_trimmed, trimmed, writers"

func scanState(row pgx.Row) (*state, error) {
	st := &state{}
	err := row.Scan(append(st.fields(), &st.sid, &st.command, &st.row.Agent, &st.row.Title, &st.updated, &st.bytes,
		&st.claim, &st.owner, &st.ttl, &st.expires, &st.ready, &st.traceTrimmed, &st.trimmed, &st.writers)...)
	st.row.Status, st.row.Principal = st.head.Status, st.head.Principal
	return st, err
}

func (st *state) info() spool.SessionInfo {
	return spool.SessionInfo{Session: st.id, Row: st.row, Head: st.head, Updated: st.updated, Bytes: st.bytes}
}

// tx is a transaction: rows are locked and read, changed here, and written together with the
// commit.
type tx struct {
	s      *Store
	c      *pgx.Conn
	ctx    context.Context
	now    int64
	states map[string]*state
	order  []*state  // those that were changed
	last   pgx.Batch // statements of the calls
	rows   records
	sooner int  // sessions that are ready earlier than before
	sent   bool // the commit was sent: from here on the outcome may be unknown
}

// records are new rows of table record, by column.
type records struct {
	sid, seq, time []int64
	typ, agent     []string
	trace          []int16
	data           [][]byte
}

// need is what a call wants of a transaction.
type need struct {
	session string
	create  bool // the session is to have a row
}

const clock = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

// lock locks rows in the order of their ids, so that transactions wait for each other in one
// order, and reads them. begin opens the transaction with it.
func (t *tx) lock(begin bool, needs []need) error {
	var all, create []string
	for _, n := range needs {
		if n.session == "" {
			continue
		}
		all = append(all, n.session)
		if n.create {
			create = append(create, n.session)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	b := &pgx.Batch{}
	if begin {
		b.Queue("BEGIN")
	}
	if len(create) > 0 {
		slices.Sort(create)
		b.Queue("INSERT INTO session (id, version) SELECT id, $2 FROM unnest($1::text[]) AS id ON CONFLICT DO NOTHING", slices.Compact(create), t.s.losses.Load()*versions)
	}
	if len(all) > 0 {
		b.Queue("SELECT "+stateColumns+" FROM session WHERE id = ANY($1) ORDER BY id FOR UPDATE", all).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				st, err := scanState(rows)
				if err != nil {
					return err
				}
				t.states[st.id] = st
			}
			return rows.Err()
		})
	}
	floor := t.s.clock.floor()
	b.Queue(clock).QueryRow(func(row pgx.Row) error {
		var wall int64
		if err := row.Scan(&wall); err != nil {
			return err
		}
		for _, st := range t.states { // other processes' times
			floor = max(floor, st.updated, st.expires-st.ttl)
		}
		t.now = t.s.clock.at(wall+t.s.offset(), floor)
		return nil
	})
	return t.c.SendBatch(t.ctx, b).Close()
}

// heard is a time that other processes have given out, to within ten seconds.
const heard = "SELECT " + listPrecisionText + " * coalesce((SELECT listed FROM session WHERE listed IS NOT NULL AND NOT hidden ORDER BY listed DESC LIMIT 1), 0)"

// time asks for the time.
func (s *Store) time(ctx context.Context, c *pgx.Conn) (int64, error) {
	floor := s.clock.floor()
	var wall, other int64
	err := c.QueryRow(ctx, "SELECT ("+clock+"), ("+heard+")").Scan(&wall, &other)
	if err != nil {
		return 0, err
	}
	return s.clock.at(wall+s.offset(), max(floor, other)), nil
}

// existing returns the row of a session that exists.
func (t *tx) existing(id string) (*state, error) {
	if st := t.states[id]; st != nil && st.alive {
		return st, nil
	}
	return nil, spool.ErrNotFound.With(id, nil)
}

// touch notes that a row has changed.
func (t *tx) touch(st *state) {
	if !st.touched {
		st.touched = true
		st.version++
		t.order = append(t.order, st)
	}
}

// create makes the session exist, after the tombstone if there is one. An existing one
// keeps its principal, and stays hidden or visible.
func (t *tx) create(st *state, principal string, hidden bool) {
	if !st.alive {
		old := st.head
		if old.Incarnation == 0 {
			old = t.s.blank()
		}
		st.alive = true
		st.head = contract.Created(old, principal, hidden)
		st.row = spool.Row{Status: chunk.StatusEnded, Principal: principal}
		st.updated = t.now
	}
	t.touch(st)
}

// checkPrincipal is [contract.CheckPrincipal], if the session exists.
func (st *state) checkPrincipal(same bool, principal string) error {
	if !st.alive {
		return nil
	}
	return contract.CheckPrincipal(same, principal, &st.head, st.id)
}

// readyAt returns the time from which the session can be claimed.
func (st *state) readyAt() int64 {
	if !st.alive {
		return contract.Never
	}
	return contract.ReadyAt(&st.head, st.expires)
}

// listPrecision is how exactly the indexes of listings know when a session was updated,
// in milliseconds.
const (
	listPrecision     = 10_000
	listPrecisionText = "10000"
)

// renew extends the lease, if it was not released. An extension by less than a
// thirty-second of the TTL is not worth an update of the index.
func (st *state) renew(now int64) {
	if st.owner != "" && now+st.ttl-st.expires >= st.ttl/32 {
		st.expires = now + st.ttl
	}
}

// release ends the lease.
func (st *state) release() { st.claim, st.owner, st.ttl, st.expires = "", "", 0, 0 }

func (st *state) forgetWriters() { st.writers, st.forget = 0, true }

// add stores a record of the session.
func (t *tx) add(st *state, r *chunk.Record) {
	t.rows.sid, t.rows.seq = append(t.rows.sid, st.sid), append(t.rows.seq, int64(r.Seq))
	t.rows.add(r)
	st.bytes += int64(len(r.Data))
}

func (x *records) add(r *chunk.Record) {
	x.typ, x.agent, x.time = append(x.typ, string(r.Type)), append(x.agent, r.Agent), append(x.time, r.Time)
	x.trace, x.data = append(x.trace, int16(r.Class)), append(x.data, nonNil(r.Data))
}

const insertRecords = "INSERT INTO record (sid, seq, type, agent, time, trace, data) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::smallint[], $7::bytea[])"

// commit writes all that was changed, and tells this process's and the others' waiters.
func (t *tx) commit() error {
	b := &pgx.Batch{}
	if x := &t.rows; len(x.sid) > 0 {
		b.Queue(insertRecords, x.sid, x.seq, x.typ, x.agent, x.time, x.trace, x.data)
	}
	if len(t.order) > 0 {
		t.save(b)
	}
	b.QueuedQueries = append(b.QueuedQueries, t.last.QueuedQueries...)
	for _, payload := range t.notes() {
		b.Queue("SELECT pg_notify($1, $2)", t.s.channel, payload)
	}
	b.Queue("COMMIT")
	t.sent = true
	if err := t.c.SendBatch(t.ctx, b).Close(); err != nil {
		return err
	}
	t.s.committed(t)
	return nil
}

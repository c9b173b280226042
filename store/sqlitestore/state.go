package sqlitestore

import (
	"database/sql/driver"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

// headRow is the part of a session's row that says what its head is.
type headRow struct {
	alive   bool
	head    spool.Head // Epoch and Incarnation also of a tombstone
	version int64      // grows with each commit that changes the row
}

// state is a session's row, as the writer holds it.
type state struct {
	headRow
	sid     int64 // 0: not stored yet
	id      string
	command uint64
	row     spool.Row
	updated int64
	bytes   int64

	claim   string // the ID of the lease's claim
	owner   string // "" when released or never claimed; see life for the leases bound to a process
	ttl     int64
	expires int64

	traceTrimmed, trimmed uint64
	claimable             int64 // readyAt when the row was last stored
	// As stored, of the indexed columns.
	ready     int64
	principal string
	status    chunk.Status
	listed    int64
	claimed   string

	writers map[string]*written // nil: not loaded
	touched bool
	dirty   bool
}

type written struct {
	ordinal, first, last uint64
	dirty                bool
}

const never = contract.Never

// Most reads of a row need its head alone, and a column that is not asked for
// costs nothing.
const headColumns = "alive, seq, incarnation, trace_floor, floor, epoch, status, due, version, principal, pending, hidden"

const stateColumns = `sid, id, alive, seq, incarnation, trace_floor, floor, epoch, status, due, last_command,
 agent, principal, title, updated, lease_owner, lease_ttl, lease_expires, trace_trimmed, trimmed, ready, version, pending, hidden, lease_claim, bytes`

// scanState reads stateColumns.
func scanState(row []driver.Value) *state {
	n := func(i int) int64 { v, _ := row[i].(int64); return v }
	u := func(i int) uint64 { return uint64(n(i)) }
	s := func(i int) string { v, _ := row[i].(string); return v }
	st := &state{
		headRow: headRow{
			alive: n(2) == 1,
			head: spool.Head{
				Seq: u(3), Incarnation: u(4), TraceFloor: u(5), Floor: u(6), Epoch: u(7),
				Status: chunk.Status(s(8)), Due: n(9), Principal: s(12), Pending: n(22) == 1, Hidden: n(23) == 1,
			},
			version: n(21),
		},
		sid: n(0), id: s(1), command: u(10),
		row:     spool.Row{Status: chunk.Status(s(8)), Agent: s(11), Principal: s(12), Title: s(13)},
		updated: n(14), bytes: n(25), claim: s(24), owner: s(15), ttl: n(16), expires: n(17),
		traceTrimmed: u(18), trimmed: u(19), ready: never,
	}
	if v, ok := row[20].(int64); ok {
		st.ready = v
	}
	st.claimable = st.readyAt()
	st.principal, st.status, st.listed = st.row.Principal, st.head.Status, st.listedAt()
	st.claimed = st.claim
	return st
}

// loadState returns a session's row, or nil.
func loadState(c *conn, id string) (st *state, err error) {
	err = c.query(func(row []driver.Value) error {
		st = scanState(row)
		return nil
	}, "SELECT "+stateColumns+" FROM session WHERE id = +?", id)
	return st, err
}

// loadHead is loadState for the head alone.
func loadHead(c *conn, id string) (h *headRow, err error) {
	err = c.query(func(row []driver.Value) error {
		n := func(i int) int64 { v, _ := row[i].(int64); return v }
		u := func(i int) uint64 { return uint64(n(i)) }
		status, _ := row[6].(string)
		principal, _ := row[9].(string)
		h = &headRow{
			alive: n(0) == 1,
			head: spool.Head{
				Seq: u(1), Incarnation: u(2), TraceFloor: u(3), Floor: u(4), Epoch: u(5),
				Status: chunk.Status(status), Due: n(7), Principal: principal, Pending: n(10) == 1, Hidden: n(11) == 1,
			},
			version: n(8),
		}
		return nil
	}, "SELECT "+headColumns+" FROM session WHERE id = +?", id)
	return h, err
}

// session returns the row of a session, which may be new, blank or a tombstone.
func (t *tx) session(id string) (*state, error) {
	if st := t.w.cache[id]; st != nil {
		return st, nil
	}
	st, err := loadState(t.c, id)
	if err != nil {
		return nil, err
	}
	if st == nil {
		st = &state{id: id, ready: never, claimable: never}
	}
	t.now = t.w.s.clock.After(st.heard())
	t.w.cache[id] = st
	return st, nil
}

// existing is session, but fails with ErrNotFound.
func (t *tx) existing(id string) (*state, error) {
	st, err := t.session(id)
	if err == nil && !st.alive {
		err = spool.ErrNotFound.With(id, nil)
	}
	return st, err
}

// touch notes that a row has changed.
func (t *tx) touch(st *state) {
	st.dirty = true
	if !st.touched {
		st.touched = true
		st.version++
		t.touched = append(t.touched, st)
	}
}

// identify makes the row of a new session, which records and blobs need.
func (t *tx) identify(st *state) error {
	if st.sid != 0 {
		return nil
	}
	t.touch(st)
	return t.save(st)
}

// checkPrincipal is [contract.CheckPrincipal], if the session exists.
func (st *state) checkPrincipal(same bool, principal string) error {
	if !st.alive {
		return nil
	}
	return contract.CheckPrincipal(same, principal, &st.head, st.id)
}

// create makes the session exist, after the tombstone if there is one. An existing one
// keeps its principal, and stays hidden or visible. The caller then changes it.
func (t *tx) create(st *state, principal string, hidden bool) error {
	if !st.alive {
		st.alive = true
		st.head = contract.Created(st.head, principal, hidden)
		st.row = spool.Row{Status: chunk.StatusEnded, Principal: principal}
		st.updated = t.now
	}
	err := t.identify(st)
	t.touch(st)
	return err
}

// heard is the latest time of the store's clock that the row tells.
func (st *state) heard() int64 { return max(st.updated, st.expires-st.ttl) }

// readyAt returns the time from which the session can be claimed.
func (st *state) readyAt() int64 {
	if !st.alive {
		return never
	}
	return contract.ReadyAt(&st.head, st.expires)
}

// listPrecision is how exactly the indexes of listings know when a session was updated,
// in milliseconds.
const listPrecision = 10_000

// listedAt returns the place of the session in the indexes of listings, never if it does
// not exist.
func (st *state) listedAt() int64 {
	if !st.alive {
		return never
	}
	return st.updated / listPrecision
}

// number is a flag as it is stored.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// renew extends the lease, if it was not released.
func (st *state) renew(now int64) {
	if st.owner != "" {
		st.expires = now + st.ttl
	}
}

// release ends the lease.
func (st *state) release() { st.claim, st.owner, st.ttl, st.expires = "", "", 0, 0 }

// update names no indexed column: SQLite writes the index pages of all named columns,
// even if the values are unchanged, and nearly every append is an update.
const update = `UPDATE session SET alive = ?, seq = ?, incarnation = ?, trace_floor = ?, floor = ?, epoch = ?,
 due = ?, last_command = ?, pending = ?, hidden = ?, agent = ?, title = ?, updated = ?, lease_owner = ?, lease_ttl = ?,
 lease_expires = ?, trace_trimmed = ?, trimmed = ?, version = ?, bytes = ?`

// save writes a row if it is dirty.
func (t *tx) save(st *state) error {
	if !st.dirty {
		return nil
	}
	claimable := st.readyAt()
	if claimable < st.claimable {
		t.sooner++
	}
	ready := st.indexReady(claimable)
	listed := st.listedAt()
	indexed := ready != st.ready || st.row.Principal != st.principal || st.head.Status != st.status || listed != st.listed || st.claim != st.claimed
	st.claimable, st.ready, st.principal, st.status, st.listed = claimable, ready, st.row.Principal, st.head.Status, listed
	st.claimed = st.claim
	h := &st.head
	values := []driver.Value{
		number(st.alive), int64(h.Seq), int64(h.Incarnation), int64(h.TraceFloor), int64(h.Floor), int64(h.Epoch),
		h.Due, int64(st.command), number(h.Pending), number(h.Hidden), st.row.Agent, st.row.Title, st.updated,
		st.owner, st.ttl, st.expires, int64(st.traceTrimmed), int64(st.trimmed), st.version, st.bytes,
	}
	switch {
	case st.sid == 0:
		if err := t.c.exec(`INSERT INTO session (alive, seq, incarnation, trace_floor, floor, epoch, due, last_command, pending, hidden,
 agent, title, updated, lease_owner, lease_ttl, lease_expires, trace_trimmed, trimmed, version, bytes, id, principal, status, ready, listed, lease_claim)
 VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`, append(values, st.id, st.row.Principal, string(h.Status), orNull(ready), orNull(listed), st.claim)...); err != nil {
			return err
		}
		sid, err := t.c.number("SELECT last_insert_rowid()")
		if err != nil {
			return err
		}
		st.sid = sid
	case indexed:
		if err := t.c.exec(update+", principal = ?, status = ?, ready = ?, listed = ?, lease_claim = ? WHERE sid = +?",
			append(values, st.row.Principal, string(h.Status), orNull(ready), orNull(listed), st.claim, st.sid)...); err != nil {
			return err
		}
	default:
		if err := t.c.exec(update+" WHERE sid = +?", append(values, st.sid)...); err != nil {
			return err
		}
	}
	for name, w := range st.writers {
		if !w.dirty {
			continue
		}
		if err := t.c.exec("INSERT OR REPLACE INTO writer (sid, name, ordinal, first, last) VALUES (?,?,?,?,?)",
			st.sid, name, int64(w.ordinal), int64(w.first), int64(w.last)); err != nil {
			return err
		}
		w.dirty = false
	}
	st.dirty = false
	return nil
}

// indexReady returns what to store as ready for a session that can be claimed at a time. Each
// append renews a lease, and only every quarter of a TTL is that worth an update of the index.
// In between, ready is earlier than the end of the lease, which claims look at as well.
func (st *state) indexReady(at int64) int64 {
	if at == st.expires && at >= st.ready && at-st.ready < st.ttl/4 {
		return st.ready
	}
	return at
}

// orNull returns NULL for never.
func orNull(at int64) driver.Value {
	if at == never {
		return nil
	}
	return at
}

// loadWriters fetches the last append of each writer under the latest epoch.
func (t *tx) loadWriters(st *state) error {
	if st.writers != nil {
		return nil
	}
	st.writers = map[string]*written{}
	return t.c.query(func(row []driver.Value) error {
		n := func(i int) uint64 { v, _ := row[i].(int64); return uint64(v) }
		name, _ := row[0].(string)
		st.writers[name] = &written{ordinal: n(1), first: n(2), last: n(3)}
		return nil
	}, "SELECT name, ordinal, first, last FROM writer WHERE sid = +?", st.sid)
}

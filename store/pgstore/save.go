package pgstore

import (
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sessions are rows of table session, by column: one statement writes all that a transaction
// has changed.
type sessions struct {
	texts [len(textColumns)][]string
	flags [len(flagColumns)][]bool
	ints  [len(intColumns)][]int64
}

var (
	textColumns = [...]string{"id", "status", "principal", "agent", "title", "lease_claim", "lease_owner"}
	flagColumns = [...]string{"alive", "pending", "hidden"}
	intColumns  = [...]string{"seq", "incarnation", "trace_floor", "floor", "epoch", "due", "version", "sid", "last_command", "updated", "bytes",
		"lease_ttl", "lease_expires", "ready", "trace_trimmed", "trimmed", "writers"}
)

var saveSessions = func() string {
	var set, args, names []string
	add := func(columns []string, typ string) {
		for _, c := range columns {
			names = append(names, c)
			args = append(args, "$"+strconv.Itoa(len(args)+1)+"::"+typ+"[]")
			switch c {
			case "id":
			case "ready":
				set = append(set, "ready = nullif(v.ready, 9223372036854775807)")
			default:
				set = append(set, c+" = v."+c)
			}
		}
	}
	add(textColumns[:], "text")
	add(flagColumns[:], "boolean")
	add(intColumns[:], "bigint")
	return "UPDATE session AS s SET " + strings.Join(set, ", ") + ", listed = CASE WHEN v.alive THEN v.updated / " + listPrecisionText +
		" END FROM unnest(" + strings.Join(args, ", ") + ") AS v (" + strings.Join(names, ", ") + ") WHERE s.id = v.id"
}()

// add takes a row that can be claimed from the time ready on.
func (x *sessions) add(st *state, ready int64) {
	h := &st.head
	for i, v := range [len(textColumns)]string{st.id, string(h.Status), h.Principal, st.row.Agent, st.row.Title, st.claim, st.owner} {
		x.texts[i] = append(x.texts[i], v)
	}
	for i, v := range [len(flagColumns)]bool{st.alive, h.Pending, h.Hidden} {
		x.flags[i] = append(x.flags[i], v)
	}
	for i, v := range [len(intColumns)]int64{int64(h.Seq), int64(h.Incarnation), int64(h.TraceFloor), int64(h.Floor), int64(h.Epoch), h.Due,
		st.version, st.sid, int64(st.command), st.updated, st.bytes, st.ttl, st.expires, ready, int64(st.traceTrimmed), int64(st.trimmed), int64(st.writers)} {
		x.ints[i] = append(x.ints[i], v)
	}
}

func (x *sessions) args() (all []any) {
	for _, c := range x.texts {
		all = append(all, c)
	}
	for _, c := range x.flags {
		all = append(all, c)
	}
	for _, c := range x.ints {
		all = append(all, c)
	}
	return all
}

// save queues the statements that write the rows that were changed.
func (t *tx) save(b *pgx.Batch) {
	var rows sessions
	var forget []int64
	for _, st := range t.order {
		ready := st.readyAt()
		if ready < st.ready {
			t.sooner++
		}
		rows.add(st, ready)
		if st.forget {
			forget = append(forget, st.sid)
		}
	}
	if len(forget) > 0 {
		b.Queue("DELETE FROM writer WHERE sid = ANY($1)", forget)
	}
	b.Queue(saveSessions, rows.args()...)
}

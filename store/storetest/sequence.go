package storetest

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: under any sequence of calls a store does what a page of obvious code
// does.
var modelChecks = []check{
	{"AnySequenceOfCalls", func(t *testing.T, x *suite) {
		// All sequences go to one store, each to sessions of its own, until one fails.
		var s spool.Store
		n := 0
		rapid.Check(t, func(rt *rapid.T) {
			if rapid.IntRange(0, x.stride(t)-1).Draw(rt, "stride") > 0 {
				return
			}
			if s == nil {
				s = x.open(t)
			}
			n++
			m := &machine{T: rt, t: t, x: x, s: s, prefix: strconv.Itoa(n), logs: map[string]*logModel{}}
			s = nil
			actions := map[string]func(*rapid.T){
				"command": m.command,
				"claim":   m.claim,
				"append":  m.append,
				"repeat":  m.repeat,
				"lease":   m.lease,
				"read":    m.read,
				"":        m.check,
			}
			if _, ok := m.s.(spool.Trimmer); ok {
				actions["trim"], actions["delete"] = m.trim, m.delete
			}
			if x.Reopen != nil {
				actions["reopen"] = m.reopen
			}
			rt.Repeat(actions)
			s = m.s
		})
		if s != nil {
			closeStore(t, s)
		}
	}},
}

type machine struct {
	*rapid.T
	t     *testing.T
	x     *suite
	s     spool.Store
	count int

	logs   map[string]*logModel
	prefix string // of a log's name in the store
}

func (m *machine) pick(rt *rapid.T) (session string, l *logModel) {
	id := rapid.SampledFrom([]string{"a", "a.1", "é"}).Draw(rt, "session")
	if m.logs[id] == nil {
		m.logs[id] = &logModel{}
	}
	return m.prefix + id, m.logs[id]
}

// do makes a call and compares the answer with the model's.
func (m *machine) do(l *logModel, c call) {
	a := c.do(m.t.Context(), m.s)
	next, err := l.step(&c, &a)
	if err != nil {
		m.Fatalf("%s: %v", describe(&c), err)
	}
	*l = next
}

func (m *machine) who(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(rt, "principal")
}

func (m *machine) batch(rt *rapid.T, least int) []chunk.Record {
	n := rapid.IntRange(least, 25).Draw(rt, "records")
	out := make([]chunk.Record, n)
	for i := range out {
		class := chunk.Kept
		if rapid.Bool().Draw(rt, "trace") {
			class = chunk.Trace
		}
		m.count++
		out[i] = rec(class, fmt.Sprint("r", m.count))
	}
	return out
}

func (m *machine) command(rt *rapid.T) {
	id, l := m.pick(rt)
	m.do(l, call{append: &spool.Append{Session: id, SamePrincipal: rapid.Bool().Draw(rt, "same principal"), Records: m.batch(rt, 1), Row: spool.Row{Principal: m.who(rt)}}})
}

func (m *machine) claim(rt *rapid.T) {
	id, l := m.pick(rt)
	m.do(l, call{claim: &spool.Claim{
		ID: rapid.SampledFrom([]string{"", "c1", "c2"}).Draw(rt, "claim"), Owner: "o", TTL: time.Hour,
		Session: id, Force: rapid.Bool().Draw(rt, "force"),
		SamePrincipal: rapid.Bool().Draw(rt, "same principal"), Principal: m.who(rt),
	}})
}

func (m *machine) append(rt *rapid.T) {
	id, l := m.pick(rt)
	a := spool.Append{Session: id, Epoch: max(l.head.Epoch, 1), Writer: "w", Records: m.batch(rt, 0), Ordinal: l.ordinal + 1}
	a.Row.Principal = m.who(rt) // ignored: the session exists
	a.Row.Status = rapid.SampledFrom([]chunk.Status{"", chunk.StatusActive, chunk.StatusPaused, chunk.StatusEnded}).Draw(rt, "status")
	if rapid.Bool().Draw(rt, "settles") {
		a.Settle = &spool.Settle{Seen: rapid.Uint64Range(0, l.head.Seq).Draw(rt, "seen"), Next: int64(rapid.IntRange(0, 1).Draw(rt, "next"))}
	}
	m.do(l, call{append: &a})
}

// repeat appends under an ordinal that was used: the last one, or an earlier one.
func (m *machine) repeat(rt *rapid.T) {
	id, l := m.pick(rt)
	if l.ordinal == 0 || !l.exists {
		return
	}
	m.do(l, call{append: &spool.Append{Session: id, Epoch: l.head.Epoch, Writer: "w", Records: m.batch(rt, 0),
		Ordinal: l.ordinal - rapid.Uint64Range(0, l.ordinal-1).Draw(rt, "earlier")}})
}

// epoch draws one that is not that of the latest claim, or any if there is none.
func (m *machine) epoch(rt *rapid.T, l *logModel) uint64 {
	epoch := rapid.Uint64Range(1, l.head.Epoch+2).Draw(rt, "epoch")
	if l.exists && epoch == l.head.Epoch {
		return epoch + 1
	}
	return epoch
}

// lease appends under a lease that is not the latest one, or renews or releases one.
func (m *machine) lease(rt *rapid.T) {
	id, l := m.pick(rt)
	lease := &spool.Lease{Session: id, Epoch: max(l.head.Epoch, 1), Owner: "o", TTL: time.Hour}
	what := rapid.IntRange(0, 2).Draw(rt, "what")
	if what == 0 || rapid.IntRange(0, 3).Draw(rt, "another's") == 0 {
		lease.Epoch = m.epoch(rt, l)
	}
	switch what {
	case 0:
		m.do(l, call{append: &spool.Append{Session: id, Epoch: lease.Epoch, Writer: "w", Ordinal: 1, Records: m.batch(rt, 1)}})
	case 1:
		m.do(l, call{renew: lease})
	default:
		m.do(l, call{release: lease})
	}
}

func (m *machine) trim(rt *rapid.T) {
	id, l := m.pick(rt)
	floor := rapid.Uint64Range(0, l.head.Seq+3)
	m.do(l, call{session: id, trim: &[2]uint64{floor.Draw(rt, "traceFloor"), floor.Draw(rt, "floor")}})
}

func (m *machine) delete(rt *rapid.T) {
	id, l := m.pick(rt)
	m.do(l, call{session: id, delete: true})
}

func (m *machine) read(rt *rapid.T) {
	id, l := m.pick(rt)
	after, n := rapid.Uint64Range(0, l.head.Seq+1).Draw(rt, "after"), rapid.IntRange(1, 30).Draw(rt, "max")
	for _, c := range []readCall{
		{after: after, max: n},
		{q: &spool.KeptQuery{After: after, Max: n}},
		{q: &spool.KeptQuery{Before: after, Max: n, Backwards: true}},
	} {
		m.do(l, call{session: id, read: &c})
	}
}

// reopen takes long, so it happens about once in a sequence.
func (m *machine) reopen(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "reopens") == 0 {
		m.s = m.x.Reopen(m.t, m.s)
	}
}

// check runs after every step.
func (m *machine) check(*rapid.T) {
	lister, lists := m.s.(spool.Lister)
	for id, l := range m.logs {
		m.do(l, call{session: m.prefix + id, head: true})
		if !lists || !l.exists {
			continue
		}
		if i, err := lister.Session(m.t.Context(), m.prefix+id); err != nil || i.Bytes != int64(size(l.records)) {
			m.Fatalf("%s: %d bytes, %v; want %d", id, i.Bytes, err, size(l.records))
		}
	}
}

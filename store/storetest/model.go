package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

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
				"stale":   m.stale,
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

// logModel is a log as obvious code keeps it.
type logModel struct {
	exists  bool
	head    spool.Head // Due: 0 or 1, for whether it is set
	records []chunk.Record
	command uint64
	ordinal uint64
	last    *spool.Append
	lastRes spool.Appended
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

// create makes a session exist: its incarnation and epoch grow to these, or further than
// those of a session that was deleted.
func (l *logModel) create(principal string, incarnation, epoch uint64) {
	if l.exists {
		return
	}
	old := l.head
	l.exists = true
	l.head = spool.Head{Incarnation: max(incarnation, old.Incarnation+1), Status: chunk.StatusEnded, Principal: principal}
	if old.Incarnation > 0 {
		l.head.Epoch = max(epoch, old.Epoch+1)
	}
}

func (m *machine) who(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(rt, "principal")
}

// foreign reports whether a call for a principal's session must be refused, since it is
// another's.
func (m *machine) foreign(l *logModel, same bool, who string, err error) bool {
	foreign := same && l.exists && l.head.Principal != who
	if foreign && !errors.Is(err, spool.ErrExists) {
		m.Fatalf("%q wrote into %q's session: %v", who, l.head.Principal, err)
	}
	return foreign
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

func (l *logModel) add(rs []chunk.Record) (first, last uint64) {
	first = l.head.Seq + 1
	for _, r := range rs {
		l.head.Seq++
		r.Seq = l.head.Seq
		l.records = append(l.records, r)
	}
	return first, l.head.Seq
}

func (m *machine) command(rt *rapid.T) {
	id, l := m.pick(rt)
	rs := m.batch(rt, 1)
	who := m.who(rt)
	a := spool.Append{Session: id, SamePrincipal: rapid.Bool().Draw(rt, "same principal"), Records: rs, Row: spool.Row{Principal: who}}
	res, err := m.s.Append(m.t.Context(), a)
	if m.foreign(l, a.SamePrincipal, who, err) {
		return
	}
	l.create(who, res.Head.Incarnation, res.Head.Epoch)
	first, last := l.add(rs)
	l.command, l.head.Due, l.head.Pending = last, 1, true
	m.result(res, err, first, last, l)
}

func (m *machine) result(res spool.Appended, err error, first, last uint64, l *logModel) {
	if err != nil || res.First != first || res.Last != last || res.Repeated || plain(res.Head) != l.head {
		m.Fatalf("append gave %+v, %v; want %d to %d, head %+v", res, err, first, last, l.head)
	}
}

// plain makes a head comparable with a model's, which knows no clock.
func plain(h spool.Head) spool.Head {
	h.Due = min(h.Due, 1)
	return h
}

func (m *machine) claim(rt *rapid.T) {
	id, l := m.pick(rt)
	who := m.who(rt)
	c := spool.Claim{Owner: "o", Session: id, Force: true, SamePrincipal: rapid.Bool().Draw(rt, "same principal"), Principal: who}
	lease, err := m.s.(spool.Leaser).Claim(m.t.Context(), c)
	if m.foreign(l, c.SamePrincipal, who, err) {
		return
	}
	l.create(who, lease.Head.Incarnation, 0)
	l.head.Epoch = max(lease.Epoch, l.head.Epoch+1)
	l.ordinal, l.last = 0, nil
	if err != nil || lease.Epoch != l.head.Epoch || plain(lease.Head) != l.head {
		m.Fatalf("claim gave %+v, %v; want head %+v", lease, err, l.head)
	}
}

func (m *machine) append(rt *rapid.T) {
	id, l := m.pick(rt)
	a := spool.Append{Session: id, Epoch: max(l.head.Epoch, 1), Writer: "w", Records: m.batch(rt, 0)}
	a.Ordinal = l.ordinal + 1
	a.Row.Principal = m.who(rt) // ignored: the session exists
	a.Row.Status = rapid.SampledFrom([]chunk.Status{"", chunk.StatusActive, chunk.StatusPaused, chunk.StatusEnded}).Draw(rt, "status")
	if rapid.Bool().Draw(rt, "settles") {
		a.Settle = &spool.Settle{Seen: rapid.Uint64Range(0, l.head.Seq).Draw(rt, "seen"), Next: int64(rapid.IntRange(0, 1).Draw(rt, "next"))}
	}
	res, err := m.s.Append(m.t.Context(), a)
	if !l.exists || l.head.Epoch == 0 {
		if !errors.Is(err, spool.ErrSuperseded) {
			m.Fatalf("append without a claim: %+v, %v", res, err)
		}
		return
	}
	first, last := l.add(a.Records)
	if a.Row.Status != "" {
		l.head.Status = a.Row.Status
	}
	if a.Settle != nil && l.command <= a.Settle.Seen {
		l.head.Due, l.head.Pending = a.Settle.Next, false
	}
	l.ordinal++
	l.last, l.lastRes = &a, res
	m.result(res, err, first, last, l)
}

func (m *machine) repeat(rt *rapid.T) {
	_, l := m.pick(rt)
	if l.last == nil || !l.exists {
		return
	}
	res, err := m.s.Append(m.t.Context(), *l.last)
	if err != nil || !res.Repeated || res.First != l.lastRes.First || res.Last != l.lastRes.Last || plain(res.Head) != l.head {
		m.Fatalf("repeat gave %+v, %v; first %+v, head %+v", res, err, l.lastRes, l.head)
	}
}

func (m *machine) stale(rt *rapid.T) {
	id, l := m.pick(rt)
	epoch := rapid.Uint64Range(1, l.head.Epoch+2).Draw(rt, "epoch")
	if l.exists && epoch == l.head.Epoch {
		return
	}
	res, err := m.s.Append(m.t.Context(), spool.Append{Session: id, Epoch: epoch, Writer: "w", Ordinal: 1, Records: m.batch(rt, 1)})
	if !errors.Is(err, spool.ErrSuperseded) {
		m.Fatalf("append under epoch %d of %d: %+v, %v", epoch, l.head.Epoch, res, err)
	}
}

func (m *machine) trim(rt *rapid.T) {
	id, l := m.pick(rt)
	traceFloor, floor := rapid.Uint64Range(0, l.head.Seq+3).Draw(rt, "traceFloor"), rapid.Uint64Range(0, l.head.Seq+3).Draw(rt, "floor")
	err := m.s.(spool.Trimmer).Trim(m.t.Context(), id, traceFloor, floor)
	if !l.exists {
		if !errors.Is(err, spool.ErrNotFound) {
			m.Fatalf("trim of nothing: %v", err)
		}
		return
	}
	if err != nil {
		m.Fatalf("trim: %v", err)
	}
	h := &l.head
	h.Floor = max(h.Floor, min(floor, h.Seq))
	h.TraceFloor = max(h.TraceFloor, min(traceFloor, h.Seq), h.Floor)
	l.records = slices.DeleteFunc(l.records, func(r chunk.Record) bool {
		return r.Seq <= h.Floor || r.Seq <= h.TraceFloor && r.Class == chunk.Trace
	})
}

func (m *machine) delete(rt *rapid.T) {
	id, l := m.pick(rt)
	err := m.s.(spool.Trimmer).Delete(m.t.Context(), id)
	if !l.exists {
		if !errors.Is(err, spool.ErrNotFound) {
			m.Fatalf("delete of nothing: %v", err)
		}
		return
	}
	if err != nil {
		m.Fatalf("delete: %v", err)
	}
	*l = logModel{head: spool.Head{Epoch: l.head.Epoch, Incarnation: l.head.Incarnation}}
}

func (m *machine) read(rt *rapid.T) {
	id, l := m.pick(rt)
	after, n := rapid.Uint64Range(0, l.head.Seq+1).Draw(rt, "after"), rapid.IntRange(1, 30).Draw(rt, "max")
	var all, kept []chunk.Record
	for _, r := range l.records {
		if r.Seq > after {
			all = append(all, r)
			if r.Class == chunk.Kept {
				kept = append(kept, r)
			}
		}
	}
	rs, h, err := m.s.Read(m.t.Context(), id, after, n)
	m.at("Read", h, l)
	m.records("Read", rs, err, all, n, after < l.head.TraceFloor)
	rs, h, err = m.s.ReadKept(m.t.Context(), id, spool.KeptQuery{After: after, Max: n})
	m.at("ReadKept", h, l)
	m.records("ReadKept", rs, err, kept, n, after < l.head.Floor)

	var back []chunk.Record
	for _, r := range slices.Backward(l.records) {
		if r.Class == chunk.Kept && (after == 0 || r.Seq < after) {
			back = append(back, r)
		}
	}
	rs, h, err = m.s.ReadKept(m.t.Context(), id, spool.KeptQuery{Before: after, Max: n, Backwards: true})
	m.at("ReadKept backwards", h, l)
	m.records("ReadKept backwards", rs, err, back, n, false)
}

// at checks the head that came with records, also with an error.
func (m *machine) at(what string, got spool.Head, l *logModel) {
	want := l.head
	if !l.exists {
		want = spool.Head{}
	}
	if got.Due != 0 && want.Due != 0 {
		got.Due = want.Due // the store's clock
	}
	if got != want {
		m.Fatalf("%s says that the head is %+v, want %+v", what, got, want)
	}
}

func (m *machine) records(what string, got []chunk.Record, err error, want []chunk.Record, n int, trimmed bool) {
	if trimmed {
		if !errors.Is(err, spool.ErrTrimmed) || len(got) > 0 {
			m.Fatalf("%s below the floor: %d records, %v", what, len(got), err)
		}
		return
	}
	want = want[:min(len(want), n)]
	if err != nil || !slices.EqualFunc(got, want, sameRecord) {
		m.Fatalf("%s: %v, %v; want %v", what, texts(got), err, texts(want))
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
	for id, l := range m.logs {
		h, err := m.s.Head(m.t.Context(), m.prefix+id)
		if !l.exists {
			if !errors.Is(err, spool.ErrNotFound) {
				m.Fatalf("%s: head of nothing: %+v, %v", id, h, err)
			}
		} else if err != nil || plain(h) != l.head {
			m.Fatalf("%s: head %+v, %v; want %+v", id, h, err, l.head)
		} else if lister, ok := m.s.(spool.Lister); ok {
			if i, err := lister.Session(m.t.Context(), m.prefix+id); err != nil || i.Bytes != int64(sizeOf(l.records)) {
				m.Fatalf("%s: %d bytes, %v; want %d", id, i.Bytes, err, sizeOf(l.records))
			}
		}
	}
}

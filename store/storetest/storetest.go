// Package storetest is the suite that every driver of [spool.Store] passes. Its
// files are named after the promises they check.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) spool.Store { return open(t) }, storetest.Options{…})
//	}
//
// Roles that a store offers are found by type assertion and checked; those it
// does not offer are not asked for, except [spool.Leaser], without which
// nothing can own a session.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/matrix"
)

// Factory opens an empty store and closes it with t's cleanup. Checks run in
// parallel, so several of them call it at once.
type Factory func(t testing.TB) spool.Store

// Options says what else can be done with a driver's stores. Every field is a
// promise to be checked; nil means that the driver does not make it.
type Options struct {
	// Reopen closes s and opens the same data again.
	Reopen func(t testing.TB, s spool.Store) spool.Store
	// Advance moves the clock of s forward, or back if d is negative. Every driver whose
	// clock can be set must have it: without it leases are left to expire on their own, and
	// the suite cannot tell what renews them.
	Advance func(s spool.Store, d time.Duration)
	// Location names the data of s for another process, which opens it through
	// the function given to [Main].
	Location func(s spool.Store) string
	// KnowsDead says that the leases of a process that was killed can be claimed at
	// once, if they were claimed with [spool.Claim].InProcess. It needs Location.
	KnowsDead bool
	// Another opens another instance on the data of s, with connections and caches of its
	// own, and with the clock of s; a store in memory returns s. Each check then spreads its
	// calls over three instances. It needs a store with all roles, but for
	// [spool.Prober].
	Another func(t testing.TB, s spool.Store) spool.Store
	// Rewind notes the state of the engine of s. The function that it returns sets the
	// engine back to it, as a promoted replica or a restored backup would, while s stays
	// connected; with Another, all instances do.
	Rewind func(t testing.TB, s spool.Store) (back func())
	// Notify delivers notifications of what other instances did to s so many times from now
	// on, until undo is called: 0 loses all, 2 doubles each. With Another, it is for all
	// instances.
	Notify func(t testing.TB, s spool.Store, times int) (undo func())
	// Break cuts s off from its engine and returns what mends the connection.
	Break func(t testing.TB, s spool.Store) (mend func())
	// Again is no promise. It says that stores of this driver which differ from
	// these in a setting only pass the whole suite in the same run. Under the race
	// detector, which makes an engine in Go ten times slower, the checks that try
	// many histories then try a quarter of them.
	Again bool
}

// watchdog ends a test that hangs; no test's outcome depends on it otherwise.
var watchdog = 10 * time.Minute

// suite is what each check gets.
type suite struct {
	Options
	open Factory
}

// stride says that one of so many histories is to be tried.
func (x *suite) stride(t testing.TB) int {
	if !x.Again {
		return 1
	}
	return matrix.Stride(t, 4)
}

type check struct {
	name string
	run  func(*testing.T, *suite)
}

// Run checks a driver.
func Run(t *testing.T, open Factory, options ...Options) {
	x := &suite{open: open}
	if len(options) > 0 {
		x.Options = options[0]
	}
	if x.Another != nil {
		x.spreadOut()
	}
	groups := []struct {
		name   string
		checks []check
	}{
		{"Order", orderChecks},
		{"Size", sizeChecks},
		{"Bounds", boundsChecks},
		{"Repeat", repeatChecks},
		{"Fence", fenceChecks},
		{"Command", commandChecks},
		{"Principal", principalChecks},
		{"Lease", leaseChecks},
		{"Read", readChecks},
		{"Wait", waitChecks},
		{"Prompt", promptChecks},
		{"Trim", trimChecks},
		{"List", listChecks},
		{"Hidden", hiddenChecks},
		{"Age", ageChecks},
		{"Keep", keepChecks},
		{"Import", importChecks},
		{"Life", lifeChecks},
		{"Model", modelChecks},
		{"Linear", linearChecks},
		{"Clock", clockChecks},
		{"Storm", stormChecks},
		{"Late", lateChecks},
		{"Cut", cutChecks},
		{"Rewind", rewindChecks},
		{"Process", append(processChecks, churnChecks...)},
		{"Dead", deadChecks},
		{"Logs", logChecks},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.checks {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(t, x)
				})
			}
		})
	}
}

// Clock is a clock that stands still until it is moved, for drivers that take
// one.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock returns a clock that shows the present.
func NewClock() *Clock { return &Clock{at: time.Now().Truncate(time.Millisecond)} }

// Now returns what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Advance moves the clock forward, or back if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// limit returns a context that ends when the test hangs.
func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), watchdog)
	t.Cleanup(cancel)
	return ctx
}

// rec returns a record whose text can be told from others.
func rec(class chunk.Class, text string) chunk.Record {
	typ := chunk.TypeUserMessage
	if class == chunk.Trace {
		typ = chunk.TypeTextDelta
	}
	data, _ := json.Marshal(map[string]string{"type": string(typ), "delta": text})
	return chunk.Record{Type: typ, Agent: "agent", Time: 1_700_000_000_000, Class: class, Data: data}
}

// recs returns n records "label/0", "label/1", …
func recs(class chunk.Class, label string, n int) []chunk.Record {
	out := make([]chunk.Record, n)
	for i := range out {
		out[i] = rec(class, fmt.Sprintf("%s/%d", label, i))
	}
	return out
}

// text returns what rec was given.
func text(r chunk.Record) string {
	var v struct{ Delta string }
	if err := json.Unmarshal(r.Data, &v); err != nil {
		return "not JSON: " + err.Error()
	}
	return v.Delta
}

// put appends and fails the test if it cannot.
func put(t testing.TB, s spool.Store, a spool.Append) spool.Appended {
	t.Helper()
	res, err := s.Append(limit(t), a)
	if err != nil {
		t.Fatalf("Append(%s, epoch %d, %q, %d, %d records): %v", a.Session, a.Epoch, a.Writer, a.Ordinal, len(a.Records), err)
	}
	return res
}

// command appends a command's record.
func command(t testing.TB, s spool.Store, session, label string) spool.Appended {
	t.Helper()
	return put(t, s, spool.Append{Session: session, Records: []chunk.Record{rec(chunk.Kept, label)}})
}

// leaser returns the store's role of that name.
func leaser(t testing.TB, s spool.Store) spool.Leaser {
	t.Helper()
	l, ok := s.(spool.Leaser)
	if !ok {
		t.Fatalf("%T is no spool.Leaser", s)
	}
	return l
}

// own claims a session by force for a minute.
func own(t testing.TB, s spool.Store, session, owner string) spool.Lease {
	t.Helper()
	l, err := leaser(t, s).Claim(limit(t), spool.Claim{Owner: owner, Session: session, TTL: time.Minute, Force: true})
	if err != nil {
		t.Fatalf("Claim(%s, by force): %v", session, err)
	}
	return l
}

func head(t testing.TB, s spool.Store, session string) spool.Head {
	t.Helper()
	h, err := s.Head(limit(t), session)
	if err != nil {
		t.Fatalf("Head(%s): %v", session, err)
	}
	return h
}

// log reads everything after a sequence in pages and checks the numbering.
func log(t testing.TB, s spool.Store, session string, after uint64, page int) []chunk.Record {
	t.Helper()
	var out []chunk.Record
	for {
		rs, _, err := s.Read(limit(t), session, after, page)
		if err != nil {
			t.Fatalf("Read(%s, after %d): %v", session, after, err)
		}
		if len(rs) > page {
			t.Fatalf("Read(%s, after %d, max %d) gave %d records", session, after, page, len(rs))
		}
		if len(rs) == 0 {
			return out
		}
		for _, r := range rs {
			if after++; r.Seq != after {
				t.Fatalf("Read(%s): record %d where %d is next", session, r.Seq, after)
			}
		}
		out = append(out, rs...)
	}
}

// keptLog reads all kept records after a sequence.
func keptLog(t testing.TB, s spool.Store, session string, after uint64, page int) []chunk.Record {
	t.Helper()
	var out []chunk.Record
	for {
		rs, _, err := s.ReadKept(limit(t), session, spool.KeptQuery{After: after, Max: page})
		if err != nil {
			t.Fatalf("ReadKept(%s, after %d): %v", session, after, err)
		}
		if len(rs) == 0 {
			return out
		}
		for _, r := range rs {
			if r.Seq <= after || r.Class != chunk.Kept {
				t.Fatalf("ReadKept(%s, after %d) gave %s record %d", session, after, r.Class, r.Seq)
			}
			after = r.Seq
		}
		out = append(out, rs...)
	}
}

// size returns how many bytes of Data the records have.
func size(rs []chunk.Record) (n int) {
	for i := range rs {
		n += len(rs[i].Data)
	}
	return n
}

func texts(rs []chunk.Record) []string {
	out := make([]string, len(rs))
	for i, r := range rs {
		out[i] = text(r)
	}
	return out
}

func wantTexts(t testing.TB, rs []chunk.Record, want ...string) {
	t.Helper()
	if got := texts(rs); !slices.Equal(got, want) {
		t.Fatalf("records:\n got %s\nwant %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// sameRecord compares everything, JSON by bytes: stores do not touch it.
func sameRecord(a, b chunk.Record) bool {
	return a.Seq == b.Seq && a.Type == b.Type && a.Agent == b.Agent && a.Time == b.Time && a.Class == b.Class && string(a.Data) == string(b.Data)
}

func closeStore(t testing.TB, s spool.Store) {
	t.Helper()
	c, ok := s.(io.Closer)
	if !ok {
		t.Fatalf("%T has no Close", s)
	}
	if err := c.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// parallel runs n functions at once and waits for all.
func parallel(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

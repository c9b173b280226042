package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// short is a TTL that is left to expire.
const short = 40 * time.Millisecond

// claim is Claim for any session.
func claim(t testing.TB, s spool.Store, c spool.Claim) (spool.Lease, error) {
	t.Helper()
	if c.Owner == "" {
		c.Owner = "o"
	}
	return leaser(t, s).Claim(limit(t), c)
}

// claimSoon is claim, but looks again if there is nothing due: the index that finds a
// session to claim may lag.
func claimSoon(t testing.TB, s spool.Store, c spool.Claim) (l spool.Lease, err error) {
	t.Helper()
	eventually(func() bool {
		l, err = claim(t, s, c)
		return c.Session != "" || !errors.Is(err, spool.ErrNothingDue)
	})
	return l, err
}

func mustClaim(t testing.TB, s spool.Store, c spool.Claim) spool.Lease {
	t.Helper()
	l, err := claimSoon(t, s, c)
	if err != nil {
		t.Fatalf("Claim(%+v): %v", c, err)
	}
	return l
}

// expire lets every lease with the TTL short run out: by the clock where it can
// be moved, else by waiting for the store to say that something is claimable.
func (x *suite) expire(t testing.TB, s spool.Store) {
	t.Helper()
	if x.Advance != nil {
		x.Advance(s, short)
	}
	if err := leaser(t, s).AwaitDue(limit(t), spool.Claim{Owner: "o"}); err != nil {
		t.Fatalf("AwaitDue: %v", err)
	}
}

// Promise: a session can be claimed when it is due and nobody holds it, or when
// its lease expired with a run open; expiry is judged by the store's clock.
var leaseChecks = []check{
	{"NothingDue", func(t *testing.T, x *suite) {
		s := x.open(t)
		for _, c := range []spool.Claim{{}, {Session: "s"}, {Agents: []string{"a"}}} {
			_, err := claim(t, s, c)
			wantErr(t, err, spool.ErrNothingDue)
		}
		_, err := claim(t, s, spool.Claim{Force: true})
		wantErr(t, err, chunk.ErrInvalid)
	}},
	{"Repeated", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c")
		command(t, s, "other", "c")
		first := mustClaim(t, s, spool.Claim{ID: "c1", Owner: "o", TTL: time.Minute})
		for _, session := range []string{"", first.Session} {
			l := mustClaim(t, s, spool.Claim{ID: "c1", Owner: "o", TTL: time.Minute, Session: session})
			if l.Session != first.Session || l.Epoch != first.Epoch {
				t.Fatalf("the same claim gave %+v, then %+v", first, l)
			}
		}
		// Another claim, or the same ID of another owner, is another claim.
		second := mustClaim(t, s, spool.Claim{ID: "c2", Owner: "o", TTL: time.Minute})
		if second.Session == first.Session {
			t.Fatalf("%+v, %+v", first, second)
		}
		for _, c := range []spool.Claim{{ID: "c1", Owner: "o2"}, {ID: "c3", Owner: "o"}, {ID: "c2", Owner: "o", Session: first.Session}} {
			_, err := claim(t, s, c)
			wantErr(t, err, spool.ErrNothingDue)
		}
		// A lease that was released is not given back.
		if err := leaser(t, s).Release(limit(t), second); err != nil {
			t.Fatal(err)
		}
		if l := mustClaim(t, s, spool.Claim{ID: "c2", Owner: "o", TTL: time.Minute}); l.Epoch <= second.Epoch {
			t.Fatalf("released, and given back as %+v", l)
		}
		// Nor one that was taken.
		taken := mustClaim(t, s, spool.Claim{ID: "c4", Owner: "o", Session: first.Session, Force: true, TTL: time.Minute})
		if again := mustClaim(t, s, spool.Claim{ID: "c4", Owner: "o", Session: first.Session, Force: true}); again.Epoch != taken.Epoch {
			t.Fatalf("the same forced claim gave %+v, then %+v", taken, again)
		}
		_, err := claim(t, s, spool.Claim{ID: "c1", Owner: "o", Session: first.Session})
		wantErr(t, err, spool.ErrNothingDue)
	}},
	{"RepeatRenews", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c")
		ttl := short
		if x.Advance != nil {
			ttl = time.Hour // it must not end by itself meanwhile
		}
		first := mustClaim(t, s, spool.Claim{ID: "c1", Owner: "o", TTL: ttl})
		if x.Advance != nil {
			x.Advance(s, ttl)
		}
		x.expire(t, s)
		again := mustClaim(t, s, spool.Claim{ID: "c1", Owner: "o", TTL: ttl})
		if again.Epoch != first.Epoch {
			t.Fatalf("the same claim gave %+v, then %+v", first, again)
		}
		if x.Advance != nil {
			_, err := claim(t, s, spool.Claim{Owner: "o2"})
			wantErr(t, err, spool.ErrNothingDue)
		}
	}},
	{"Tells", func(t *testing.T, x *suite) {
		s := x.open(t)
		put(t, s, spool.Append{Session: "s", Records: recs(chunk.Kept, "c", 1), Row: spool.Row{Agent: "helper", Principal: "ann", Title: "Hello"}})
		l := mustClaim(t, s, spool.Claim{TTL: time.Minute, Agents: []string{"helper"}})
		if want := (spool.Row{Status: chunk.StatusEnded, Agent: "helper", Principal: "ann", Title: "Hello"}); l.Row != want {
			t.Fatalf("the lease's row is %+v, want %+v", l.Row, want)
		}
		if l.Now < l.Head.Due {
			t.Fatalf("claimed at %d, before the session was due at %d", l.Now, l.Head.Due)
		}
		if x.Advance != nil {
			x.Advance(s, time.Hour)
			if again := mustClaim(t, s, spool.Claim{}); again.Now < l.Now+time.Hour.Milliseconds() {
				t.Fatalf("claimed at %d, and an hour later at %d", l.Now, again.Now)
			}
		}
	}},
	{"Due", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c")
		l := mustClaim(t, s, spool.Claim{Owner: "me", TTL: time.Minute})
		if l.Session != "s" || l.Epoch < 1 || l.Owner != "me" || l.TTL != time.Minute || l.Head != head(t, s, "s") || l.Head.Epoch != l.Epoch {
			t.Fatalf("lease %+v", l)
		}
		_, err := claim(t, s, spool.Claim{Owner: "other"})
		wantErr(t, err, spool.ErrNothingDue)
		_, err = claim(t, s, spool.Claim{Owner: "me", Session: "s"})
		wantErr(t, err, spool.ErrNothingDue)
		if err := leaser(t, s).Release(limit(t), l); err != nil {
			t.Fatal(err)
		}
		l2 := mustClaim(t, s, spool.Claim{Owner: "other", TTL: time.Minute}) // still due
		put(t, s, spool.Append{Session: "s", Epoch: l2.Epoch, Settle: &spool.Settle{Seen: 1}})
		if err := leaser(t, s).Release(limit(t), l2); err != nil {
			t.Fatal(err)
		}
		_, err = claim(t, s, spool.Claim{})
		wantErr(t, err, spool.ErrNothingDue)
	}},
	{"EachOnce", func(t *testing.T, x *suite) {
		s := x.open(t)
		ids := []string{"s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"}
		for _, id := range ids {
			command(t, s, id, "c")
		}
		got := make([]string, len(ids))
		parallel(len(ids), func(i int) {
			l, err := claimSoon(t, s, spool.Claim{Owner: ids[i], TTL: time.Minute})
			if err != nil {
				t.Errorf("claim %d: %v", i, err)
			}
			got[i] = l.Session
		})
		seen := map[string]bool{}
		for _, id := range got {
			if seen[id] {
				t.Fatalf("claimed twice: %v", got)
			}
			seen[id] = true
		}
		_, err := claim(t, s, spool.Claim{})
		wantErr(t, err, spool.ErrNothingDue)
	}},
	{"DueLater", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "o")
		c := command(t, s, "s", "c")
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 1, Next: c.Head.Due + 3_600_000}, Row: spool.Row{Status: chunk.StatusPaused}})
		if err := leaser(t, s).Release(limit(t), l); err != nil {
			t.Fatal(err)
		}
		_, err := claim(t, s, spool.Claim{})
		wantErr(t, err, spool.ErrNothingDue)
		if x.Advance != nil {
			x.Advance(s, time.Hour)
			mustClaim(t, s, spool.Claim{})
		}
	}},
	{"Expiry", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c")
		l := mustClaim(t, s, spool.Claim{Owner: "a", TTL: short})
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive}, Settle: &spool.Settle{Seen: 1}})
		x.expire(t, s)
		l2 := mustClaim(t, s, spool.Claim{Owner: "b", TTL: time.Minute})
		if l2.Session != "s" || l2.Epoch <= l.Epoch || l2.Head.Status != chunk.StatusActive {
			t.Fatalf("lease %+v", l2)
		}
		_, err := s.Append(limit(t), spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "late", 1)})
		wantErr(t, err, spool.ErrSuperseded)
	}},
	{"ExpiredFor", func(t *testing.T, x *suite) {
		s := x.open(t)
		hour := spool.Claim{Owner: "b", TTL: time.Minute, ExpiredFor: time.Hour}
		begin := func(session string) spool.Lease {
			l := mustClaim(t, s, spool.Claim{Owner: "a", TTL: short, Session: session, Force: true})
			put(t, s, spool.Append{Session: session, Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive}})
			return l
		}
		begin("expired")
		x.expire(t, s)
		_, err := claim(t, s, hour)
		wantErr(t, err, spool.ErrNothingDue)
		one := hour
		one.Session = "expired"
		_, err = claim(t, s, one)
		wantErr(t, err, spool.ErrNothingDue)
		command(t, s, "expired", "c") // that it is due changes nothing
		_, err = claim(t, s, hour)
		wantErr(t, err, spool.ErrNothingDue)

		// What no owner holds is not spared.
		if err := leaser(t, s).Release(limit(t), begin("released")); err != nil {
			t.Fatal(err)
		}
		if l := mustClaim(t, s, hour); l.Session != "released" {
			t.Fatalf("claimed %+v", l)
		}
		command(t, s, "due", "c")
		if l := mustClaim(t, s, hour); l.Session != "due" {
			t.Fatalf("claimed %+v", l)
		}

		brief := hour
		if brief.ExpiredFor = time.Millisecond; x.Advance != nil {
			brief.ExpiredFor = time.Hour
			x.Advance(s, time.Hour)
		}
		if err := leaser(t, s).AwaitDue(limit(t), brief); err != nil {
			t.Fatal(err)
		}
		if l := mustClaim(t, s, brief); l.Session != "expired" {
			t.Fatalf("claimed %+v", l)
		}
		negative := hour
		negative.ExpiredFor = -1
		_, err = claim(t, s, negative)
		wantErr(t, err, chunk.ErrInvalid)
	}},
	{"ExpiredAndQuiet", func(t *testing.T, x *suite) {
		s := x.open(t)
		own(t, s, "s", "o")
		if x.Advance != nil {
			x.Advance(s, time.Hour)
		}
		_, err := claim(t, s, spool.Claim{})
		wantErr(t, err, spool.ErrNothingDue)
	}},
	{"ReleasedWithARunOpen", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "o")
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive}})
		if err := leaser(t, s).Release(limit(t), l); err != nil {
			t.Fatal(err)
		}
		wantErr(t, leaser(t, s).Renew(limit(t), l), spool.ErrSuperseded)
		// Nobody took it, so what the owner had under way may still land, but
		// it does not bring the lease back.
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "x", 1)})
		mustClaim(t, s, spool.Claim{Owner: "b"})
	}},
	{"ExpiredButNotTaken", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := mustClaim(t, s, spool.Claim{Session: "s", Force: true, TTL: short})
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive}})
		x.expire(t, s)
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "x", 1)})
		if err := leaser(t, s).Renew(limit(t), l); err != nil {
			t.Fatalf("Renew of a lease nobody took: %v", err)
		}
	}},
	{"RenewedByTheClock", func(t *testing.T, x *suite) {
		if x.Advance == nil {
			return // needs a clock that can be moved, or time would decide
		}
		s := x.open(t)
		command(t, s, "s", "c")
		l := mustClaim(t, s, spool.Claim{Owner: "a", TTL: time.Minute})
		step := func(renew func()) {
			t.Helper()
			x.Advance(s, 40*time.Second)
			_, err := claim(t, s, spool.Claim{Owner: "b"})
			wantErr(t, err, spool.ErrNothingDue)
			renew()
		}
		n := uint64(0)
		appendOne := func() {
			n++
			put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: n, Records: recs(chunk.Trace, "x", 1)})
		}
		step(func() {
			if err := leaser(t, s).Renew(limit(t), l); err != nil {
				t.Fatal(err)
			}
		})
		step(appendOne)
		step(appendOne)
		step(func() { command(t, s, "s", "c") }) // renews nothing
		x.Advance(s, 19*time.Second)
		_, err := claim(t, s, spool.Claim{Owner: "b"})
		wantErr(t, err, spool.ErrNothingDue)
		x.Advance(s, time.Second)
		mustClaim(t, s, spool.Claim{Owner: "b"})
	}},
	{"AgentFilter", func(t *testing.T, x *suite) {
		s := x.open(t)
		for _, agent := range []string{"writer", "coder", ""} {
			put(t, s, spool.Append{Session: "for-" + agent, Records: recs(chunk.Kept, "c", 1), Row: spool.Row{Agent: agent}})
		}
		if l := mustClaim(t, s, spool.Claim{Agents: []string{"coder"}, Session: "for-coder"}); l.Session != "for-coder" {
			t.Fatalf("%+v", l)
		}
		_, err := claim(t, s, spool.Claim{Agents: []string{"coder"}, Session: "for-writer"})
		wantErr(t, err, spool.ErrNothingDue)
		if l := mustClaim(t, s, spool.Claim{Agents: []string{"painter", "coder"}}); l.Session != "for-" {
			t.Fatalf("%+v", l)
		}
		_, err = claim(t, s, spool.Claim{Agents: []string{"painter", "coder"}})
		wantErr(t, err, spool.ErrNothingDue)
		if l := mustClaim(t, s, spool.Claim{}); l.Session != "for-writer" {
			t.Fatalf("%+v", l)
		}
	}},
	{"OneSession", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "a", "c")
		command(t, s, "b", "c")
		if l := mustClaim(t, s, spool.Claim{Session: "b"}); l.Session != "b" {
			t.Fatalf("%+v", l)
		}
		_, err := claim(t, s, spool.Claim{Session: "c"})
		wantErr(t, err, spool.ErrNothingDue)
	}},
	{"LongestDueFirst", func(t *testing.T, x *suite) {
		if x.Advance == nil {
			return // needs due times that surely differ
		}
		s := x.open(t)
		for _, id := range []string{"b", "a", "c"} {
			command(t, s, id, "c")
			x.Advance(s, time.Second)
		}
		for _, id := range []string{"b", "a", "c"} {
			if l := mustClaim(t, s, spool.Claim{}); l.Session != id {
				t.Fatalf("claimed %s, %s is due for longer", l.Session, id)
			}
		}
	}},
	{"Force", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "new", "a") // need not exist
		if h := head(t, s, "new"); h != (spool.Head{Incarnation: h.Incarnation, Epoch: l.Epoch, Status: chunk.StatusEnded}) || h.Incarnation < 1 {
			t.Fatalf("head of a claimed new session: %+v", h)
		}
		if l2 := own(t, s, "new", "b"); l2.Epoch <= l.Epoch {
			t.Fatalf("forced: %+v", l2)
		}
	}},
	{"AwaitDueWakes", func(t *testing.T, x *suite) {
		s := x.open(t)
		leases := leaser(t, s)
		await := func(c spool.Claim) chan error {
			c.Owner = "waiter"
			done := make(chan error, 1)
			ctx := limit(t)
			go func() { done <- leases.AwaitDue(ctx, c) }()
			return done
		}
		woken := func(what string, done chan error) {
			t.Helper()
			if err := <-done; err != nil {
				t.Fatalf("AwaitDue, %s: %v", what, err)
			}
		}
		done := await(spool.Claim{})
		command(t, s, "s", "c")
		woken("command", done)
		woken("already due", await(spool.Claim{Session: "s"}))
		l := mustClaim(t, s, spool.Claim{TTL: time.Minute})
		done = await(spool.Claim{})
		if err := leases.Release(limit(t), l); err != nil {
			t.Fatal(err)
		}
		woken("release", done)
		l = mustClaim(t, s, spool.Claim{TTL: time.Minute})
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 1}})
		done = await(spool.Claim{Agents: []string{"coder"}})
		put(t, s, spool.Append{Session: "other", Records: recs(chunk.Kept, "c", 1), Row: spool.Row{Agent: "coder"}})
		woken("agent", done)
	}},
	{"AwaitDueSeesExpiry", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c")
		mustClaim(t, s, spool.Claim{TTL: short})
		done := make(chan error, 1)
		ctx := limit(t)
		go func() { done <- leaser(t, s).AwaitDue(ctx, spool.Claim{Owner: "w"}) }()
		if x.Advance != nil {
			x.Advance(s, short)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		mustClaim(t, s, spool.Claim{})
	}},
	{"AwaitDueCancelled", func(t *testing.T, x *suite) {
		s := x.open(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- leaser(t, s).AwaitDue(ctx, spool.Claim{Owner: "w"}) }()
		cancel()
		wantErr(t, <-done, context.Canceled)
	}},
}

package storetest

import (
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: a duplicate of a call that arrives after later calls changes nothing that they
// did. Networks and clients that repeat make such duplicates.
var lateChecks = []check{
	{"Claim", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c")
		c := spool.Claim{ID: "c1", Owner: "a", TTL: time.Minute}
		first := mustClaim(t, s, c)
		a := spool.Append{Session: "s", Epoch: first.Epoch, Writer: "w", Ordinal: 1, Records: recs(chunk.Trace, "a", 2), Row: spool.Row{Status: chunk.StatusActive}}
		was := put(t, s, a)
		if l := mustClaim(t, s, c); l.Epoch != first.Epoch || l.Head != was.Head {
			t.Fatalf("the same claim gave %+v, then %+v", first, l)
		}
		if res := put(t, s, a); !res.Repeated || res.First != was.First {
			t.Fatalf("the claim's duplicate forgot ordinals: %+v", res)
		}
		next := own(t, s, "s", "b")
		for _, session := range []string{"", "s"} {
			c.Session = session
			_, err := claim(t, s, c)
			wantErr(t, err, spool.ErrNothingDue)
		}
		stillOwns(t, s, next)
	}},
	{"Renew", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c")
		first := mustClaim(t, s, spool.Claim{Owner: "a", TTL: time.Hour})
		next := mustClaim(t, s, spool.Claim{Owner: "b", Session: "s", Force: true, TTL: time.Minute})
		wantErr(t, leaser(t, s).Renew(limit(t), first), spool.ErrSuperseded)
		stillOwns(t, s, next)
		if x.Advance != nil { // it did not lengthen the next owner's lease either
			x.Advance(s, 40*time.Second)
			wantErr(t, leaser(t, s).Renew(limit(t), first), spool.ErrSuperseded)
			x.Advance(s, 20*time.Second)
			next = mustClaim(t, s, spool.Claim{Owner: "c", TTL: time.Minute})
		}
		if err := leaser(t, s).Release(limit(t), next); err != nil {
			t.Fatal(err)
		}
		wantErr(t, leaser(t, s).Renew(limit(t), next), spool.ErrSuperseded)
		mustClaim(t, s, spool.Claim{Owner: "d"})
	}},
	{"Release", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c")
		first := mustClaim(t, s, spool.Claim{ID: "c1", Owner: "a", TTL: time.Minute})
		if err := leaser(t, s).Release(limit(t), first); err != nil {
			t.Fatal(err)
		}
		next := mustClaim(t, s, spool.Claim{ID: "c1", Owner: "a", TTL: time.Minute})
		if err := leaser(t, s).Release(limit(t), first); err != nil {
			t.Fatal(err)
		}
		stillOwns(t, s, next)
	}},
	{"Append", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "a")
		var as []spool.Append
		for ordinal := uint64(1); ordinal <= 3; ordinal++ {
			a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: ordinal, Records: recs(chunk.Trace, "a", 2),
				Row: spool.Row{Status: chunk.StatusActive}, Settle: &spool.Settle{Seen: 1 << 40}}
			put(t, s, a)
			as = append(as, a)
		}
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusPaused}})
		want := command(t, s, "s", "c").Head
		for _, a := range as[:2] {
			_, err := s.Append(limit(t), a)
			wantErr(t, err, chunk.ErrInvalid)
		}
		if res := put(t, s, as[2]); !res.Repeated {
			t.Fatalf("the duplicate of the last one: %+v", res)
		}
		if h := head(t, s, "s"); h != want {
			t.Fatalf("duplicates changed the head from %+v to %+v", want, h)
		}
		next := own(t, s, "s", "b")
		for _, a := range as { // the next owner's writer has the same name
			_, err := s.Append(limit(t), a)
			wantErr(t, err, spool.ErrSuperseded)
		}
		stillOwns(t, s, next)
	}},
	{"OfADeletedSession", with(func(t *testing.T, x *suite, s spool.Store, r spool.Trimmer) {
		command(t, s, "s", "c")
		c := spool.Claim{ID: "c1", Owner: "a", TTL: time.Minute, Session: "s"}
		first := mustClaim(t, s, c)
		if err := r.Delete(limit(t), "s"); err != nil {
			t.Fatal(err)
		}
		_, err := claim(t, s, c)
		wantErr(t, err, spool.ErrNothingDue)
		wantErr(t, leaser(t, s).Renew(limit(t), first), spool.ErrSuperseded)
		_, err = s.Head(limit(t), "s")
		wantErr(t, err, spool.ErrNotFound)
		command(t, s, "s", "another log")
		next := mustClaim(t, s, spool.Claim{ID: "c2", Owner: "b", TTL: time.Minute})
		_, err = claim(t, s, c)
		wantErr(t, err, spool.ErrNothingDue)
		wantErr(t, leaser(t, s).Renew(limit(t), first), spool.ErrSuperseded)
		if err := leaser(t, s).Release(limit(t), first); err != nil {
			t.Fatal(err)
		}
		stillOwns(t, s, next)
	})},
}

// stillOwns checks that the lease is valid: its session is due or active, and nobody else
// can claim it.
func stillOwns(t testing.TB, s spool.Store, l spool.Lease) {
	t.Helper()
	if err := leaser(t, s).Renew(limit(t), l); err != nil {
		t.Fatalf("the lease of epoch %d is lost: %v", l.Epoch, err)
	}
	put(t, s, spool.Append{Session: l.Session, Epoch: l.Epoch, Records: recs(chunk.Trace, "its own", 1)})
	if h := head(t, s, l.Session); h.Epoch != l.Epoch {
		t.Fatalf("epoch %d owns the session, not %d", h.Epoch, l.Epoch)
	}
	_, err := claim(t, s, spool.Claim{Owner: "somebody else", Session: l.Session})
	wantErr(t, err, spool.ErrNothingDue)
}

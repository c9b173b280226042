package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: a clock that steps loses nothing, takes no session from an owner who writes, and
// delays nothing by more than a lease's TTL.
var clockChecks = []check{
	{"Steps", func(t *testing.T, x *suite) {
		if x.Advance == nil {
			return
		}
		s := x.open(t)
		command(t, s, "s", "c")
		l := mustClaim(t, s, spool.Claim{Owner: "o", TTL: time.Minute})
		want := []string{"c"}
		for n, step := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour, 24 * time.Hour, -time.Second, -24 * time.Hour, 25 * time.Hour} {
			before := head(t, s, "s")
			x.Advance(s, step)
			if h := head(t, s, "s"); h != before {
				t.Fatalf("the clock stepped by %v, and the head from %+v to %+v", step, before, h)
			}
			if n%2 == 0 {
				if err := leaser(t, s).Renew(limit(t), l); err != nil {
					t.Fatalf("after a step of %v: %v", step, err)
				}
			}
			a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: uint64(n + 1), Records: recs(chunk.Trace, fmt.Sprint(n), 2)}
			put(t, s, a)
			want = append(want, texts(a.Records)...)
			if res := put(t, s, a); !res.Repeated {
				t.Fatalf("a repeat after a step of %v: %+v", step, res)
			}
			_, err := claim(t, s, spool.Claim{Owner: "other"})
			wantErr(t, err, spool.ErrNothingDue)
			command(t, s, "s", fmt.Sprint("c", n))
			want = append(want, fmt.Sprint("c", n))
		}
		wantTexts(t, log(t, s, "s", 0, 7), want...)
		if err := leaser(t, s).Release(limit(t), l); err != nil {
			t.Fatal(err)
		}
		if next := mustClaim(t, s, spool.Claim{Owner: "other"}); next.Epoch <= l.Epoch || !next.Head.Pending {
			t.Fatalf("claimed %+v", next)
		}
	}},
	{"StepsBack", func(t *testing.T, x *suite) {
		if x.Advance == nil {
			return
		}
		s := x.open(t)
		for _, id := range []string{"a", "b", "c"} {
			command(t, s, id, "c")
		}
		x.Advance(s, -time.Hour)
		command(t, s, "b", "another")
		got := map[string]bool{}
		for range 3 {
			got[mustClaim(t, s, spool.Claim{Owner: "o", TTL: time.Minute}).Session] = true
		}
		if len(got) != 3 {
			t.Fatalf("claimed %v", got)
		}
		x.Advance(s, -time.Hour)
		put(t, s, spool.Append{Session: "a", Epoch: head(t, s, "a").Epoch, Writer: "w", Ordinal: 1,
			Row: spool.Row{Status: chunk.StatusActive}})
		_, err := claim(t, s, spool.Claim{Owner: "early"})
		wantErr(t, err, spool.ErrNothingDue)
		x.Advance(s, time.Minute)
		for range 3 { // their owners have been silent for a TTL
			l := mustClaim(t, s, spool.Claim{Owner: "next", TTL: time.Minute})
			if l.Now < head(t, s, l.Session).Due {
				t.Fatalf("claimed before it was due: %+v", l)
			}
		}
	}},
	{"PausesEndAfterAStepBack", func(t *testing.T, x *suite) {
		if x.Advance == nil {
			return
		}
		s := x.open(t)
		command(t, s, "s", "c")
		l := mustClaim(t, s, spool.Claim{Owner: "o", TTL: time.Minute})
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1,
			Row: spool.Row{Status: chunk.StatusPaused}, Settle: &spool.Settle{Seen: l.Head.Seq, Next: l.Now + 10*time.Minute.Milliseconds()}})
		if err := leaser(t, s).Release(limit(t), l); err != nil {
			t.Fatal(err)
		}
		x.Advance(s, -time.Hour)
		_, err := claim(t, s, spool.Claim{Owner: "early"})
		wantErr(t, err, spool.ErrNothingDue)
		x.Advance(s, 10*time.Minute+time.Second)
		mustClaim(t, s, spool.Claim{Owner: "next"})
	}},
}

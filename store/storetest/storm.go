package storetest

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: however many want a session, it has one owner at a time.
var stormChecks = []check{
	{"TakeOvers", func(t *testing.T, x *suite) {
		s := x.open(t)
		const sessions, claimers, turns = 3, 9, 8
		for i := range sessions {
			l := own(t, s, fmt.Sprint("s", i), "first")
			put(t, s, spool.Append{Session: l.Session, Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive}})
			if err := leaser(t, s).Release(limit(t), l); err != nil {
				t.Fatal(err)
			}
		}
		ctx := limit(t)
		var mu sync.Mutex
		granted := map[string]string{} // by session and epoch
		var asked sync.WaitGroup       // until each claimer was given a lease or refused once
		asked.Add(claimers)
		parallel(claimers, func(i int) {
			for n := range turns {
				c := spool.Claim{ID: fmt.Sprintf("c%d-%d", i, n), Owner: fmt.Sprint("o", i), TTL: time.Hour}
				if i == 0 {
					c.Session, c.Force = fmt.Sprint("s", n%sessions), true
				}
				l, err := leaser(t, s).Claim(ctx, c)
				if n == 0 {
					asked.Done()
				}
				for errors.Is(err, spool.ErrNothingDue) {
					if err = leaser(t, s).AwaitDue(ctx, c); err == nil {
						l, err = leaser(t, s).Claim(ctx, c)
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				lease := fmt.Sprintf("%s under epoch %d", l.Session, l.Epoch)
				mu.Lock()
				other, twice := granted[lease]
				granted[lease] = c.ID
				mu.Unlock()
				if twice {
					t.Errorf("claims %s and %s were both given %s", other, c.ID, lease)
				}
				if n == 0 {
					asked.Wait() // so that there are always more claimers than sessions
				}
				for k, word := range []string{"begin", "end"} {
					for range 5 {
						runtime.Gosched() // so that others claim meanwhile
					}
					_, err = s.Append(ctx, spool.Append{Session: l.Session, Epoch: l.Epoch, Writer: "w", Ordinal: uint64(k + 1), Records: recs(chunk.Trace, fmt.Sprint(l.Epoch, "-", word), 1)})
					if errors.Is(err, spool.ErrSuperseded) {
						break // by the claimer who forces
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
				if err := leaser(t, s).Release(ctx, l); err != nil {
					t.Error(err)
					return
				}
			}
		})
		if t.Failed() {
			return
		}
		for i := range sessions {
			var last uint64
			for _, r := range log(t, s, fmt.Sprint("s", i), 0, 100) {
				var epoch uint64
				var word string
				if _, err := fmt.Sscanf(text(r), "%d-%s", &epoch, &word); err != nil {
					t.Fatal(err)
				}
				if begin := word == "begin/0"; begin && epoch <= last || !begin && epoch != last {
					t.Fatalf("record %d of s%d is %q, after epoch %d began", r.Seq, i, text(r), last)
				}
				last = epoch
			}
		}
	}},
	{"SameClaim", func(t *testing.T, x *suite) {
		s := x.open(t)
		for i := range 40 {
			c := spool.Claim{ID: fmt.Sprint("c", i), Owner: "o", TTL: time.Hour, Session: fmt.Sprint("s", i), Force: i%2 == 0}
			if !c.Force {
				command(t, s, c.Session, "hi")
			}
			var epochs [4]uint64
			parallel(len(epochs), func(k int) {
				if l, err := leaser(t, s).Claim(limit(t), c); err != nil {
					t.Errorf("a claim that is made several times at once: %v", err)
				} else {
					epochs[k] = l.Epoch
				}
			})
			for _, epoch := range epochs {
				if epoch != epochs[0] {
					t.Fatalf("one claim, made several times at once, was given the epochs %v", epochs)
				}
			}
		}
	}},
}

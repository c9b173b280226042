package storetest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: waits are woken by what they wait for, cost little, and are not late.
//
// How fast a machine is must not decide here. So the bounds are far from what a store
// needs, and a check that exceeds them is tried again.
var promptChecks = []check{
	{"WaitIsNotified", func(t *testing.T, x *suite) {
		s := x.open(t)
		var took time.Duration
		for try := range 2 {
			if took = conversation(t, s, fmt.Sprint("s", try)); took < 3*time.Second || t.Failed() {
				return
			}
		}
		t.Fatalf("two sides that wait for each other took %v for twelve turns", took)
	}},
	{"AwaitDueIsInTime", func(t *testing.T, x *suite) {
		s := x.open(t)
		var late time.Duration
		for try := range 2 {
			l := own(t, s, fmt.Sprint("s", try), "o")
			ahead := 30 * time.Millisecond
			if x.Advance != nil {
				ahead = time.Hour
			}
			put(t, s, spool.Append{Session: l.Session, Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusPaused}, Settle: &spool.Settle{Next: l.Now + ahead.Milliseconds()}})
			if err := leaser(t, s).Release(limit(t), l); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			ctx := limit(t)
			go func() { done <- leaser(t, s).AwaitDue(ctx, spool.Claim{Owner: "w", Session: l.Session}) }()
			settle()
			due := time.Now()
			if x.Advance != nil {
				x.Advance(s, ahead)
			} else {
				due = time.UnixMilli(l.Now).Add(ahead)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if late = time.Since(due); late < 2*time.Second {
				return
			}
		}
		t.Fatalf("AwaitDue returned %v after the session was due", late)
	}},
	{"NotificationsGetLostOrDoubled", func(t *testing.T, x *suite) {
		if x.Notify == nil {
			return
		}
		for _, times := range []int{0, 2} {
			s := x.open(t)
			seen := command(t, s, "s", "c").Head
			undo := x.Notify(t, s, times)
			for n := range 3 {
				ctx := limit(t)
				var all []chan waited
				for range instances {
					all = append(all, startWait(ctx, s, "s", seen))
				}
				due := make(chan error, 1)
				other := fmt.Sprint("due", n)
				go func() { due <- leaser(t, s).AwaitDue(ctx, spool.Claim{Owner: "w", Session: other}) }()
				settle()
				want := command(t, s, "s", "d").Head
				command(t, s, other, "c")
				for _, done := range all {
					if got := <-done; got.err != nil || got.head != want {
						t.Fatalf("with each notification delivered %d times, Wait gave %+v, %v; want %+v", times, got.head, got.err, want)
					}
				}
				if err := <-due; err != nil {
					t.Fatal(err)
				}
				seen = want
			}
			undo()
		}
	}},
	{"ThousandsOfWaits", func(t *testing.T, x *suite) {
		crowded.Lock()
		defer crowded.Unlock()
		s := x.open(t)
		const waits, sessions = 2000, 10
		var seen [sessions]spool.Head
		for i := range seen {
			seen[i] = command(t, s, fmt.Sprint("s", i), "c").Head
		}
		ctx, cancel := context.WithCancel(limit(t))
		defer cancel()
		before := runtime.NumGoroutine()
		begun := make(chan struct{}, waits)
		woken := make(chan waited, waits)
		for i := range waits {
			go func() {
				begun <- struct{}{}
				h, next, err := s.Wait(ctx, fmt.Sprint("s", i%sessions), seen[i%sessions])
				woken <- waited{h, next, err}
			}()
		}
		for range waits {
			<-begun
		}
		for range 3 {
			settle()
			if n := runtime.NumGoroutine() - before; n > waits+waits/2 {
				t.Fatalf("%d goroutines for %d callers that wait", n, waits)
			}
		}
		for i := range seen {
			command(t, s, fmt.Sprint("s", i), "d")
		}
		for range waits {
			if got := <-woken; got.err != nil || got.head.Seq != 2 {
				t.Fatalf("%+v, %v", got.head, got.err)
			}
		}
	}},
}

// settle gives goroutines that are about to wait the time to get there. If one is late, a
// check may find less, but does not fail.
func settle() { time.Sleep(100 * time.Millisecond) }

// crowded is held by the check that counts goroutines.
var crowded sync.Mutex

// conversation lets two sides append in turn, each as soon as it is told of the other's
// record, and returns how long they took.
func conversation(t *testing.T, s spool.Store, session string) time.Duration {
	const turns = 12
	began := time.Now()
	parallel(2, func(side int) {
		var seen spool.Head
		for turn := uint64(side); turn < turns; turn += 2 {
			for seen.Seq < turn {
				h, _, err := s.Wait(limit(t), session, seen)
				if err != nil {
					t.Error(err)
					return
				}
				seen = h
			}
			if _, err := s.Append(limit(t), spool.Append{Session: session, Records: recs(chunk.Kept, "turn", 1)}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return time.Since(began)
}

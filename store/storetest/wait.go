package storetest

import (
	"context"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

type waited struct {
	head spool.Head
	err  error
}

// startWait waits in the background.
func startWait(ctx context.Context, s spool.Store, session string, seen spool.Head) chan waited {
	done := make(chan waited, 1)
	go func() {
		h, err := s.Wait(ctx, session, seen)
		done <- waited{h, err}
	}()
	return done
}

// Promise: Wait returns on any change of the head.
var waitChecks = []check{
	{"AnyChange", func(t *testing.T, x *suite) {
		s := x.open(t)
		var l spool.Lease
		steps := []struct {
			name   string
			change func()
		}{
			{"creation", func() { command(t, s, "s", "c") }},
			{"command", func() { command(t, s, "s", "c") }},
			{"claim", func() { l = mustClaim(t, s, spool.Claim{}) }},
			{"append", func() { put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "t", 9)}) }},
			{"status", func() {
				put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive}})
			}},
			{"due", func() { put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 2}}) }},
		}
		if trimmer, ok := s.(spool.Trimmer); ok {
			steps = append(steps, struct {
				name   string
				change func()
			}{"trim", func() {
				if err := trimmer.Trim(limit(t), "s", 5, 0); err != nil {
					t.Fatal(err)
				}
			}})
		}
		var seen spool.Head
		for _, step := range steps {
			done := startWait(limit(t), s, "s", seen)
			step.change()
			got := <-done
			if got.err != nil || got.head == seen || got.head != head(t, s, "s") {
				t.Fatalf("%s: Wait gave %+v, %v; seen %+v", step.name, got.head, got.err, seen)
			}
			seen = got.head
			// Missed changes are found at once.
			if h, err := s.Wait(limit(t), "s", spool.Head{}); err != nil || h != seen {
				t.Fatalf("%s: Wait from nothing gave %+v, %v", step.name, h, err)
			}
		}
	}},
	{"ManyWaiters", func(t *testing.T, x *suite) {
		s := x.open(t)
		seen := command(t, s, "s", "c").Head
		ctx := limit(t)
		var all []chan waited
		for range 50 {
			all = append(all, startWait(ctx, s, "s", seen))
		}
		command(t, s, "other", "c") // wakes no waiter here
		h := command(t, s, "s", "d").Head
		for _, done := range all {
			if got := <-done; got.err != nil || got.head != h {
				t.Fatalf("%+v, %v", got.head, got.err)
			}
		}
	}},
	{"Cancelled", func(t *testing.T, x *suite) {
		s := x.open(t)
		seen := command(t, s, "s", "c").Head
		for _, id := range []string{"s", "unknown"} {
			ctx, cancel := context.WithCancel(t.Context())
			h := seen
			if id == "unknown" {
				h = spool.Head{}
			}
			done := startWait(ctx, s, id, h)
			cancel()
			wantErr(t, (<-done).err, context.Canceled)
		}
		_, err := s.Head(limit(t), "unknown")
		wantErr(t, err, spool.ErrNotFound)
	}},
	{"Gone", func(t *testing.T, x *suite) {
		s := x.open(t)
		_, err := s.Wait(limit(t), "unknown", spool.Head{Seq: 1})
		wantErr(t, err, spool.ErrNotFound)
		trimmer, ok := s.(spool.Trimmer)
		if !ok {
			return
		}
		seen := command(t, s, "s", "c").Head
		done := startWait(limit(t), s, "s", seen)
		if err := trimmer.Delete(limit(t), "s"); err != nil {
			t.Fatal(err)
		}
		wantErr(t, (<-done).err, spool.ErrNotFound)
		done = startWait(limit(t), s, "s", spool.Head{})
		h := command(t, s, "s", "again").Head
		if got := <-done; got.err != nil || got.head != h {
			t.Fatalf("%+v, %v", got.head, got.err)
		}
	}},
}

package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

type waited struct {
	head spool.Head
	next []chunk.Record
	err  error
}

// startWait waits in the background.
func startWait(ctx context.Context, s spool.Store, session string, seen spool.Head) chan waited {
	done := make(chan waited, 1)
	go func() {
		h, next, err := s.Wait(ctx, session, seen)
		done <- waited{h, next, err}
	}()
	return done
}

// wantNext checks the records that Wait returned: none, or exactly the next ones.
func wantNext(t testing.TB, s spool.Store, session string, seen spool.Head, got waited) {
	t.Helper()
	if len(got.next) == 0 {
		return
	}
	if got.head.Incarnation != seen.Incarnation || got.next[len(got.next)-1].Seq > got.head.Seq {
		t.Fatalf("Wait from %+v gave head %+v and records %v", seen, got.head, texts(got.next))
	}
	want, _, err := s.Read(limit(t), session, seen.Seq, len(got.next))
	if err != nil || !slices.EqualFunc(got.next, want, sameRecord) {
		t.Fatalf("Wait from %d gave %v; read are %v, %v", seen.Seq, texts(got.next), texts(want), err)
	}
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
			wantNext(t, s, "s", seen, got)
			seen = got.head
			// Missed changes are found at once.
			if h, _, err := s.Wait(limit(t), "s", spool.Head{}); err != nil || h != seen {
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
	{"NextRecords", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "o")
		seen := l.Head
		more := func(label string, n int) {
			put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, label, n)})
		}
		wait := func(seen spool.Head) waited {
			t.Helper()
			got := <-startWait(limit(t), s, "s", seen)
			if got.err != nil {
				t.Fatal(got.err)
			}
			wantNext(t, s, "s", seen, got)
			return got
		}
		for i := range 20 { // of a caller that is up to date, and of one that was away
			done := startWait(limit(t), s, "s", seen)
			more(fmt.Sprint("a", i), 1+i%3)
			got := <-done
			if got.err != nil {
				t.Fatal(got.err)
			}
			wantNext(t, s, "s", seen, got)
			more(fmt.Sprint("b", i), i%4)
			seen = wait(seen).head
		}
		for range 3 {
			more("many", 400)
			wait(seen)
		}
		for range 5 {
			put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: []chunk.Record{big(chunk.Trace, chunk.MaxRecordBytes)}})
		}
		if got := wait(seen); size(got.next) >= spool.MaxReadBytes+chunk.MaxRecordBytes {
			t.Fatalf("Wait gave records of %d bytes", size(got.next))
		}
		trimmer, ok := s.(spool.Trimmer)
		if !ok {
			return
		}
		if err := trimmer.Trim(limit(t), "s", seen.Seq+2, 0); err != nil {
			t.Fatal(err)
		}
		if got := wait(seen); len(got.next) > 0 {
			t.Fatalf("Wait gave %d records, of which some are trimmed", len(got.next))
		}
		if err := trimmer.Delete(limit(t), "s"); err != nil {
			t.Fatal(err)
		}
		command(t, s, "s", "another log")
		for range 3 {
			command(t, s, "s", "another log")
		}
		if got := wait(spool.Head{Incarnation: seen.Incarnation, Seq: 1}); len(got.next) > 0 {
			t.Fatalf("Wait gave records of another log: %v", texts(got.next))
		}
	}},
	{"Gone", func(t *testing.T, x *suite) {
		s := x.open(t)
		_, _, err := s.Wait(limit(t), "unknown", spool.Head{Seq: 1})
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

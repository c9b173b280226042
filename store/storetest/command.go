package storetest

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// starved is after how many appends of its owner a session's commands count as shut out.
var starved = 30_000

// Promise: a command makes its session due in the same step, and an owner's
// settle clears the mark only if it has seen them all.
var commandChecks = []check{
	{"CommandMakesDue", func(t *testing.T, x *suite) {
		s := x.open(t)
		first := command(t, s, "s", "a").Head.Due
		if first <= 0 {
			t.Fatalf("due %d", first)
		}
		if x.Advance != nil {
			x.Advance(s, 1000e6)
		}
		if again := command(t, s, "s", "b").Head.Due; again != first {
			t.Fatalf("due went from %d to %d with the next command", first, again)
		}
		l := own(t, s, "s", "o")
		if h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 2, Next: first + 1e9}}).Head; h.Due != first+1e9 {
			t.Fatalf("due %d after settling", h.Due)
		}
		if h := command(t, s, "s", "c").Head; h.Due < first || h.Due >= first+1e9 {
			t.Fatalf("due %d after a command, the mark stood at %d", h.Due, first+1e9)
		}
	}},
	{"Settle", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c1") // 1
		l := own(t, s, "s", "o")
		due := l.Head.Due
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "t", 2)}) // 2, 3
		if h := head(t, s, "s"); h.Due != due {
			t.Fatalf("an append without settle moved due from %d to %d", due, h.Due)
		}
		command(t, s, "s", "c2") // 4
		res := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1, Records: recs(chunk.Trace, "u", 1), Settle: &spool.Settle{Seen: 3}})
		if res.First != 5 || res.Head.Due != due {
			t.Fatalf("settled past an unseen command: %+v", res)
		}
		res = put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 2, Settle: &spool.Settle{Seen: 4}})
		if res.Head.Due != 0 || res.Head.Seq != 5 {
			t.Fatalf("not settled: %+v", res)
		}
		res = put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 9, Next: 12345}})
		if res.Head.Due != 12345 {
			t.Fatalf("next due not taken: %+v", res)
		}
	}},
	{"Pending", func(t *testing.T, x *suite) {
		s := x.open(t)
		if h := command(t, s, "s", "a").Head; !h.Pending {
			t.Fatalf("after a command: %+v", h)
		}
		l := own(t, s, "s", "o")
		if !l.Head.Pending {
			t.Fatalf("claimed with head %+v", l.Head)
		}
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Kept, "r", 1), Row: spool.Row{Status: chunk.StatusPaused}})
		if h := head(t, s, "s"); !h.Pending {
			t.Fatalf("an append that settles nothing: %+v", h)
		}
		// A time at which the session is due does not make it pending, nor does its passing.
		h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 1, Next: 1}}).Head
		if h.Pending || h.Due != 1 || head(t, s, "s") != h {
			t.Fatalf("settled: %+v", h)
		}
		if h := command(t, s, "s", "b").Head; !h.Pending || h.Due != 1 {
			t.Fatalf("after another command: %+v", h)
		}
		h = put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 2}}).Head
		if !h.Pending {
			t.Fatalf("settled past a command that was not seen: %+v", h)
		}
		if trimmer, ok := s.(spool.Trimmer); ok {
			if err := trimmer.Delete(limit(t), "s"); err != nil {
				t.Fatal(err)
			}
			if h := own(t, s, "s", "o").Head; h.Pending {
				t.Fatalf("made again after deletion: %+v", h)
			}
		}
	}},
	{"OneBatchOfSeveral", func(t *testing.T, x *suite) {
		s := x.open(t)
		put(t, s, spool.Append{Session: "s", Records: recs(chunk.Kept, "edit", 2)})
		l := own(t, s, "s", "o")
		if h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 1}}).Head; h.Due == 0 {
			t.Fatal("settled while the second record of a command was unseen")
		}
		if h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 2}}).Head; h.Due != 0 {
			t.Fatalf("not settled: %+v", h)
		}
	}},
	{"RowFields", func(t *testing.T, x *suite) {
		s := x.open(t)
		put(t, s, spool.Append{Session: "s", Records: recs(chunk.Kept, "c", 1), Row: spool.Row{Agent: "helper", Principal: "ann", Title: "Hello"}})
		l := own(t, s, "s", "o")
		h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive}}).Head
		if h.Status != chunk.StatusActive {
			t.Fatalf("head %+v", h)
		}
		lister, ok := s.(spool.Lister)
		if !ok {
			return
		}
		i, err := lister.Session(limit(t), "s")
		if err != nil {
			t.Fatal(err)
		}
		want := spool.Row{Status: chunk.StatusActive, Agent: "helper", Principal: "ann", Title: "Hello"}
		if i.Row != want || i.Session != "s" || i.Head != h || i.Updated == 0 {
			t.Fatalf("row %+v", i)
		}
	}},
	{"EightWritersBesideASaturatedOwner", func(t *testing.T, x *suite) {
		s := x.open(t)
		const writers, each = 8, 20
		l := own(t, s, "s", "o")
		var running atomic.Int64
		running.Store(writers)
		ownerDone := make(chan int, 1)
		ctx, giveUp := context.WithCancel(limit(t))
		defer giveUp()
		go func() { // the owner appends without pause until the last command is in
			n := 0
			defer func() { ownerDone <- n }()
			for ; running.Load() > 0 || n < 20; n++ {
				if n == starved {
					t.Errorf("the owner made %d appends, and commands still wait", n)
					giveUp()
					return
				}
				runtime.Gosched() // few processors must not make the commands wait
				a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: uint64(n + 1), Records: recs(chunk.Trace, fmt.Sprintf("o-%d", n), 5)}
				if _, err := s.Append(limit(t), a); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		parallel(writers, func(w int) {
			defer running.Add(-1)
			for i := range each {
				if _, err := s.Append(ctx, spool.Append{Session: "s", Records: recs(chunk.Kept, fmt.Sprintf("c%d-%d", w, i), 1)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		batches := <-ownerDone
		if t.Failed() {
			return
		}
		all := log(t, s, "s", 0, 1000)
		if want := writers*each + batches*5; len(all) != want {
			t.Fatalf("%d records, want %d", len(all), want)
		}
		next, owner := make([]int, writers), 0
		var last uint64
		for _, r := range all {
			var w, i, k int
			if _, err := fmt.Sscanf(text(r), "c%d-%d/%d", &w, &i, &k); err == nil {
				if i != next[w] {
					t.Fatalf("writer %d: command %d where %d is next", w, i, next[w])
				}
				next[w]++
				last = r.Seq
				continue
			}
			if want := fmt.Sprintf("o-%d/%d", owner/5, owner%5); text(r) != want {
				t.Fatalf("owner's record %q where %q is next", text(r), want)
			}
			owner++
		}
		if h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: last - 1}}).Head; h.Due == 0 {
			t.Fatal("settled with one command unseen")
		}
		if h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: last}}).Head; h.Due != 0 {
			t.Fatal("not settled with all commands seen")
		}
	}},
}

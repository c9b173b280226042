package spool

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
)

// said returns what a log's deltas are, one a record.
func said(t *testing.T, recs []chunk.Record) (out []string) {
	t.Helper()
	for _, r := range recs {
		c, err := chunk.Decode(r.Data)
		if err != nil {
			t.Fatal(err)
		}
		if b := c.ChunkBase(); b.Timestamp != r.Time || b.AgentID != r.Agent || c.ChunkType() != r.Type {
			t.Errorf("the record of type %s of %s at %d holds %s", r.Type, r.Agent, r.Time, r.Data)
		}
		switch c := c.(type) {
		case *chunk.TextDelta:
			out = append(out, c.PartID+":"+c.Delta)
		case *chunk.Thinking:
			out = append(out, "thinking:"+c.Content)
		default:
			out = append(out, string(r.Type))
		}
	}
	return out
}

func part(id, s string) chunk.Chunk { return &chunk.TextDelta{PartID: id, Delta: s} }

// An owner's deltas that wait for an append become one record; whoever counts its records
// gets one for each.
func TestQueuedDeltasAreMerged(t *testing.T) {
	for _, merge := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store, g := newTestLog(t, nil)
			store.gate = make(chan struct{}, 100)
			ctx := context.Background()
			w := g.Writer(store.claim("s"), WriterOptions{Merge: merge, RunID: "r"})
			defer w.Close()
			put := func(chunks ...chunk.Chunk) {
				t.Helper()
				if err := w.Append(ctx, chunks...); err != nil {
					t.Fatal(err)
				}
			}
			put(part("p", "first"))
			synctest.Wait() // it is under way
			put(part("p", "a"))
			put(part("p", "b"))
			put(part("p", "c"))
			put(part("q", "d")) // another block
			put(part("q", "e"))
			put(&chunk.Thinking{Content: "f"})
			put(&chunk.Thinking{Content: "g"})
			w.SetStep(2)
			put(&chunk.Thinking{Content: "h"})  // another step
			put(part("p", "i"), part("p", "j")) // the chunks of one call stay as they are
			put(part("p", "k"))
			w.SetRun("r2")
			put(part("p", "l"))
			put(&chunk.StepCommitted{}) // a record between
			put(part("p", "m"))
			for range 100 {
				store.gate <- struct{}{}
			}
			res, err := w.Commit(ctx, Row{}, nil, part("p", "n"), part("p", "o"))
			if err != nil {
				t.Fatal(err)
			}
			recs := store.log("s")
			want := "p:first p:abc q:de thinking:fg thinking:h p:i p:j p:k p:l step_committed p:m p:n p:o"
			if !merge {
				want = "p:first p:a p:b p:c q:d q:e thinking:f thinking:g thinking:h p:i p:j p:k p:l step_committed p:m p:n p:o"
			}
			if got := strings.Join(said(t, recs), " "); got != want {
				t.Errorf("merge %v: the log says\n%s, want\n%s", merge, got, want)
			}
			if n := uint64(len(recs)); res.First != n-1 || res.Last != n {
				t.Errorf("the commit is at %d..%d of %d", res.First, res.Last, n)
			}
		})
	}
}

// A record of many deltas is bounded, and so is the queue.
func TestMergedDeltasAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		store.gate = make(chan struct{})
		ctx := context.Background()
		w := g.Writer(store.claim("s"), WriterOptions{Merge: true, QueueBytes: 200_000})
		defer w.Close()
		var want strings.Builder
		queued := 0
		done := make(chan error)
		blocked, cancel := context.WithCancel(ctx)
		go func() {
			for i := 0; ; i++ {
				s := fmt.Sprint(i, "\x01€ ")
				if err := w.Append(blocked, text(s)); err != nil {
					done <- err
					return
				}
				want.WriteString(s)
				queued += len(s)
			}
		}()
		synctest.Wait()
		if queued < 150_000 || queued > 200_000 {
			t.Errorf("a queue of 200000 bytes took %d of text", queued)
		}
		cancel()
		<-done
		close(store.gate)
		if err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		recs := store.log("s")
		if len(recs) < 10 || len(recs) > 20 || deltas(t, recs) != want.String() {
			t.Errorf("%d records of %d bytes, want %d", len(recs), len(deltas(t, recs)), want.Len())
		}
		for _, r := range recs {
			if len(r.Data) > 64<<10 {
				t.Errorf("a record of %d bytes", len(r.Data))
			}
		}
		if w.bytes != 0 {
			t.Errorf("an empty queue counts %d bytes", w.bytes)
		}
	})
}

// A delta lingers until its time is up, something else comes, or somebody waits for it.
func TestDeltasLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		ctx := context.Background()
		w := g.Writer(store.claim("s"), WriterOptions{Merge: true, Linger: time.Hour})
		defer w.Close()
		begun := time.Now()
		put := func(c chunk.Chunk) {
			t.Helper()
			if err := w.Append(ctx, c); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		put(part("p", "a"))
		time.Sleep(30 * time.Millisecond)
		put(part("p", "b"))
		if n := store.called("append"); n != 0 {
			t.Fatalf("%d appends at once", n)
		}
		time.Sleep(20 * time.Millisecond) // the bound of an hour
		synctest.Wait()
		if n := store.called("append"); n != 1 {
			t.Fatalf("%d appends after 50 ms", n)
		}
		put(part("p", "c"))
		put(&chunk.StepCommitted{})
		put(part("p", "d"))
		if err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		put(part("p", "e"))
		put(part("q", "f"))
		if err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d != 50*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		if got := strings.Join(said(t, store.log("s")), " "); got != "p:ab p:c step_committed p:d p:e q:f" {
			t.Errorf("the log says %s", got)
		}
		put(part("p", "g"))
	})
}

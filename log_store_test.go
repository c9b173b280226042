package spool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/memstore"
)

// One process runs a session, another sends commands and reads, over a real
// store: owners change, and every reader gets the same whole log.
func TestLogOverAStore(t *testing.T) {
	store := memstore.New(nil)
	defer store.Close()
	owner, edge := spool.NewLogs(store, &spool.Options{TailBytes: 10_000}), spool.NewLogs(store, nil)
	defer owner.Close()
	defer edge.Close()
	ctx := t.Context()
	remote, err := edge.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	say := func(id string) {
		m := chunk.Message{ID: id, Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: id}}}
		if _, err := remote.Command(ctx, spool.Row{}, &chunk.UserMessage{CommandID: id, Message: m}); err != nil {
			t.Error(err)
		}
	}
	say("first")

	const readers, turns, deltas = 20, 10, 100
	var wg sync.WaitGroup
	logs := make([][]chunk.Record, readers)
	for i := range logs {
		g := remote
		if i%2 == 0 {
			if g, err = owner.Log("s"); err != nil {
				t.Fatal(err)
			}
		}
		wg.Go(func() {
			r := g.Reader(spool.ReadOptions{Follow: true, Max: 1 + i})
			last := func(r chunk.Record) bool { return r.Type == chunk.TypeOutput }
			for !slices.ContainsFunc(logs[i], last) {
				recs, err := r.Next(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				logs[i] = append(logs[i], recs...)
			}
		})
	}

	var want strings.Builder
	for turn := range turns {
		if err := owner.AwaitDue(ctx, spool.Claim{Owner: "o"}); err != nil {
			t.Fatal(err)
		}
		lease, err := owner.Claim(ctx, spool.Claim{Owner: "o"})
		if err != nil {
			t.Fatal(err)
		}
		g, err := owner.Log(lease.Session)
		if err != nil {
			t.Fatal(err)
		}
		w := g.Writer(lease, spool.WriterOptions{})
		if _, err := w.Commit(ctx, spool.Row{Status: chunk.StatusActive}, nil); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { say(fmt.Sprint("next", turn)) })
		for i := range deltas {
			s := fmt.Sprint(turn, ".", i, " ")
			want.WriteString(s)
			if err := w.Append(ctx, &chunk.TextDelta{Delta: s}); err != nil {
				t.Fatal(err)
			}
		}
		if turn == turns-1 {
			if err := w.Append(ctx, &chunk.Output{Output: []byte("1")}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Commit(ctx, spool.Row{Status: chunk.StatusEnded}, &spool.Settle{Seen: lease.Head.Seq}); err != nil {
			t.Fatal(err)
		}
		if err := store.Release(ctx, lease); err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
	wg.Wait()
	for i, recs := range logs {
		var got strings.Builder
		for n, r := range recs {
			if r.Seq != uint64(n)+1 {
				t.Fatalf("reader %d: record %d has sequence %d", i, n, r.Seq)
			}
			c, err := chunk.Decode(r.Data)
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := c.(*chunk.TextDelta); ok {
				got.WriteString(d.Delta)
			}
		}
		if got.String() != want.String() {
			t.Errorf("reader %d got %d bytes of %d", i, got.Len(), want.Len())
		}
	}
	if _, err := remote.Reader(spool.ReadOptions{After: spool.Cursor{Seq: 1 << 40}}).Next(context.Background()); !errors.Is(err, spool.ErrCursorAhead) || errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// countsReads is a store that counts the reads of records and heads.
type countsReads struct {
	*memstore.Store
	heads, reads, records atomic.Int64
}

func (c *countsReads) Head(ctx context.Context, session string) (spool.Head, error) {
	c.heads.Add(1)
	return c.Store.Head(ctx, session)
}

func (c *countsReads) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	c.reads.Add(1)
	recs, h, err := c.Store.Read(ctx, session, after, max)
	c.records.Add(int64(len(recs)))
	return recs, h, err
}

// Readers that all come back after a restart, each with another position near the end,
// read what they lack once, together. Without room for it, each reads for itself.
func TestComingBackReadsOnce(t *testing.T) {
	const stored, lowest, readers = 3000, 2100, 500
	store := &countsReads{Store: memstore.New(nil)}
	before := spool.NewLogs(store.Store, nil)
	defer before.Close()
	local, err := before.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := before.Claim(t.Context(), spool.Claim{Owner: "o", Session: "s", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	w := local.Writer(lease, spool.WriterOptions{})
	defer w.Close()
	for range stored / 100 {
		deltas := make([]chunk.Chunk, 100)
		for i := range deltas {
			deltas[i] = &chunk.TextDelta{Delta: "x"}
		}
		if _, err := w.Commit(t.Context(), spool.Row{}, nil, deltas...); err != nil {
			t.Fatal(err)
		}
	}
	for _, room := range []int{1 << 20, 1 << 10} {
		store.records.Store(0)
		logs := spool.NewLogs(store, &spool.Options{TailBytes: room})
		g, err := logs.Log("s")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for n := range readers {
			all.Go(func() {
				next := uint64(lowest + n)
				r := g.Reader(spool.ReadOptions{After: spool.Cursor{Seq: next}, Follow: true, Max: 1 + n})
				for next < stored {
					recs, err := r.Next(t.Context())
					if err != nil || len(recs) > 1+n {
						t.Errorf("%d records, %v", len(recs), err)
						return
					}
					for _, rec := range recs {
						if next++; rec.Seq != next {
							t.Errorf("record %d, want %d", rec.Seq, next)
							return
						}
					}
				}
			})
		}
		all.Wait()
		if n := store.records.Load(); room == 1<<20 && n != stored-lowest {
			t.Errorf("%d records were read, of %d that somebody lacked", n, stored-lowest)
		}
		_ = logs.Close()
	}
}

// What a store passes on with the head, readers in other processes get without a read.
func TestRemoteDeltasCostNoRead(t *testing.T) {
	store := &countsReads{Store: memstore.New(nil)}
	owner, edge := spool.NewLogs(store.Store, nil), spool.NewLogs(store, nil)
	defer owner.Close()
	defer edge.Close()
	local, err := owner.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := owner.Claim(t.Context(), spool.Claim{Owner: "o", Session: "s", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	w := local.Writer(lease, spool.WriterOptions{})
	defer w.Close()
	g, err := edge.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	r := g.Reader(spool.ReadOptions{Follow: true})
	for i := range 100 {
		if err := w.Append(t.Context(), &chunk.TextDelta{Delta: "x"}); err != nil {
			t.Fatal(err)
		}
		recs, err := r.Next(t.Context())
		if err != nil || len(recs) != 1 || recs[0].Seq != uint64(i+1) {
			t.Fatalf("delta %d: %+v, %v", i, recs, err)
		}
	}
	if heads, reads := store.heads.Load(), store.reads.Load(); heads > 1 || reads > 1 {
		t.Fatalf("100 deltas cost %d reads of heads and %d of records", heads, reads)
	}
}

package spool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
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

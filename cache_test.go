package spool

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
)

// The tails and projections of all sessions share a budget. Beyond it each keeps little,
// and readers get everything all the same.
func TestCachesOfAllSessionsAreBounded(t *testing.T) {
	const sessions, size, budget = 20, 400 << 10, 2 << 20
	store := newFakeStore()
	logs := NewLogs(store, &Options{CacheBytes: budget})
	defer logs.Close()
	ctx := context.Background()
	var all []*Log
	for i := range sessions {
		session := fmt.Sprint("s", i)
		g, err := logs.Log(session)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
		w := g.Writer(store.claim(session), WriterOptions{})
		if _, err := w.Commit(ctx, Row{Status: chunk.StatusActive}, nil, &chunk.RunStarted{}); err != nil {
			t.Fatal(err)
		}
		f := g.Projection(ProjectionOptions{Key: "lines", New: mkLines(nil)}).Follow(Head{}, 0)
		for n := 0; n < size; n += 4 << 10 {
			if err := w.Append(ctx, text(strings.Repeat("x", 4<<10))); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Next(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Commit(ctx, Row{Status: chunk.StatusEnded}, &Settle{}, &chunk.RunFinished{}); err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
	// Each may have one segment and one record above what it keeps at least.
	if n := logs.cache.Held(); n > budget+sessions*3*leastTail || n < budget {
		t.Errorf("%d sessions hold %d bytes, the budget is %d", sessions, n, budget)
	}
	for _, g := range all {
		want := uint64(1)
		r := g.Reader(ReadOptions{})
		for {
			recs, err := r.Next(ctx)
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			contiguous(t, recs, want-1)
			want += uint64(len(recs))
		}
		if want != 2+size>>12+1 {
			t.Errorf("%d records", want-1)
		}
	}

	// What nobody uses any more is not counted.
	all = nil
	for i := range 40 {
		if _, err := logs.Log(fmt.Sprint("other", i)); err != nil { // they take the place of the cached ones
			t.Fatal(err)
		}
	}
	for tries := 0; logs.cache.Held() > 0; tries++ {
		if tries == 1000 {
			t.Fatalf("%d bytes are still counted", logs.cache.Held())
		}
		runtime.GC()
		runtime.Gosched()
	}
}

package spool

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// The tails and projections of all sessions share a budget. Beyond it each keeps little,
// and readers get everything all the same.
func TestCachesOfAllSessionsAreBounded(t *testing.T) {
	const sessions, size, budget = 20, 400 << 10, 2 << 20
	store := newFakeStore()
	logs := NewLogs(store, &Options{CacheBytes: budget, WarmBytes: 32 * leastLog})
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

// Folds that nobody uses stay in memory up to a number of bytes: many small ones, or few
// large ones. One that is needed again is folded again.
func TestWarmFoldsAreBounded(t *testing.T) {
	const budget = 2 << 20
	for name, x := range map[string]struct{ sessions, messages, warm int }{
		"small": {100, 1, 100},
		"large": {20, 10, 3}, // 10 messages of 30 KB, twice
	} {
		t.Run(name, func(t *testing.T) {
			logs := NewLogs(newFakeStore(), &Options{WarmBytes: budget})
			defer logs.Close()
			ctx := context.Background()
			say := strings.Repeat("x", 30_000)
			if x.messages == 1 {
				say = "x"
			}
			for i := range x.sessions {
				g, err := logs.Log(fmt.Sprint("s", i))
				if err != nil {
					t.Fatal(err)
				}
				for n := range x.messages {
					id := fmt.Sprint("m", n)
					if _, err := g.Command(ctx, Row{}, &chunk.UserMessage{CommandID: id, WhenBusy: chunk.BusyQueue,
						Message: chunk.Message{ID: id, Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: say}}}}); err != nil {
						t.Fatal(err)
					}
				}
				if err := g.View(ctx, func(*fold.Fold) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			known := func() int {
				logs.mu.Lock()
				defer logs.mu.Unlock()
				return len(logs.logs)
			}
			for tries := 0; known() > x.warm; tries++ {
				if tries == 1000 {
					t.Fatalf("%d folds are in memory, want %d", known(), x.warm)
				}
				runtime.GC()
				runtime.Gosched()
			}
			runtime.GC()
			if n := known(); n != x.warm {
				t.Errorf("%d folds are in memory, want %d", n, x.warm)
			}
			g, err := logs.Log("s0")
			if err != nil {
				t.Fatal(err)
			}
			if err := g.View(ctx, func(f *fold.Fold) error {
				if len(f.Waiting) != x.messages {
					t.Errorf("%d messages", len(f.Waiting))
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

package spool_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/store/memstore"
)

// heldReads is a store whose reads of records wait.
type heldReads struct {
	*memstore.Store
	now, most atomic.Int64
	free      chan struct{}
}

func (h *heldReads) wait(ctx context.Context) {
	h.most.Store(max(h.most.Load(), h.now.Add(1)))
	select {
	case <-h.free:
	case <-ctx.Done():
	}
	h.now.Add(-1)
}

func (h *heldReads) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	h.wait(ctx)
	return h.Store.Read(ctx, session, after, max)
}

// LoadFold finds none.
func (h *heldReads) LoadFold(context.Context, string, string) (spool.SavedFold, error) {
	return spool.SavedFold{}, spool.ErrNotFound
}

// After a restart, a bounded number of sessions are folded at a time. The others wait in
// line, those that leave meanwhile take no place, and a fold that exists waits for nobody.
func TestColdFoldsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sessions, atOnce = 100, 32
		store := &heldReads{Store: memstore.New(nil), free: make(chan struct{})}
		before, logs := spool.NewLogs(store.Store, nil), spool.NewLogs(store, nil)
		defer before.Close()
		defer logs.Close()
		say := func(g *spool.Log, err error) *spool.Log {
			t.Helper()
			if err == nil {
				_, err = g.Command(t.Context(), spool.Row{}, &chunk.UserMessage{CommandID: "u1", Message: chunk.Message{ID: "u1", Role: chunk.RoleUser}})
			}
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		look := func(ctx context.Context, g *spool.Log) error {
			return g.View(ctx, func(*fold.Fold) error { return nil })
		}
		warm := say(logs.Log("warm")) // written here, so that the tail has it
		if err := look(t.Context(), warm); err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var folded atomic.Int64
		for i := range sessions {
			id := strconv.Itoa(i)
			say(before.Log(id))
			g, err := logs.Log(id)
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if i%2 == 1 {
				ctx = gone
			}
			all.Go(func() {
				if look(ctx, g) == nil {
					folded.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := store.now.Load(); n != atOnce {
			t.Errorf("%d sessions are folded at a time, want %d", n, atOnce)
		}
		if err := look(t.Context(), warm); err != nil {
			t.Error(err)
		}
		leave()
		synctest.Wait()
		close(store.free)
		all.Wait()
		if n := folded.Load(); n != sessions/2 || store.most.Load() != atOnce {
			t.Errorf("%d sessions were folded, %d at a time", n, store.most.Load())
		}
	})
}

package spool_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/store/memstore"
)

// hungReads is a store whose heads are there and whose records are not: reads of them hang.
type hungReads struct {
	*memstore.Store
	hangs atomic.Bool
	reads atomic.Int64
}

func (h *hungReads) hang(ctx context.Context) error {
	if h.reads.Add(1); !h.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hungReads) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	if err := h.hang(ctx); err != nil {
		return nil, spool.Head{}, err
	}
	return h.Store.Read(ctx, session, after, max)
}

func (h *hungReads) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	if err := h.hang(ctx); err != nil {
		return nil, spool.Head{}, err
	}
	return h.Store.ReadKept(ctx, session, q)
}

// inHungReads calls test with a session that another process writes to with say.
func inHungReads(t *testing.T, test func(t *testing.T, store *hungReads, g *spool.Log, say func(id string) spool.Head)) {
	synctest.Test(t, func(t *testing.T) {
		store := &hungReads{Store: memstore.New(nil)}
		defer store.Close()
		logs, other := spool.NewLogs(store, nil), spool.NewLogs(store.Store, nil)
		defer logs.Close()
		defer other.Close()
		there, err := other.Log("s")
		if err != nil {
			t.Fatal(err)
		}
		g, err := logs.Log("s")
		if err != nil {
			t.Fatal(err)
		}
		test(t, store, g, func(id string) spool.Head {
			res, err := there.Command(t.Context(), spool.Row{}, say(id, "hi"))
			if err != nil {
				t.Fatal(err)
			}
			return res.Head
		})
	})
}

func look(*fold.Fold) error { return nil }

// A store that hangs holds all who look at a session for as long as one of them: they share
// the call that hangs. Those who wait for the store do not keep the others.
func TestHungReadIsShared(t *testing.T) {
	inHungReads(t, func(t *testing.T, store *hungReads, g *spool.Log, say func(string) spool.Head) {
		const many = 20
		say("c1")
		store.hangs.Store(true)
		patient, leave := context.WithCancel(spool.WaitForStore(t.Context()))
		var waiting, asking sync.WaitGroup
		for range many {
			waiting.Go(func() {
				if err := g.View(patient, look); err != nil {
					t.Errorf("who waits for the store gets %v", err)
				}
			})
		}
		synctest.Wait()
		begun, before := time.Now(), store.reads.Load()
		for range many {
			asking.Go(func() {
				if err := g.View(t.Context(), look); !errors.Is(err, spool.ErrUnavailable) {
					t.Errorf("who does not gets %v", err)
				}
			})
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := g.View(ctx, look); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("who has a second gets %v", err)
				}
			})
		}
		asking.Wait()
		if reads := store.reads.Load() - before; time.Since(begun) > 10*time.Second || reads > 1 {
			t.Errorf("%d requests ended after %v and %d reads", 2*many, time.Since(begun), reads)
		}
		store.hangs.Store(false)
		waiting.Wait()
		leave()
	})
}

// One who leaves takes no other along who waits for the same call.
func TestLookWhoseCallerLeaves(t *testing.T) {
	inHungReads(t, func(t *testing.T, store *hungReads, g *spool.Log, say func(string) spool.Head) {
		say("c1")
		store.hangs.Store(true)
		ctx, leave := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- g.View(ctx, look) }()
		synctest.Wait()
		go func() { second <- g.View(t.Context(), look) }()
		synctest.Wait()
		store.hangs.Store(false)
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// A caller whose head the fold in memory holds looks at that fold, if the store gives no
// answer that would make it newer.
func TestWarmFoldWaitsForNoStore(t *testing.T) {
	inHungReads(t, func(t *testing.T, store *hungReads, g *spool.Log, say func(string) spool.Head) {
		known := say("c1")
		if err := g.View(t.Context(), look); err != nil {
			t.Fatal(err)
		}
		later := say("c2")
		store.hangs.Store(true)
		ended := make(chan error, 1)
		go func() { ended <- g.View(spool.WaitForStore(t.Context()), look) }()
		synctest.Wait()
		begun := time.Now()
		err := g.ViewAt(t.Context(), known, func(f *fold.Fold) error {
			if f.Seq != known.Seq {
				t.Errorf("the fold is at %d, want %d", f.Seq, known.Seq)
			}
			return nil
		})
		if err != nil || time.Since(begun) > 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if err := g.ViewAt(t.Context(), later, look); !errors.Is(err, spool.ErrUnavailable) {
			t.Errorf("of a later head: %v", err)
		}
		store.hangs.Store(false)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

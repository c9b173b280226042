package memstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// clocked is a store with the clock it was given.
type clocked struct {
	*memstore.Store
	clock *storetest.Clock
}

func open(t testing.TB) spool.Store {
	clock := storetest.NewClock()
	s := memstore.New(&memstore.Options{Now: clock.Now})
	t.Cleanup(func() { s.Close() })
	return clocked{s, clock}
}

func TestStore(t *testing.T) {
	storetest.Run(t, open, storetest.Options{
		Advance: func(s spool.Store, d time.Duration) { s.(clocked).clock.Advance(d) },
		Another: func(_ testing.TB, s spool.Store) spool.Store { return s },
	})
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, open) }

// In a bubble the store's time is the bubble's: AwaitDue sleeps until a lease
// expires, to the millisecond.
func TestSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		l, err := s.Claim(t.Context(), spool.Claim{Owner: "a", Session: "s", Force: true})
		if err != nil || l.TTL != spool.DefaultLeaseTTL {
			t.Fatal(l, err)
		}
		if _, err := s.Append(t.Context(), spool.Append{Session: "s", Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive}}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := s.AwaitDue(t.Context(), spool.Claim{Owner: "b"}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != spool.DefaultLeaseTTL {
			t.Fatalf("woke after %v", d)
		}
		if _, err := s.Claim(t.Context(), spool.Claim{Owner: "b"}); err != nil {
			t.Fatal(err)
		}
	})
}

// Waiting for names that nobody uses leaves nothing behind: the session's first
// append after such a wait still finds its place.
func TestAbandonedWaits(t *testing.T) {
	s := memstore.New(nil)
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Wait(ctx, "s", spool.Head{})
		}()
		cancel()
		res, err := s.Append(t.Context(), spool.Append{Session: "s", Records: []chunk.Record{{Type: "x", Data: []byte(`{}`)}}})
		if err != nil || res.First != 1 {
			t.Fatalf("%+v, %v", res, err)
		}
		<-done
		if rs, _, err := s.Read(t.Context(), "s", 0, 10); err != nil || len(rs) != 1 {
			t.Fatalf("%d records, %v", len(rs), err)
		}
		s = memstore.New(nil)
	}
}

// A waiter gets the next records with the head, and need not read.
func TestWaitCarriesRecords(t *testing.T) {
	s := memstore.New(nil)
	rec := chunk.Record{Type: "x", Data: []byte(`{}`)}
	res, err := s.Append(t.Context(), spool.Append{Session: "s", Records: []chunk.Record{rec}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), spool.Append{Session: "s", Records: []chunk.Record{rec, rec}}); err != nil {
		t.Fatal(err)
	}
	h, next, err := s.Wait(t.Context(), "s", res.Head)
	if err != nil || h.Seq != 3 || len(next) != 2 || next[0].Seq != 2 || next[1].Seq != 3 {
		t.Fatalf("%+v, %+v, %v", h, next, err)
	}
}

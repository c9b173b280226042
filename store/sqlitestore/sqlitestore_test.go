package sqlitestore

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/storetest"
)

// clocked is a store with the clock it was given.
type clocked struct {
	*Store
	clock *storetest.Clock
}

func openClocked(t testing.TB, path string, clock *storetest.Clock, sync string) spool.Store {
	s, err := Open(path, &Options{Now: clock.Now, Sync: sync})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return clocked{s, clock}
}

func TestMain(m *testing.M) {
	storetest.Main(m, func(location string) (spool.Store, error) { return Open(location, nil) })
}

func TestStore(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{SyncFull, SyncNormal} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			o := storetest.Options{
				Reopen: func(t testing.TB, s spool.Store) spool.Store {
					c := s.(clocked)
					if err := c.Close(); err != nil {
						t.Fatal(err)
					}
					return openClocked(t, c.path, c.clock, sync)
				},
				Advance:   func(s spool.Store, d time.Duration) { s.(clocked).clock.Advance(d) },
				Location:  func(s spool.Store) string { return s.(clocked).path },
				KnowsDead: true,
				Again:     sync != SyncFull,
			}
			if o.Again { // several instances at once, in one of the runs
				o.Another = func(t testing.TB, s spool.Store) spool.Store {
					return openClocked(t, s.(clocked).path, s.(clocked).clock, sync)
				}
			}
			storetest.Run(t, func(t testing.TB) spool.Store {
				return openClocked(t, filepath.Join(t.TempDir(), "a b%20ü?.db"), storetest.NewClock(), sync)
			}, o)
		})
	}
}

// The suite on real time, so that leases expire by themselves.
func TestStoreOnRealTime(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) spool.Store {
		s, err := Open(filepath.Join(t.TempDir(), "spool.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}, storetest.Options{Again: true})
}

func benchmark(b *testing.B, mode string) {
	var mu sync.Mutex
	storetest.Bench(b, func(t testing.TB) spool.Store {
		mu.Lock()
		defer mu.Unlock()
		s, err := Open(filepath.Join(t.TempDir(), "spool.db"), &Options{Sync: mode})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}

func BenchmarkStoreFull(b *testing.B)   { benchmark(b, SyncFull) }
func BenchmarkStoreNormal(b *testing.B) { benchmark(b, SyncNormal) }

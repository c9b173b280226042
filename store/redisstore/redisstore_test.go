//go:build nodes

package redisstore

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/store/storetest"
)

// shift is what the server's clock is set off by, for all instances of a store.
type shift struct{ ms atomic.Int64 }

func (c *shift) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }
func (c *shift) now() time.Duration      { return time.Duration(c.ms.Load()) * time.Millisecond }

// shifted is a store, its clock, and where it is.
type shifted struct {
	*Store
	clock *shift
	url   string
}

func openShifted(t testing.TB, url string, clock *shift, o Options) spool.Store {
	t.Helper()
	o.offset = clock.now
	s, err := Open(url, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return shifted{s, clock, url}
}

var prefixes atomic.Int64

// fresh is the URL of an empty store on a server.
func fresh(addr string, more ...string) string {
	return fmt.Sprintf("redis://%s/0?prefix=t%d%s", addr, prefixes.Add(1), strings.Join(more, ""))
}

func TestMain(m *testing.M) {
	storetest.Main(m, func(location string) (spool.Store, error) { return Open(location, nil) })
}

func TestStore(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t, "--appendfsync", "no")
	storetest.Run(t, func(t testing.TB) spool.Store {
		return openShifted(t, fresh(server.Addr(), "&buckets=3"), &shift{}, Options{})
	}, storetest.Options{
		Reopen: func(t testing.TB, s spool.Store) spool.Store {
			c := s.(shifted)
			c.Close()
			return openShifted(t, c.url, c.clock, Options{})
		},
		Another: func(t testing.TB, s spool.Store) spool.Store {
			c := s.(shifted)
			return openShifted(t, c.url, c.clock, Options{})
		},
		Advance:  func(s spool.Store, d time.Duration) { s.(shifted).clock.advance(d) },
		Location: func(s spool.Store) string { return s.(shifted).url },
	})
}

func BenchmarkStore(b *testing.B) {
	server := engines.Redis(b, "--appendfsync", "everysec")
	storetest.Bench(b, func(t testing.TB) spool.Store { return openShifted(t, fresh(server.Addr()), &shift{}, Options{}) })
}

//go:build nodes && unix

package natsstore

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

// clocked is a store with the clock and the server it was given.
type clocked struct {
	*Store
	url   string
	clock *storetest.Clock
}

var prefixes atomic.Int64

func TestMain(m *testing.M) {
	storetest.Main(m, func(location string) (spool.Store, error) {
		url, prefix, _ := strings.Cut(location, " ")
		return Open(url, &Options{Prefix: prefix})
	})
}

func openAt(t testing.TB, url, prefix string, clock *storetest.Clock) clocked {
	t.Helper()
	o := &Options{Prefix: prefix}
	if clock != nil {
		o.Now = clock.Now
	}
	s, err := Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return clocked{s, url, clock}
}

func TestStoreNATS(t *testing.T) {
	server := engines.NATS(t)
	url := "nats://" + server.Addr()
	fresh := func(t testing.TB) string { return fmt.Sprint("t", prefixes.Add(1)) }
	storetest.Run(t, func(t testing.TB) spool.Store {
		return openAt(t, url, fresh(t), storetest.NewClock())
	}, storetest.Options{
		Reopen: func(t testing.TB, s spool.Store) spool.Store {
			c := s.(clocked)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			return openAt(t, c.url, c.prefix, c.clock)
		},
		Advance:  func(s spool.Store, d time.Duration) { s.(clocked).clock.Advance(d) },
		Location: func(s spool.Store) string { return s.(clocked).url + " " + s.(clocked).prefix },
		Another: func(t testing.TB, s spool.Store) spool.Store {
			c := s.(clocked)
			return openAt(t, c.url, c.prefix, c.clock)
		},
		Notify: func(t testing.TB, s spool.Store, times int) func() {
			c := s.(clocked)
			c.deliver.Store(int32(times))
			return func() { c.deliver.Store(1) }
		},
	})
}

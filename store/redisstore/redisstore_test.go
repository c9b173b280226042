//go:build nodes

package redisstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/store/storetest"
)

// place is where a store is, and what its instances share.
type place struct {
	server  *engines.Server
	proxy   *netcut.Proxy // between the instances and the server
	url     string
	ms      atomic.Int64 // what the server's clock is set off by
	deliver atomic.Int64 // how often notifications are delivered

	mu     sync.Mutex
	stores []*Store
}

// instance is one of a place's stores.
type instance struct {
	*Store
	place *place
}

var prefixes atomic.Int64

// newPlace is an empty store's. It has a proxy of its own, unless it is on a cluster.
func newPlace(t testing.TB, server *engines.Server, proxied bool, more string) *place {
	t.Helper()
	p := &place{server: server}
	p.deliver.Store(1)
	addr := server.Addr()
	if proxied {
		proxy, err := netcut.Start(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { proxy.Close() })
		p.proxy, addr = proxy, proxy.Addr()
	}
	p.url = fmt.Sprintf("redis://%s?prefix=t%d%s", addr, prefixes.Add(1), more)
	return p
}

func (p *place) open(t testing.TB) spool.Store {
	t.Helper()
	s, err := Open(p.url, &Options{
		offset:  func() time.Duration { return time.Duration(p.ms.Load()) * time.Millisecond },
		deliver: func() int { return int(p.deliver.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stores = append(p.stores, s)
	return instance{s, p}
}

// reached returns when every instance is connected again.
func (p *place) reached(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stores {
		for err := error(spool.ErrUnavailable); errors.Is(err, spool.ErrUnavailable); {
			err = s.Probe(t.Context())
		}
	}
}

func of(s spool.Store) *place { return s.(instance).place }

func TestMain(m *testing.M) {
	storetest.Main(m, func(location string) (spool.Store, error) { return Open(location, nil) })
}

// promises are what every store in Redis promises.
func promises() storetest.Options {
	return storetest.Options{
		Reopen: func(t testing.TB, s spool.Store) spool.Store {
			s.(instance).Close()
			return of(s).open(t)
		},
		Another:  func(t testing.TB, s spool.Store) spool.Store { return of(s).open(t) },
		Advance:  func(s spool.Store, d time.Duration) { of(s).ms.Add(d.Milliseconds()) },
		Location: func(s spool.Store) string { return of(s).url },
		Notify: func(_ testing.TB, s spool.Store, times int) func() {
			of(s).deliver.Store(int64(times))
			return func() { of(s).deliver.Store(1) }
		},
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t, "--appendfsync", "no")
	o := promises()
	o.Break = func(_ testing.TB, s spool.Store) func() {
		of(s).proxy.Refuse()
		of(s).proxy.Cut()
		return of(s).proxy.Restore
	}
	storetest.Run(t, func(t testing.TB) spool.Store { return newPlace(t, server, true, "&buckets=3").open(t) }, o)
}

// Each store has a server of its own, which can be set back to a backup.
func TestStoreSetBack(t *testing.T) {
	t.Parallel()
	o := promises()
	o.Again = true
	o.Rewind = func(t testing.TB, s spool.Store) func() {
		server := of(s).server
		file := filepath.Join(server.Dir(), "dump.rdb")
		do(t, server, "SAVE")
		backup, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			server.Kill()
			if err := os.WriteFile(file, backup, 0o600); err != nil {
				t.Fatal(err)
			}
			server.Start()
			of(s).reached(t)
		}
	}
	storetest.Run(t, func(t testing.TB) spool.Store {
		return newPlace(t, engines.Redis(t, "--appendonly", "no"), false, "").open(t)
	}, o)
}

// The suite on a cluster of three primaries.
func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	servers := engines.RedisCluster(t)
	o := promises()
	o.Again = true
	storetest.Run(t, func(t testing.TB) spool.Store { return newPlace(t, servers[0], false, "&buckets=4").open(t) }, o)
}

// do has a server execute a command.
func do(t testing.TB, server *engines.Server, command ...string) rueidis.RedisResult {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := c.Do(t.Context(), c.B().Arbitrary(command...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", command, err)
	}
	return r
}

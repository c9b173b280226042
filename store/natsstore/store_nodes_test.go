//go:build nodes && unix

package natsstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/store/storetest"
)

// clocked is a store with the clock and the server it was given.
type clocked struct {
	*Store
	url   string
	clock *storetest.Clock
	proxy *netcut.Proxy // to the server
}

var prefixes atomic.Int64

func TestMain(m *testing.M) {
	storetest.Main(m, func(location string) (spool.Store, error) {
		url, prefix, _ := strings.Cut(location, " ")
		return Open(url, &Options{Prefix: prefix})
	})
}

// connected are the stores of each prefix.
var connected = struct {
	sync.Mutex
	by map[string][]clocked
}{by: map[string][]clocked{}}

// openAt opens a store behind a proxy of its own.
func openAt(t testing.TB, url, prefix string, clock *storetest.Clock) clocked {
	t.Helper()
	o := &Options{Prefix: prefix}
	if clock != nil {
		o.Now = clock.Now
	}
	p, err := netcut.Start(strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s, err := Open("nats://"+p.Addr(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c := clocked{s, url, clock, p}
	connected.Lock()
	connected.by[prefix] = append(connected.by[prefix], c)
	connected.Unlock()
	return c
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
		Rewind: rewind,
		Break: func(t testing.TB, s spool.Store) func() {
			p := s.(clocked).proxy
			p.Refuse()
			p.Cut()
			return p.Restore
		},
	})
}

// The server is killed under an owner, three times: what was acknowledged is there, in order
// and once, and the session goes on under the same incarnation.
func TestNATSServerKilled(t *testing.T) {
	server := engines.NATS(t)
	s := openAt(t, "nats://"+server.Addr(), "killed", nil)
	appendUnderKills(t, s.Store, func() {
		server.Kill()
		server.Start()
	})
}

// The same of a cluster of three servers whose leader is killed.
func TestNATSLeaderKilled(t *testing.T) {
	s, servers := openCluster(t)
	appendUnderKills(t, s, func() {
		leader := engines.NATSLeader(t, servers)
		leader.Kill()
		leader.Start()
	})
}

func appendUnderKills(t *testing.T, s *Store, kill func()) {
	t.Helper()
	l, err := s.Claim(t.Context(), spool.Claim{Owner: "o", Session: "s", Force: true, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	const rounds, each = 3, 50
	var last spool.Head
	for n := range rounds * each {
		if n%each == each/2 {
			kill()
		}
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: uint64(n + 1),
			Records: []chunk.Record{{Type: chunk.TypeTextDelta, Class: chunk.Trace, Data: []byte(fmt.Sprint(n))}}}
		for {
			res, err := s.Append(t.Context(), a)
			if err == nil {
				last = res.Head
				break
			}
			if !errors.Is(err, spool.ErrUnavailable) {
				t.Fatal(err)
			}
		}
	}
	if last.Seq != rounds*each || last.Incarnation != l.Head.Incarnation {
		t.Fatalf("head %+v after %d appends; claimed at %+v", last, rounds*each, l.Head)
	}
	recs, _, err := s.Read(t.Context(), "s", 0, 0)
	if err != nil || len(recs) != rounds*each {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	for n, r := range recs {
		if string(r.Data) != fmt.Sprint(n) {
			t.Fatalf("record %d is %s", n, r.Data)
		}
	}
}

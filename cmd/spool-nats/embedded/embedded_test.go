package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/natsstore"
	"github.com/spool-run/spool/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Main(m, func(location string) (spool.Store, error) {
		url, prefix, _ := strings.Cut(location, " ")
		return natsstore.Open(url, &natsstore.Options{Prefix: prefix})
	})
}

// clocked is a store with the clock that it was given.
type clocked struct {
	*natsstore.Store
	prefix string
	clock  *storetest.Clock
}

// A store on a server in this process passes the suite.
func TestStoreEmbedded(t *testing.T) {
	server, err := start(&Options{Dir: t.TempDir(), Clients: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	open := func(t testing.TB, prefix string, clock *storetest.Clock) spool.Store {
		t.Helper()
		s, err := natsstore.Open("", &natsstore.Options{Prefix: prefix, Now: clock.Now, Connect: server.connect()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return clocked{s, prefix, clock}
	}
	var prefixes atomic.Int64
	storetest.Run(t, func(t testing.TB) spool.Store {
		return open(t, fmt.Sprint("t", prefixes.Add(1)), storetest.NewClock())
	}, storetest.Options{
		Reopen: func(t testing.TB, s spool.Store) spool.Store {
			c := s.(clocked)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, c.prefix, c.clock)
		},
		Advance:  func(s spool.Store, d time.Duration) { s.(clocked).clock.Advance(d) },
		Location: func(s spool.Store) string { return server.ClientURL() + " " + s.(clocked).prefix },
		Another: func(t testing.TB, s spool.Store) spool.Store {
			c := s.(clocked)
			return open(t, c.prefix, c.clock)
		},
		Again: true, // natsstore's own tests run all of it
	})
}

// members are the options of a cluster's servers.
func members(t testing.TB, secret string) []*Options {
	t.Helper()
	var addrs []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	var all []*Options
	for _, self := range addrs {
		all = append(all, &Options{Dir: t.TempDir(), Members: addrs, Self: self, Secret: secret})
	}
	return all
}

// openAll opens the stores of members at once: each waits for the others.
func openAll(t testing.TB, all []*Options) []*Store {
	t.Helper()
	stores := make([]*Store, len(all))
	var opening sync.WaitGroup
	for i, o := range all {
		opening.Go(func() {
			var err error
			if stores[i], err = Open(t.Context(), o); err != nil {
				t.Errorf("member %d: %v", i, err)
			}
		})
	}
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, s := range stores {
		t.Cleanup(func() { s.Close() })
	}
	return stores
}

// Three servers are one store. Each in turn ends, while the others go on, and comes back;
// then all end and come back. Every record is there once.
func TestCluster(t *testing.T) {
	t.Parallel()
	all := members(t, "shared")
	stores := openAll(t, all)
	l, err := stores[0].Claim(t.Context(), spool.Claim{Owner: "o", Session: "s", Force: true, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	say := func(s *Store) {
		t.Helper()
		said++
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: uint64(said),
			Records: []chunk.Record{{Type: chunk.TypeTextDelta, Class: chunk.Trace, Data: []byte(fmt.Sprint(said))}}}
		for {
			_, err := s.Append(t.Context(), a)
			if err == nil {
				return
			}
			if !errors.Is(err, spool.ErrUnavailable) {
				t.Fatal(err)
			}
		}
	}
	for i := range stores {
		say(stores[i])
		if err := stores[i].Close(); err != nil {
			t.Fatal(err)
		}
		say(stores[(i+1)%3])
		say(stores[(i+2)%3])
		s, err := Open(t.Context(), all[i])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		stores[i] = s
	}
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range openAll(t, all) {
		recs, h, err := s.Read(t.Context(), "s", 0, 0)
		if err != nil || len(recs) != said || h.Seq != uint64(said) || h.Incarnation != l.Head.Incarnation {
			t.Fatalf("%d of %d records, %+v, %v", len(recs), said, h, err)
		}
		for n, r := range recs {
			if string(r.Data) != fmt.Sprint(n+1) {
				t.Errorf("record %d is %s", n+1, r.Data)
			}
		}
	}
}

// A member that does not know the secret is none: the others have a leader, and it waits
// until it is told to end.
func TestSecret(t *testing.T) {
	t.Parallel()
	all := members(t, "shared")
	all[2].Secret = "another"
	var started []*Store
	for _, o := range all {
		s, err := start(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		started = append(started, s)
	}
	for i, s := range started[:2] {
		if err := s.await(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := s.members(); n != 2 {
			t.Errorf("member %d knows %d", i, n)
		}
	}
	if n := started[2].members(); n != 1 {
		t.Errorf("the third knows %d", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := started[2].await(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A directory belongs to one process, and a port that is taken is an error.
func TestTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(t.Context(), &Options{Dir: dir, Clients: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), &Options{Dir: dir}); !errors.Is(err, spool.ErrUnavailable) || !strings.Contains(err.Error(), dir) {
		t.Errorf("the same directory: %v", err)
	}
	addr := strings.TrimPrefix(s.ClientURL(), "nats://")
	if _, err := Open(t.Context(), &Options{Dir: t.TempDir(), Clients: addr}); !errors.Is(err, spool.ErrUnavailable) {
		t.Errorf("the same port: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), &Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Options that contradict each other, and addresses that others reach without a secret, are
// refused.
func TestCheck(t *testing.T) {
	t.Parallel()
	three := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	far := []string{"a:1", "b:1", "c:1"}
	for name, x := range map[string]struct {
		o  Options
		ok bool
	}{
		"alone":                     {Options{Dir: "d"}, true},
		"no directory":              {Options{}, false},
		"clients":                   {Options{Dir: "d", Clients: "127.0.0.1:4222"}, true},
		"clients without a secret":  {Options{Dir: "d", Clients: "0.0.0.0:4222"}, false},
		"clients with a secret":     {Options{Dir: "d", Clients: "0.0.0.0:4222", Secret: "s"}, true},
		"clients without a host":    {Options{Dir: "d", Clients: ":4222", Secret: "s"}, false},
		"no port":                   {Options{Dir: "d", Clients: "127.0.0.1"}, false},
		"a port too high":           {Options{Dir: "d", Clients: "127.0.0.1:65536"}, false},
		"a cluster":                 {Options{Dir: "d", Members: three, Self: three[1]}, true},
		"a cluster, IPv6":           {Options{Dir: "d", Members: []string{"[::1]:1", "[::1]:2", "[::1]:3"}, Self: "[::1]:1"}, true},
		"two members":               {Options{Dir: "d", Members: three[:2], Self: three[1]}, false},
		"a member twice":            {Options{Dir: "d", Members: []string{"a:1", "a:1", "b:1"}, Self: "b:1", Secret: "s"}, false},
		"no self":                   {Options{Dir: "d", Members: three}, false},
		"another self":              {Options{Dir: "d", Members: three, Self: "127.0.0.1:4"}, false},
		"self alone":                {Options{Dir: "d", Self: three[0]}, false},
		"bind alone":                {Options{Dir: "d", Bind: three[0]}, false},
		"others without a secret":   {Options{Dir: "d", Members: far, Self: "a:1"}, false},
		"others with a secret":      {Options{Dir: "d", Members: far, Self: "a:1", Secret: "s"}, true},
		"others, bound to loopback": {Options{Dir: "d", Members: far, Self: "a:1", Bind: "127.0.0.1:1"}, true},
		"replicas":                  {Options{Dir: "d", Members: three, Self: three[0], Replicas: 1}, true},
		"replicas alone":            {Options{Dir: "d", Replicas: 3}, false},
		"four replicas":             {Options{Dir: "d", Members: three, Self: three[0], Replicas: 4}, false},
		"five replicas of three":    {Options{Dir: "d", Members: three, Self: three[0], Replicas: 5}, false},
		"two ways to sync":          {Options{Dir: "d", SyncAlways: true, SyncInterval: true}, false},
	} {
		if err := x.o.Check(); (err == nil) != x.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

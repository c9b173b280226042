//go:build nodes && unix

package natsstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/internal/netcut"
)

// Connections that break at any byte of a request or an answer lose nothing and double
// nothing, and a waiter in another process sees every record once.
func TestNATSConnectionsBreak(t *testing.T) {
	t.Parallel()
	server := engines.NATS(t)
	s, viewer := openAt(t, "nats://"+server.Addr(), "cut", nil), openAt(t, "nats://"+server.Addr(), "cut", nil)
	l, err := s.Claim(t.Context(), spool.Claim{Owner: "o", Session: "s", Force: true, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	logs := spool.NewLogs(viewer, nil)
	defer logs.Close()
	g, err := logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	r, seen := g.Reader(spool.ReadOptions{Follow: true}), uint64(0)
	follow := func(through uint64) {
		t.Helper()
		for seen < through {
			recs, err := r.Next(t.Context())
			if err != nil && !errors.Is(err, spool.ErrUnavailable) {
				t.Fatal(err)
			}
			for _, rec := range recs {
				if seen++; rec.Seq != seen || string(rec.Data) != fmt.Sprint(seen) {
					t.Fatalf("record %d is %d, %s", seen, rec.Seq, rec.Data)
				}
			}
		}
	}
	n, cuts := uint64(0), 0
	say := func() {
		t.Helper()
		n++
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: n, Records: []chunk.Record{{Type: chunk.TypeTextDelta, Class: chunk.Trace, Data: []byte(fmt.Sprint(n))}}}
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
	// A request has about 1,200 bytes, with its state; an answer about 90.
	for i := range 60 {
		at := int64(i * 23)
		for _, d := range []netcut.Direction{netcut.Request, netcut.Answer} {
			if d == netcut.Answer {
				at = int64(i * 5)
			}
			for _, p := range []*netcut.Proxy{s.proxy, viewer.proxy} {
				if p == viewer.proxy && i%6 != 0 {
					continue
				}
				cut := p.CutAfter(d, at)
				for done := false; !done; {
					select {
					case <-cut:
						cuts, done = cuts+1, true
					default:
						say()
						if p == viewer.proxy {
							if _, err := viewer.Head(t.Context(), "s"); err != nil && !errors.Is(err, spool.ErrUnavailable) {
								t.Fatal(err)
							}
						}
					}
				}
				say()
			}
		}
		follow(n)
	}
	recs, h, err := s.Read(t.Context(), "s", 0, 0)
	if err != nil || uint64(len(recs)) != n || h.Incarnation != l.Head.Incarnation || cuts != 2*(60+10) {
		t.Fatalf("%d of %d records, %+v, %v after %d cuts", len(recs), n, h, err, cuts)
	}
	t.Logf("%d cuts, %d records", cuts, n)
}

// openCluster opens a store on three servers.
func openCluster(t *testing.T) (*Store, []*engines.Server) {
	t.Helper()
	servers := engines.NATSCluster(t, 3)
	var urls []string
	for _, s := range servers {
		urls = append(urls, "nats://"+s.Addr())
	}
	s, err := Open(strings.Join(urls, ","), &Options{Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, servers
}

// A follower is killed, three times.
func TestNATSFollowerKilled(t *testing.T) {
	t.Parallel()
	s, servers := openCluster(t)
	appendUnderKills(t, s, func() {
		leader := engines.NATSLeader(t, servers)
		for _, other := range servers {
			if other != leader {
				other.Kill()
				other.Start()
				return
			}
		}
	})
}

// All servers of a cluster are killed at once, three times.
func TestNATSClusterKilled(t *testing.T) {
	t.Parallel()
	s, servers := openCluster(t)
	appendUnderKills(t, s, func() {
		for _, server := range servers {
			server.Kill()
		}
		var starting sync.WaitGroup
		for _, server := range servers { // none is ready without the others
			starting.Go(server.Start)
		}
		starting.Wait()
	})
}

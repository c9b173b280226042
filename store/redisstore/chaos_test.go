//go:build nodes

package redisstore

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/internal/netcut"
)

func record(text string) []chunk.Record {
	return []chunk.Record{{Type: "x", Class: chunk.Kept, Data: []byte(text)}}
}

// insist repeats a call until the store can be reached.
func insist(call func() error) error {
	for {
		if err := call(); !errors.Is(err, spool.ErrUnavailable) {
			return err
		}
	}
}

// wantLog reads the log, and checks that it holds these records.
func wantLog(t *testing.T, s spool.Store, session string, want []string) {
	t.Helper()
	var got []string
	for after := uint64(0); ; {
		var recs []chunk.Record
		if err := insist(func() (err error) { recs, _, err = s.Read(t.Context(), session, after, 0); return err }); err != nil {
			t.Fatal(err)
		}
		if len(recs) == 0 {
			break
		}
		for _, r := range recs {
			got = append(got, string(r.Data))
			after = r.Seq
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("the log has %d records, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
}

// owner appends numbered records under one lease, each until it is acknowledged.
type owner struct {
	t     *testing.T
	s     spool.Store
	lease spool.Lease
	acked []string
}

func own(t *testing.T, s spool.Store, session string) *owner {
	t.Helper()
	o := &owner{t: t, s: s}
	if err := insist(func() (err error) {
		o.lease, err = s.(spool.Leaser).Claim(t.Context(), spool.Claim{ID: session, Owner: "o", Session: session, Force: true, TTL: time.Hour})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *owner) append(n int) error {
	for range n {
		text := fmt.Sprint(len(o.acked) + 1)
		a := spool.Append{Session: o.lease.Session, Epoch: o.lease.Epoch, Ordinal: uint64(len(o.acked) + 1), Records: record(text)}
		if err := insist(func() error { _, err := o.s.Append(o.t.Context(), a); return err }); err != nil {
			return err
		}
		o.acked = append(o.acked, text)
	}
	return nil
}

// A server that has forgotten its scripts, but nothing else, is no loss.
func TestForgottenScripts(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	s := newPlace(t, server, false, "").open(t)
	o := own(t, s, "s")
	for range 5 {
		if err := o.append(5); err != nil {
			t.Fatal(err)
		}
		do(t, server, "SCRIPT", "FLUSH")
	}
	wantLog(t, s, "s", o.acked)
	if h, err := s.Head(t.Context(), "s"); err != nil || h.Incarnation != o.lease.Head.Incarnation {
		t.Errorf("%+v, %v; claimed at %+v", h, err, o.lease.Head)
	}
}

// Connections that the server closes, or that break at any byte of a request or an answer,
// lose nothing and double nothing.
func TestConnectionsBreak(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	p := newPlace(t, server, true, "")
	s := p.open(t)
	o := own(t, s, "s")
	seen := o.lease.Head
	var told sync.WaitGroup
	told.Go(func() { // a waiter sees every change, or a later one
		for seen.Seq < 280 {
			h, _, err := s.Wait(t.Context(), "s", seen)
			if err != nil && !errors.Is(err, spool.ErrUnavailable) {
				t.Error(err)
				return
			}
			if err == nil && (h.Seq < seen.Seq || h.Incarnation != seen.Incarnation) {
				t.Errorf("told of %+v after %+v", h, seen)
				return
			}
			if err == nil {
				seen = h
			}
		}
	})
	for i := range 35 {
		switch i % 5 {
		case 0:
			do(t, server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		case 1:
			do(t, server, "CLIENT", "KILL", "TYPE", "pubsub")
		case 2:
			p.proxy.Cut()
		case 3:
			p.proxy.CutAfter(netcut.Request, int64(i*37))
		case 4:
			p.proxy.CutAfter(netcut.Answer, int64(i*11))
		}
		if err := o.append(8); err != nil {
			t.Fatal(err)
		}
	}
	p.proxy.Restore()
	told.Wait()
	wantLog(t, s, "s", o.acked)
}

// A server whose memory is full refuses what is written, says that it did not store it, and
// takes it again when there is room. What is stored can be read meanwhile.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	s := newPlace(t, server, false, "").open(t)
	o := own(t, s, "s")
	if err := o.append(10); err != nil {
		t.Fatal(err)
	}
	do(t, server, "CONFIG", "SET", "maxmemory", "1")
	_, err := s.Append(t.Context(), spool.Append{Session: "s", Epoch: o.lease.Epoch, Ordinal: 11, Records: record("11")})
	if !errors.Is(err, spool.ErrUnavailable) || !errors.Is(err, spool.ErrNotStored) {
		t.Fatalf("a full server: %v", err)
	}
	wantLog(t, s, "s", o.acked)
	do(t, server, "CONFIG", "SET", "maxmemory", "0")
	if err := o.append(10); err != nil {
		t.Fatal(err)
	}
	wantLog(t, s, "s", o.acked)
}

// A replica that is promoted without some records: with wait=1 none of them was
// acknowledged; without it those who know them are told.
func TestPromotion(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		t.Run(fmt.Sprint("wait ", wait), func(t *testing.T) {
			t.Parallel()
			primary := engines.Redis(t)
			replica := engines.RedisReplica(t, primary)
			more := ""
			if wait {
				more = "&wait=1"
			}
			p := newPlace(t, primary, true, more)
			s := p.open(t)
			o := own(t, s, "s")
			if err := o.append(10); err != nil {
				t.Fatal(err)
			}
			if !wait { // let the replica have those
				do(t, primary, "WAIT", "1", "0")
			}
			before := append([]string{}, o.acked...)
			do(t, replica, "REPLICAOF", "NO", "ONE")
			_, err := s.Append(t.Context(), spool.Append{Session: "s", Epoch: o.lease.Epoch, Ordinal: 11, Records: record("11")})
			if wait && !errors.Is(err, spool.ErrUnavailable) || !wait && err != nil {
				t.Fatalf("without its replica: %v", err)
			}
			seen, err := s.Head(t.Context(), "s")
			if err != nil {
				t.Fatal(err)
			}
			p.proxy.SetTarget(replica.Addr())
			p.proxy.Cut()
			var h spool.Head
			if err := insist(func() (err error) { h, _, err = s.Wait(t.Context(), "s", seen); return err }); err != nil || h.Incarnation <= seen.Incarnation || h.Seq != 10 {
				t.Fatalf("told of %+v, %v", h, err)
			}
			if err := o.append(1); !errors.Is(err, spool.ErrSuperseded) {
				t.Fatalf("an owner from before the promotion: %v", err)
			}
			wantLog(t, s, "s", before)
			if wait { // the former primary is the new one's replica
				host, port, _ := net.SplitHostPort(replica.Addr())
				do(t, primary, "REPLICAOF", host, port)
			}
			next := own(t, s, "s")
			if next.lease.Epoch <= o.lease.Epoch {
				t.Fatalf("%+v after %+v", next.lease, o.lease)
			}
		})
	}
}

// A URL or options that cannot be used are refused, and no error shows a password.
func TestWrongURLs(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	do(t, server, "CONFIG", "SET", "requirepass", "hidden")
	for _, name := range []string{"redis://", "redis://u:hidden@ho st", "redis://" + server.Addr() + "?buckets=x", "redis://" + server.Addr() + "?wait=-1",
		"redis://" + server.Addr() + "?prefix={x}", "redis://:hiddenwrong@" + server.Addr(), "redis://" + server.Addr(), "redis://:hidden@127.0.0.1:1"} {
		s, err := Open(name, nil)
		if err == nil {
			s.Close()
			t.Errorf("%s is opened", name)
			continue
		}
		if !errors.Is(err, chunk.ErrInvalid) && !errors.Is(err, spool.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), "hidden") {
				t.Errorf("%s: %v", name, e)
			}
		}
	}
	s, err := Open("redis://:hidden@"+server.Addr()+"?buckets=2", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if other, err := Open("redis://:hidden@"+server.Addr()+"?buckets=3", nil); !errors.Is(err, chunk.ErrInvalid) {
		if err == nil {
			other.Close()
		}
		t.Errorf("other buckets: %v", err)
	}
}

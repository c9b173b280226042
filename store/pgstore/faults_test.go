//go:build nodes

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/internal/netcut"
)

// appender appends numbered records to a session, each until it is acknowledged, as a run's
// writer does.
type appender struct {
	s     *Store
	lease spool.Lease
	acked int
}

func newAppender(t *testing.T, s *Store, session string) *appender {
	t.Helper()
	l, err := s.Claim(t.Context(), spool.Claim{Owner: "o", Session: session, Force: true, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return &appender{s: s, lease: l}
}

func (a *appender) append(ctx context.Context) error {
	n := a.acked + 1
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		got, err := a.s.Append(call, spool.Append{Session: a.lease.Session, Epoch: a.lease.Epoch, Writer: "w", Ordinal: uint64(n),
			Records: []chunk.Record{{Type: chunk.TypeTextDelta, Class: chunk.Trace, Data: fmt.Appendf(nil, `{"n":%d}`, n)}}})
		cancel()
		switch {
		case err == nil && got.Last != uint64(n):
			return fmt.Errorf("append %d is record %d", n, got.Last)
		case err == nil:
			a.acked = n
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, spool.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
	}
}

// whole checks that the log holds what was acknowledged, once and in order.
func (a *appender) whole(t *testing.T) {
	t.Helper()
	after := 0
	for {
		recs, _, err := a.s.Read(t.Context(), a.lease.Session, uint64(after), 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(recs) == 0 {
			break
		}
		for _, r := range recs {
			after++
			if want := fmt.Sprintf(`{"n":%d}`, after); string(r.Data) != want || r.Seq != uint64(after) {
				t.Fatalf("record %d is %s, want %s", r.Seq, r.Data, want)
			}
		}
	}
	if after != a.acked {
		t.Fatalf("the log has %d records, %d were acknowledged", after, a.acked)
	}
}

// Appends that were acknowledged survive every way in which connections and the server end
// while sessions are written, and none is stored twice.
func TestServerEnds(t *testing.T) {
	server := engines.Postgres(t)
	proxy, err := netcut.Start(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	s, err := Open(t.Context(), engines.PostgresURL(proxy.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const sessions = 4
	var all []*appender
	for i := range sessions {
		all = append(all, newAppender(t, s, fmt.Sprint("s", i)))
	}
	seen, ctx := spool.Head{}, t.Context()
	for _, fault := range []struct {
		name string
		do   func()
	}{
		{"request cut", func() { <-proxy.CutAfter(netcut.Request, 300) }},
		{"answer cut", func() { <-proxy.CutAfter(netcut.Answer, 0) }},
		{"part of an answer cut", func() { <-proxy.CutAfter(netcut.Answer, 60) }},
		{"all cut", func() { proxy.Cut() }},
		{"terminated", func() {
			run(t, server.Addr(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
		}},
		{"fast restart", func() { server.Stop(); server.Start() }},
		{"immediate restart", func() { server.StopWith(syscall.SIGQUIT); server.Start() }},
		{"killed", func() { server.Kill(); server.Start() }},
		{"frozen", func() { server.Freeze(); server.Thaw() }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			stop := make(chan struct{})
			errs := make(chan error, sessions)
			var writing sync.WaitGroup
			for _, a := range all {
				writing.Go(func() {
					for {
						if err := a.append(ctx); err != nil {
							errs <- err
							return
						}
						select {
						case <-stop:
							return
						default:
						}
					}
				})
			}
			for range 3 {
				fault.do()
			}
			close(stop)
			writing.Wait()
			for _, a := range all {
				if err := a.append(ctx); err != nil {
					t.Error(err)
				}
			}
			close(errs)
			for err := range errs {
				t.Error(err)
			}
			for _, a := range all {
				a.whole(t)
			}
			h, _, err := s.Wait(ctx, "s0", seen)
			if err != nil || h.Seq < seen.Seq || h.Incarnation != 1 {
				t.Errorf("Wait gave %+v and %v", h, err)
			}
			seen = h
		})
	}
}

// What the server has refused was certainly not stored.
func TestRefusedIsNotStored(t *testing.T) {
	server := engines.Postgres(t)
	s, err := Open(t.Context(), engines.PostgresURL(server.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := newAppender(t, s, "s")
	if err := a.append(t.Context()); err != nil {
		t.Fatal(err)
	}
	for code, message := range map[string]string{codeFull: "the server's disk is full", codeReadOnly: "the server can only be read"} {
		run(t, server.Addr(),
			"CREATE OR REPLACE FUNCTION spool.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '"+code+"'; END $$",
			"CREATE TRIGGER refuse BEFORE INSERT ON spool.record EXECUTE FUNCTION spool.refuse()")
		_, err = s.Append(t.Context(), spool.Append{Session: "s", Epoch: a.lease.Epoch, Writer: "w", Ordinal: 2, Records: []chunk.Record{{Type: chunk.TypeTextDelta, Data: []byte(`{}`)}}})
		known, ok := errors.AsType[*chunk.Error](err)
		if !ok || !errors.Is(err, spool.ErrNotStored) || known.Message != message {
			t.Errorf("%s: %v", code, err)
		}
		run(t, server.Addr(), "DROP TRIGGER refuse ON spool.record")
	}
	// A transaction that the server undoes for the sake of another is repeated, and no caller
	// learns of it.
	run(t, server.Addr(),
		"CREATE SEQUENCE spool.refused",
		"CREATE OR REPLACE FUNCTION spool.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('spool.refused') <= 2 THEN RAISE EXCEPTION 'again' USING ERRCODE = '40P01'; END IF; RETURN NEW; END $$",
		"CREATE TRIGGER refuse BEFORE INSERT ON spool.record FOR EACH ROW EXECUTE FUNCTION spool.refuse()")
	if err := a.append(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.whole(t)
}

// A promotion begins a new timeline, which every instance notices: the numbers of all
// sessions grow, and the old owner is refused.
func TestPromotionIsNoticed(t *testing.T) {
	server := engines.Postgres(t)
	s, err := Open(t.Context(), engines.PostgresURL(server.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := newAppender(t, s, "s")
	if err := a.append(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := s.Head(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	server.Stop()
	engines.PostgresRecover(t, server)
	server.Start()
	err = a.append(t.Context())
	after, headErr := s.Head(t.Context(), "s")
	if !errors.Is(err, spool.ErrSuperseded) || headErr != nil || after.Incarnation <= before.Incarnation || after.Epoch <= before.Epoch || after.Seq != before.Seq {
		t.Errorf("the old owner gets %v; the head was %+v and is %+v (%v)", err, before, after, headErr)
	}
}

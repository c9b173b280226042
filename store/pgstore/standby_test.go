//go:build nodes

package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engines"
)

// until asks a server until a query is true.
func until(t *testing.T, addr, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, engines.PostgresURL(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	for ok := false; !ok; {
		if err := c.QueryRow(ctx, sql).Scan(&ok); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// A standby is promoted after its primary was killed, and the store goes on with it. If the
// standby is synchronous, it has everything that was acknowledged. If it is asynchronous and
// lacks something, that is noticed: the numbers of the session grow, the owner from before is
// refused, and the reader who has seen more is told.
func TestStandbyIsPromoted(t *testing.T) {
	for _, x := range []struct {
		name        string
		synchronous bool
	}{{"synchronous", true}, {"asynchronous", false}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			primary := engines.Postgres(t)
			standby := engines.PostgresStandby(t, primary)
			until(t, primary.Addr(), "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'")
			if x.synchronous {
				run(t, primary.Addr(), "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
				until(t, primary.Addr(), "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
			}
			s, err := Open(t.Context(), "postgres://spool@"+primary.Addr()+","+standby.Addr()+"/postgres?sslmode=disable&target_session_attrs=read-write", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			a := newAppender(t, s, "s")
			const both, one = 20, 10 // records that the standby has, and that only the primary has
			for range both {
				if err := a.append(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if !x.synchronous {
				run(t, primary.Addr(), "SELECT pg_switch_wal()")
				until(t, primary.Addr(), "SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication")
				run(t, standby.Addr(), "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
				until(t, primary.Addr(), "SELECT count(*) = 0 FROM pg_stat_replication")
			}
			for range one {
				if err := a.append(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			before, err := s.Head(t.Context(), "s")
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan error, 1)
			var seen spool.Head
			go func() {
				err := error(spool.ErrUnavailable)
				for errors.Is(err, spool.ErrUnavailable) { // as readers do
					seen, _, err = s.Wait(t.Context(), "s", before)
				}
				told <- err
			}()
			primary.Kill()
			run(t, standby.Addr(), "SELECT pg_promote()")

			if err := a.append(t.Context()); !errors.Is(err, spool.ErrSuperseded) {
				t.Errorf("the owner from before gets %v", err)
			}
			if err := <-told; err != nil {
				t.Error(err)
			}
			want := before.Seq
			if !x.synchronous {
				want = both
			}
			after, err := s.Head(t.Context(), "s")
			if err != nil || after.Seq != want || seen != after || after.Incarnation <= before.Incarnation || after.Epoch <= before.Epoch {
				t.Errorf("the head was %+v and is %+v, %v; the reader was told %+v", before, after, err, seen)
			}
			next := newAppender(t, s, "s")
			next.acked = int(want)
			if err := next.append(t.Context()); err != nil {
				t.Error(err)
			}
			next.whole(t)
		})
	}
}

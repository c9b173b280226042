//go:build nodes

package pgstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	server := engines.Postgres(b)
	storetest.Bench(b, func(t testing.TB) spool.Store {
		p := newPlace(t, server.Addr())
		p.proxy = nil // it would be measured, too
		return p.open(t)
	})
}

// engine is a store, and connections of its kind on which the engine does its part alone.
type engine struct {
	server      *engines.Server
	s, another  *Store
	c, listener *pgx.Conn
	lease       spool.Lease
	n           int64 // calls
}

func newEngine(b *testing.B, args ...string) *engine {
	e := &engine{server: engines.Postgres(b, args...)}
	for _, s := range []**Store{&e.s, &e.another} {
		var err error
		if *s, err = Open(b.Context(), engines.PostgresURL(e.server.Addr()), nil); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { (*s).Close() })
	}
	for _, c := range []**pgx.Conn{&e.c, &e.listener} {
		pc, err := e.s.pool.Acquire(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(pc.Release)
		*c = pc.Conn()
	}
	var err error
	if e.lease, err = e.s.Claim(b.Context(), spool.Claim{Owner: "o", Session: "s", Force: true, TTL: time.Hour}); err != nil {
		b.Fatal(err)
	}
	return e
}

func deltas(n int) []chunk.Record {
	data := []byte(`{"type":"text_delta","delta":"` + strings.Repeat("x", 120-32) + `"}`)
	return slices.Repeat([]chunk.Record{{Type: chunk.TypeTextDelta, Agent: "s", Class: chunk.Trace, Time: 1_700_000_000_000, Data: data}}, n)
}

// insert stores records with one statement, which is a transaction.
func (e *engine) insert(ctx context.Context, recs []chunk.Record) error {
	e.n++
	var x records
	for i := range recs {
		x.sid, x.seq = append(x.sid, -1), append(x.seq, e.n*1000+int64(i))
		x.add(&recs[i])
	}
	_, err := e.c.Exec(ctx, insertRecords, x.sid, x.seq, x.typ, x.agent, x.time, x.trace, x.data)
	return err
}

func (e *engine) append(ctx context.Context, recs []chunk.Record) (spool.Appended, error) {
	e.n++
	return e.s.Append(ctx, spool.Append{Session: "s", Epoch: e.lease.Epoch, Writer: "w", Ordinal: uint64(e.n), Records: recs})
}

// BenchmarkAgainstEngine measures the store against what the engine does by itself, call by
// call in turn: an append against an insert of the same rows; a wake-up of another process
// against NOTIFY with the same bytes; and reading a log against reading its rows.
func BenchmarkAgainstEngine(b *testing.B) {
	disks := map[string][]string{
		"none": nil,
		"own":  {"-c", "fsync=on"},
		"1ms":  {"-c", "fsync=on", "-c", "commit_delay=1000", "-c", "commit_siblings=0"}, // more than this machine's
	}
	for _, disk := range slices.Sorted(maps.Keys(disks)) {
		for _, size := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("append/disk=%s/batch=%d", disk, size), func(b *testing.B) {
				e, recs, ctx := newEngine(b, disks[disk]...), deltas(size), b.Context()
				storetest.InTurn(b, func() error { return e.insert(ctx, recs) }, func() error { _, err := e.append(ctx, recs); return err })
			})
		}
	}
	b.Run("wake", func(b *testing.B) {
		e, recs, ctx := newEngine(b), deltas(1), b.Context()
		if _, err := e.listener.Exec(ctx, "LISTEN bare"); err != nil {
			b.Fatal(err)
		}
		text := strings.Repeat("x", 500)
		seen, err := e.another.Head(ctx, "s")
		if err != nil {
			b.Fatal(err)
		}
		storetest.InTurn(b, func() error {
			heard := make(chan error, 1)
			go func() { _, err := e.listener.WaitForNotification(ctx); heard <- err }()
			if _, err := e.c.Exec(ctx, "SELECT pg_notify('bare', $1)", text); err != nil {
				return err
			}
			return <-heard
		}, func() error {
			woken := make(chan error, 1)
			go func() {
				var err error
				seen, _, err = e.another.Wait(ctx, "s", seen)
				woken <- err
			}()
			if _, err := e.append(ctx, recs); err != nil {
				return err
			}
			return <-woken
		})
	})
	b.Run("catch-up/records=20000", func(b *testing.B) {
		e, recs, ctx := newEngine(b), deltas(1000), b.Context()
		const all = 20_000
		for range all / len(recs) {
			if _, err := e.append(ctx, recs); err != nil {
				b.Fatal(err)
			}
		}
		storetest.InTurn(b, func() error {
			rows, err := e.c.Query(ctx, "SELECT seq, type, agent, time, trace, data FROM record WHERE sid = (SELECT sid FROM session WHERE id = 's') ORDER BY seq")
			if err != nil {
				return err
			}
			recs, err := scanRecords(rows, "s")
			if err == nil && len(recs) != all {
				err = fmt.Errorf("%d rows", len(recs))
			}
			return err
		}, func() error {
			for after := uint64(0); after < all; {
				recs, _, err := e.s.Read(ctx, "s", after, 0)
				if err != nil || len(recs) == 0 {
					return fmt.Errorf("after %d: %w", after, err)
				}
				after = recs[len(recs)-1].Seq
			}
			return nil
		})
	})
}

// BenchmarkRemoteViewer counts the calls of a viewer in another process than the owner's for
// each delta.
func BenchmarkRemoteViewer(b *testing.B) {
	e := newEngine(b)
	storetest.BenchViewer(b, e.another, func() error {
		_, err := e.append(b.Context(), deltas(1))
		return err
	})
}

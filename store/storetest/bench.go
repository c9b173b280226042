package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Bench measures a driver in the terms of docs/performance.md: records have 120
// bytes of JSON.
func Bench(b *testing.B, open Factory) {
	for _, size := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("Append/batch=%d", size), func(b *testing.B) {
			s := open(b)
			l := own(b, s, "s", "o")
			batch := benchRecords(size)
			ctx := b.Context()
			b.ReportAllocs()
			for n := uint64(1); b.Loop(); n++ {
				if _, err := s.Append(ctx, spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: n, Records: batch}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "records/s")
		})
	}
	b.Run("Append/callers=256", func(b *testing.B) { benchCallers(b, open) })
	b.Run("Read/20000", func(b *testing.B) { benchRead(b, open) })
	for _, call := range smallCalls {
		b.Run(call.name, func(b *testing.B) {
			s := open(b)
			put(b, s, spool.Append{Session: "s", Records: benchRecords(1000), Row: spool.Row{Principal: "p"}})
			l := own(b, s, "s", "o")
			b.ReportAllocs()
			for n := uint64(1); b.Loop(); n++ {
				if err := call.run(b.Context(), s, l, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("Wake", func(b *testing.B) { benchWake(b, open) })
}

// benchCallers appends to many sessions at once.
func benchCallers(b *testing.B, open Factory) {
	s := open(b)
	const callers = 256
	leases := make([]spool.Lease, callers)
	for i := range leases {
		leases[i] = own(b, s, fmt.Sprint("s", i), "o")
	}
	batch := benchRecords(1)
	took := make([][]time.Duration, callers)
	b.ResetTimer()
	parallel(callers, func(i int) {
		for n := i; n < b.N; n += callers {
			start := time.Now()
			if _, err := s.Append(b.Context(), spool.Append{Session: leases[i].Session, Epoch: leases[i].Epoch, Writer: "w", Ordinal: uint64(n + 1), Records: batch}); err != nil {
				b.Error(err)
				return
			}
			took[i] = append(took[i], time.Since(start))
		}
	})
	b.StopTimer()
	report(b, slices.Concat(took...))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// benchRead reads a long log in pages.
func benchRead(b *testing.B, open Factory) {
	s := open(b)
	batch := benchRecords(1000)
	for range 20 {
		put(b, s, spool.Append{Session: "s", Records: batch})
	}
	b.ReportAllocs()
	for b.Loop() {
		after := uint64(0)
		for after < 20_000 {
			rs, _, err := s.Read(b.Context(), "s", after, 1000)
			if err != nil || len(rs) == 0 {
				b.Fatalf("after %d: %d records, %v", after, len(rs), err)
			}
			after = rs[len(rs)-1].Seq
		}
	}
}

// benchWake measures from before an append to the return of a waiter.
func benchWake(b *testing.B, open Factory) {
	s := open(b)
	seen := command(b, s, "s", "c").Head
	batch := benchRecords(1)
	woke := make(chan time.Time)
	go func() {
		defer close(woke)
		seen := seen
		for {
			h, _, err := s.Wait(b.Context(), "s", seen)
			if err != nil {
				return
			}
			seen = h
			woke <- time.Now()
		}
	}()
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		put(b, s, spool.Append{Session: "s", Records: batch})
		at, ok := <-woke
		if !ok {
			b.Fatal("the waiter gave up")
		}
		took = append(took, at.Sub(start))
	}
	report(b, took)
}

// smallCalls ask little, so that what they take is the driver's own work for a call.
var smallCalls = []struct {
	name string
	run  func(ctx context.Context, s spool.Store, l spool.Lease, n uint64) error
}{
	{"Read/1", func(ctx context.Context, s spool.Store, _ spool.Lease, _ uint64) error {
		rs, _, err := s.Read(ctx, "s", 500, 1)
		if err == nil && len(rs) != 1 {
			err = fmt.Errorf("%d records", len(rs))
		}
		return err
	}},
	{"Head", func(ctx context.Context, s spool.Store, _ spool.Lease, _ uint64) error {
		_, err := s.Head(ctx, "s")
		return err
	}},
	{"Renew", func(ctx context.Context, s spool.Store, l spool.Lease, _ uint64) error {
		return s.(spool.Leaser).Renew(ctx, l)
	}},
	{"Claim", func(ctx context.Context, s spool.Store, _ spool.Lease, _ uint64) error {
		_, err := s.(spool.Leaser).Claim(ctx, spool.Claim{Owner: "o", Session: "s", Force: true})
		return err
	}},
	{"Sessions", func(ctx context.Context, s spool.Store, _ spool.Lease, _ uint64) error {
		_, err := s.(spool.Lister).Sessions(ctx, spool.SessionQuery{Principal: "p"})
		return err
	}},
	{"AppendAndRead", func(ctx context.Context, s spool.Store, l spool.Lease, n uint64) error {
		res, err := s.Append(ctx, spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: n, Records: benchRecords(1)})
		if err != nil {
			return err
		}
		rs, _, err := s.Read(ctx, "s", res.First-1, 10)
		if err == nil && len(rs) != 1 {
			err = fmt.Errorf("%d records", len(rs))
		}
		return err
	}},
}

func benchRecords(n int) []chunk.Record {
	out := make([]chunk.Record, n)
	for i := range out {
		out[i] = big(chunk.Trace, 120)
	}
	return out
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	if n := len(took); n > 0 {
		b.ReportMetric(float64(took[n/2].Nanoseconds()), "p50-ns")
		b.ReportMetric(float64(took[n*99/100].Nanoseconds()), "p99-ns")
	}
}

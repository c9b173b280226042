package storetest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// InTurn measures what an engine does by itself and what a store on it does, call by call in
// turn, so that both meet the same noise. It reports the median of each, and their ratio:
// how often the store does it while the engine does it once.
func InTurn(b *testing.B, bare, store func() error) {
	var all [2][]time.Duration
	for b.Loop() {
		for i, f := range []func() error{bare, store} {
			begun := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			all[i] = append(all[i], time.Since(begun))
		}
	}
	var median [2]float64
	for i, name := range []string{"bare", "store"} {
		slices.Sort(all[i])
		median[i] = float64(all[i][len(all[i])/2].Nanoseconds())
		b.ReportMetric(median[i], name+"-p50-ns")
	}
	b.ReportMetric(median[0]/median[1], "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchViewer counts what a viewer asks of its store for each record that another instance
// appends to the session "s". A wait costs a server nothing; a read and a head are a round
// trip each.
func BenchViewer(b *testing.B, viewers spool.Store, appendOne func() error) {
	counted := &counted{Store: viewers}
	logs := spool.NewLogs(counted, nil)
	b.Cleanup(func() { logs.Close() })
	g, err := logs.Log("s")
	if err != nil {
		b.Fatal(err)
	}
	r := g.Reader(spool.ReadOptions{Follow: true})
	for b.Loop() {
		if err := appendOne(); err != nil {
			b.Fatal(err)
		}
		got, err := r.Next(b.Context())
		if err != nil || len(got) != 1 {
			b.Fatalf("%d records, %v", len(got), err)
		}
	}
	b.ReportMetric(float64(counted.waits.Load())/float64(b.N), "waits/delta")
	b.ReportMetric(float64(counted.asked.Load())/float64(b.N), "round-trips/delta")
}

type counted struct {
	spool.Store
	waits, asked atomic.Int64
}

func (c *counted) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	c.waits.Add(1)
	return c.Store.Wait(ctx, session, seen)
}

func (c *counted) Read(ctx context.Context, session string, after uint64, limit int) ([]chunk.Record, spool.Head, error) {
	c.asked.Add(1)
	return c.Store.Read(ctx, session, after, limit)
}

func (c *counted) Head(ctx context.Context, session string) (spool.Head, error) {
	c.asked.Add(1)
	return c.Store.Head(ctx, session)
}

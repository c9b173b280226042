//go:build nodes && unix

package natsstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	url := "nats://" + engines.NATS(b).Addr()
	storetest.Bench(b, func(t testing.TB) spool.Store {
		s, err := Open(url, &Options{Prefix: fmt.Sprint("b", prefixes.Add(1))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}

// engine is a store, another process's, and a stream for the engine alone.
type engine struct {
	s, another *Store
	js         jetstream.JetStream
	lease      spool.Lease
	n          uint64
}

const bareSubject = "bare.records"

func newEngine(b *testing.B) *engine {
	e := &engine{}
	url := "nats://" + engines.NATS(b).Addr()
	for _, s := range []**Store{&e.s, &e.another} {
		var err error
		if *s, err = Open(url, nil); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { (*s).Close() })
	}
	nc, err := nats.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	if e.js, err = jetstream.New(nc); err != nil {
		b.Fatal(err)
	}
	if _, err = e.js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "bare", Subjects: []string{"bare.>"}, AllowDirect: true,
		RePublish: &jetstream.RePublish{Source: "bare.>", Destination: "live.bare.>"}}); err != nil {
		b.Fatal(err)
	}
	if e.lease, err = e.s.Claim(b.Context(), spool.Claim{Owner: "o", Session: "s", Force: true, TTL: time.Hour}); err != nil {
		b.Fatal(err)
	}
	return e
}

func deltas(n int) []chunk.Record {
	data := []byte(`{"type":"text_delta","delta":"` + strings.Repeat("x", 120-32) + `"}`)
	return slices.Repeat([]chunk.Record{{Type: chunk.TypeTextDelta, Agent: "s", Class: chunk.Trace, Time: 1_700_000_000_000, Data: data}}, n)
}

// publish stores the bytes of records as one message, on a condition as the store does.
func (e *engine) publish(ctx context.Context, recs []chunk.Record, after *uint64) error {
	var data []byte
	for i := range recs {
		data = append(data, recs[i].Data...)
	}
	ack, err := e.js.Publish(ctx, bareSubject, data, jetstream.WithExpectLastSequencePerSubject(*after))
	if err == nil {
		*after = ack.Sequence
	}
	return err
}

func (e *engine) append(ctx context.Context, recs []chunk.Record) (spool.Appended, error) {
	e.n++
	return e.s.Append(ctx, spool.Append{Session: "s", Epoch: e.lease.Epoch, Writer: "w", Ordinal: e.n, Records: recs})
}

// BenchmarkAgainstNATS measures the store against what the engine does by itself, call by call
// in turn: an append against a publish of the same bytes on a condition; a wake-up of another
// process against a message that the stream publishes again; and reading a log against reading
// its messages.
func BenchmarkAgainstNATS(b *testing.B) {
	for _, size := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("append/batch=%d", size), func(b *testing.B) {
			e, recs, ctx, last := newEngine(b), deltas(size), b.Context(), uint64(0)
			storetest.InTurn(b, func() error { return e.publish(ctx, recs, &last) }, func() error { _, err := e.append(ctx, recs); return err })
		})
	}
	b.Run("wake", benchWake)
	b.Run("catch-up/records=20000", benchCatchUp)
}

func benchWake(b *testing.B) {
	e, recs, ctx, last := newEngine(b), deltas(1), b.Context(), uint64(0)
	live, err := e.another.nc.SubscribeSync("live.bare.>")
	if err == nil {
		err = e.another.nc.Flush()
	}
	if err != nil {
		b.Fatal(err)
	}
	seen, err := e.another.Head(ctx, "s")
	if err != nil {
		b.Fatal(err)
	}
	storetest.InTurn(b, func() error {
		if err := e.publish(ctx, recs, &last); err != nil {
			return err
		}
		_, err := live.NextMsgWithContext(ctx)
		return err
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
}

func benchCatchUp(b *testing.B) {
	const all, each = 20_000, 100
	e, recs, ctx, last := newEngine(b), deltas(each), b.Context(), uint64(0)
	for range all / each {
		if _, err := e.append(ctx, recs); err != nil {
			b.Fatal(err)
		}
		if err := e.publish(ctx, recs, &last); err != nil {
			b.Fatal(err)
		}
	}
	storetest.InTurn(b, func() error {
		found := 0
		err := e.another.batch(ctx, "bare", query{Seq: 1, Next: bareSubject, Batch: batchSize, MaxBytes: 4 << 20}, func(message) (bool, error) {
			found++
			return true, nil
		})
		if err == nil && found != all/each {
			err = fmt.Errorf("%d messages", found)
		}
		return err
	}, func() error {
		for after := uint64(0); after < all; {
			recs, _, err := e.another.Read(ctx, "s", after, 0)
			if err != nil || len(recs) == 0 {
				return fmt.Errorf("after %d: %w", after, err)
			}
			after = recs[len(recs)-1].Seq
		}
		return nil
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

package runner_test

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
)

var benchSessions = flag.Int("sessions", 1000, "sessions of BenchmarkStreamingSessions")

// ticking is a model whose answers have a delta for each tick.
type ticking struct {
	mu   sync.Mutex
	tick chan struct{} // closed by the next tick
}

func (m *ticking) next() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tick
}

func (m *ticking) Stream(ctx context.Context, _ *model.Request) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		for next := m.next(); ; next = m.next() {
			if !yield(model.TextDelta{ID: "t", Delta: "a delta of a usual length "}, nil) {
				return
			}
			select {
			case <-next:
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
	}
}

// BenchmarkStreamingSessions is one delta of each of many sessions that stream at once in
// one process, each with a viewer. It reports what a session costs in memory, with
// -benchtime 100x after a hundred deltas.
func BenchmarkStreamingSessions(b *testing.B) {
	n := *benchSessions
	store := memstore.New(nil)
	logs := spool.NewLogs(store, nil)
	m := &ticking{tick: make(chan struct{})}
	before := memory()
	r, err := runner.New(logs, []*agent.Agent{{Name: "a", Model: m}}, &runner.Options{MaxConcurrent: n, Linger: -1})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	defer func() { cancel(); _ = logs.Close(); wg.Wait(); _ = store.Close() }()
	seen := make(chan struct{}, n)
	for i := range n {
		log, err := logs.Log(fmt.Sprint("s", i))
		if err == nil {
			_, err = log.Command(ctx, spool.Row{}, say("u", "go"))
		}
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			p := log.Projection(spool.ProjectionOptions{Key: "lines", Stateless: true, New: func() spool.Projector { return deltaLines{} }})
			for f := p.Follow(spool.Head{}, 0); ; {
				batch, err := f.Next(ctx)
				if err != nil {
					return
				}
				for range batch.Frames {
					seen <- struct{}{}
				}
			}
		})
	}
	all := func() {
		for range n {
			<-seen
		}
	}
	all() // the first delta of each
	for b.Loop() {
		m.mu.Lock()
		close(m.tick)
		m.tick = make(chan struct{})
		m.mu.Unlock()
		all()
	}
	b.ReportMetric(float64(memory()-before)/float64(n), "B/session")
	b.ReportMetric(float64(runtime.NumGoroutine())/float64(n), "goroutines/session")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/delta")
}

// memory is what is in use after a collection, in bytes: heap and stacks.
func memory() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc + s.StackInuse
}

// deltaLines shows deltas as lines.
type deltaLines struct{}

func (deltaLines) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	if r.Type != chunk.TypeTextDelta {
		return dst, nil
	}
	return append(dst, spool.Frame{Seq: r.Seq, Data: append(append([]byte("data: "), r.Data...), "\n\n"...)}), nil
}

func (deltaLines) Plan() ([]spool.Frame, error) { return nil, nil }

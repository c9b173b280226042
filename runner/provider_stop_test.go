package runner_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
)

// provider streams words over HTTP until its request ends, and says when that
// was. Before the first word it waits if it is silent.
type provider struct {
	*httptest.Server
	silent bool
	asked  chan struct{}  // a request is there
	ended  chan time.Time // and is over
}

func newProvider(tb testing.TB, silent bool) *provider {
	p := &provider{silent: silent, asked: make(chan struct{}, 1), ended: make(chan time.Time, 1)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the client has gone
		p.asked <- struct{}{}
		defer func() { p.ended <- time.Now() }()
		if p.silent {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			_, _ = fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":{"content":"w%d "}}]}`+"\n\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}))
	tb.Cleanup(p.Close)
	return p
}

// patient is a store that stores the end of a run only when the provider has
// seen the end of its request.
type patient struct {
	*memstore.Store
	ended chan time.Time
}

func (s *patient) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	for _, r := range a.Records {
		if r.Type == chunk.TypeRunFinished {
			select {
			case at := <-s.ended:
				s.ended <- at
			case <-ctx.Done():
				return spool.Appended{}, ctx.Err()
			}
		}
	}
	return s.Store.Append(ctx, a)
}

// serveProvider runs an agent of the provider on a store.
func serveProvider(tb testing.TB, store spool.Store, p *provider) *spool.Logs {
	tb.Helper()
	logs := spool.NewLogs(store, nil)
	a := &agent.Agent{Name: "demo", Model: openai.New(&openai.Options{APIKey: "key", BaseURL: p.URL, Model: "m"})}
	r, err := runner.New(logs, []*agent.Agent{a}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(context.Background()) }()
	tb.Cleanup(func() {
		_ = r.Close()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		_ = logs.Close()
	})
	return logs
}

// A stop ends the provider's work: its request is over before the run's end is
// acknowledged, and nothing follows that end.
func TestStopReachesTheProvider(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent %v", silent), func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, silent)
			mem := memstore.New(nil)
			defer mem.Close()
			logs := serveProvider(t, &patient{mem, p.ended}, p)
			g, err := logs.Log("s")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Command(t.Context(), spool.Row{}, say("u1", "go")); err != nil {
				t.Fatal(err)
			}
			<-p.asked
			if !silent {
				follow(t, g, chunk.TypeTextDelta)
			}
			if _, err := g.Command(t.Context(), spool.Row{}, &chunk.StopRequested{CommandID: "stop"}); err != nil {
				t.Fatal(err)
			}
			follow(t, g, chunk.TypeRunFinished)
			select {
			case <-p.ended:
			default:
				t.Error("the request is not over")
			}
			p.Close() // whatever was on its way has arrived
			var last chunk.Record
			for r, err := range g.Records(t.Context(), spool.ReadOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				last = r
			}
			if last.Type != chunk.TypeRunFinished {
				t.Errorf("%s follows the end", last.Type)
			}
			err = g.View(t.Context(), func(f *fold.Fold) error {
				if f.Reason != "stopped" || f.Status != chunk.StatusEnded || f.Live() {
					t.Errorf("%s %s", f.Status, f.Reason)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// follow reads a log until a record of a type.
func follow(tb testing.TB, g *spool.Log, typ chunk.Type) {
	tb.Helper()
	for r, err := range g.Records(tb.Context(), spool.ReadOptions{Follow: true}) {
		if err != nil {
			tb.Fatal(err)
		}
		if r.Type == typ {
			return
		}
	}
}

// BenchmarkStop measures how long after a stop command the provider sees its
// request end, and how long until the run's end can be read.
func BenchmarkStop(b *testing.B) {
	stores := map[string]func(b *testing.B) spool.Store{
		"memory": func(b *testing.B) spool.Store {
			s := memstore.New(nil)
			b.Cleanup(func() { _ = s.Close() })
			return s
		},
		"sqlite": func(b *testing.B) spool.Store {
			s, err := sqlitestore.Open(filepath.Join(b.TempDir(), "spool.db"), nil)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			return s
		},
	}
	for _, name := range []string{"memory", "sqlite"} {
		b.Run(name, func(b *testing.B) {
			store := stores[name](b)
			p := newProvider(b, false)
			logs := serveProvider(b, store, p)
			var request, terminal time.Duration
			n := 0
			for b.Loop() {
				b.StopTimer()
				n++
				g, err := logs.Log(fmt.Sprint("s", n))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := g.Command(b.Context(), spool.Row{}, say("u1", "go")); err != nil {
					b.Fatal(err)
				}
				<-p.asked
				follow(b, g, chunk.TypeTextDelta)
				b.StartTimer()
				begun := time.Now()
				if _, err := g.Command(b.Context(), spool.Row{}, &chunk.StopRequested{CommandID: "stop"}); err != nil {
					b.Fatal(err)
				}
				follow(b, g, chunk.TypeRunFinished)
				terminal += time.Since(begun)
				request += (<-p.ended).Sub(begun)
			}
			b.ReportMetric(float64(request.Microseconds())/float64(n), "µs/request-ended")
			b.ReportMetric(float64(terminal.Microseconds())/float64(n), "µs/end-readable")
		})
	}
}

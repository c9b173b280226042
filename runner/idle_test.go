package runner_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
)

// idling is a store that is full of idle sessions.
type idling interface {
	spool.Store
	spool.Leaser
	spool.Lister
	spool.Trimmer
	spool.Expirer
	spool.Measurer
}

// fillIdle makes sessions whose turn is over and whose trace was trimmed.
func fillIdle(t testing.TB, s idling, n int) {
	t.Helper()
	var wg sync.WaitGroup
	const parts = 16
	for part := range parts {
		wg.Go(func() {
			for i := part; i < n; i += parts {
				if err := makeIdle(t.Context(), s, fmt.Sprint("idle", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func makeIdle(ctx context.Context, s idling, session string) error {
	l, err := s.Claim(ctx, spool.Claim{Owner: "o", Session: session, Force: true})
	if err != nil {
		return err
	}
	rec := chunk.Record{Type: chunk.TypeRunFinished, Agent: session, Class: chunk.Kept, Data: []byte(`{"type":"run_finished"}`)}
	_, err = s.Append(ctx, spool.Append{Session: session, Epoch: l.Epoch, Records: []chunk.Record{rec}, Row: spool.Row{Status: chunk.StatusEnded}, Settle: &spool.Settle{}})
	if err == nil {
		err = s.Trim(ctx, session, 1, 0)
	}
	if err == nil {
		err = s.Release(ctx, l)
	}
	return err
}

// tally counts a store's calls, and the rows that its listings return.
type tally struct {
	idling
	mu    sync.Mutex
	calls map[string]int
}

func (s *tally) count(call string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call] += n
}

// taken returns what was counted since the last time.
func (s *tally) taken() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := maps.Clone(s.calls)
	clear(s.calls)
	return taken
}

func (s *tally) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	s.count("append", 1)
	return s.idling.Append(ctx, a)
}

func (s *tally) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	s.count("read", 1)
	return s.idling.Read(ctx, session, after, max)
}

func (s *tally) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	s.count("read", 1)
	return s.idling.ReadKept(ctx, session, q)
}

func (s *tally) Head(ctx context.Context, session string) (spool.Head, error) {
	s.count("head", 1)
	return s.idling.Head(ctx, session)
}

func (s *tally) Wait(ctx context.Context, session string, h spool.Head) (spool.Head, []chunk.Record, error) {
	s.count("wait", 1)
	return s.idling.Wait(ctx, session, h)
}

func (s *tally) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	s.count("claim", 1)
	return s.idling.Claim(ctx, c)
}

func (s *tally) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	s.count("session", 1)
	return s.idling.Session(ctx, session)
}

func (s *tally) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	p, err := s.idling.Sessions(ctx, q)
	s.count("sessions", 1)
	s.count("rows", len(p.Sessions))
	return p, err
}

func (s *tally) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	s.count("trim", 1)
	return s.idling.Trim(ctx, session, traceFloor, floor)
}

func (s *tally) Usage(ctx context.Context, principal string) (spool.Usage, error) {
	s.count("usage", 1)
	return s.idling.Usage(ctx, principal)
}

// Sessions that nobody uses cost a process nothing when it starts, one listing in its first
// sweep, and no more than a page in each later one. No log is read.
func TestIdleSessionsCostNothing(t *testing.T) {
	const sessions, page = 10_000, 1000
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		defer store.Close()
		fillIdle(t, store, sessions)
		time.Sleep(48 * time.Hour)
		counted := &tally{idling: store, calls: map[string]int{}}
		logs := spool.NewLogs(counted, &spool.Options{Policy: spool.Policy{Limits: spool.Limits{TTL: 30 * 24 * time.Hour}}})
		defer logs.Close()
		r, err := runner.New(logs, []*agent.Agent{demo(nil)}, &runner.Options{Metrics: new(runner.Metrics)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		atMost := func(what string, limits map[string]int) {
			t.Helper()
			synctest.Wait()
			got := counted.taken()
			for call, n := range got {
				if n > limits[call] {
					t.Errorf("%s: %d × %s, want at most %d: %v", what, n, call, limits[call], got)
				}
			}
		}
		time.Sleep(time.Minute)
		claims := 20 // it looks again after each wait, which ends after a third of a TTL
		atMost("the first minute", map[string]int{"claim": claims})
		time.Sleep(10 * time.Minute)
		// A look at the clock, a page of what has expired, and all pages of all sessions.
		const pages = sessions/page + 1
		atMost("the first sweep", map[string]int{"claim": 11 * claims, "session": 1, "append": pages + 1, "sessions": pages + 2, "rows": sessions + 1, "usage": 1})
		time.Sleep(10 * time.Minute)
		atMost("the second sweep", map[string]int{"claim": 11 * claims, "session": 1, "append": 2, "sessions": 3, "rows": page + 1, "usage": 1})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What a store with idle sessions costs a process: to start, and to sweep. Where nothing
// else is said, the sessions are in a SQLite file.
func BenchmarkIdleSessions(b *testing.B) {
	for _, sessions := range []int{0, 100_000} {
		path := filepath.Join(b.TempDir(), "idle.db")
		var asked atomic.Int64 // their last appends are spread over some days
		fill, err := sqlitestore.Open(path, &sqlitestore.Options{Sync: sqlitestore.SyncNormal,
			Now: func() time.Time { return time.Now().Add(-30*24*time.Hour + time.Duration(asked.Add(1))*time.Second) }})
		if err != nil {
			b.Fatal(err)
		}
		fillIdle(b, fill, sessions)
		if err := fill.Close(); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("sessions=%d/start", sessions), func(b *testing.B) {
			for b.Loop() {
				s, err := sqlitestore.Open(path, nil)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Claim(b.Context(), spool.Claim{Owner: "o", Agents: []string{"demo", "assistant"}}); err == nil {
					b.Fatal("claimed an idle session")
				}
				_ = s.Close()
			}
		})
		store, err := sqlitestore.Open(path, nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, first := range []bool{true, false} {
			name := map[bool]string{true: "first-sweep", false: "later-sweep"}[first]
			b.Run(fmt.Sprintf("sessions=%d/%s", sessions, name), func(b *testing.B) { benchSweep(b, store, first) })
		}
		_ = store.Close()
	}
}

// benchSweep measures the first sweep of a process, or a later one, and the memory that
// remains in use after it.
func benchSweep(b *testing.B, store *sqlitestore.Store, first bool) {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before := m.HeapAlloc
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		sweeps := 1
		if !first {
			sweeps = 2
		}
		begun, ended := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(b.Context())
		logs := spool.NewLogs(store, &spool.Options{Sleep: func(ctx context.Context, _ time.Duration) error {
			if sweeps--; sweeps == 0 {
				time.Sleep(2 * time.Millisecond) // more than half an interval since the last sweep
				begun <- struct{}{}
			} else if sweeps < 0 {
				close(ended)
				<-ctx.Done()
			}
			return ctx.Err()
		}})
		done := make(chan error)
		go func() { done <- runner.Sweep(ctx, logs, runner.Retention{Every: time.Millisecond}) }()
		<-begun
		b.StartTimer()
		<-ended
		b.StopTimer()
		cancel()
		<-done
		_ = logs.Close()
		b.StartTimer()
	}
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)-float64(before), "heap-B")
}

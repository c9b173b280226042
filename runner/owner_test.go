package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/tool"
)

// mortal is a store whose process can die: then nothing gets through any more.
type mortal struct {
	*memstore.Store
	mu    sync.Mutex
	dead  bool
	made  int  // appends that were tried
	lives int  // it dies at this one; 0: it does not
	lost  bool // the last append is stored, but nobody learns of it
}

var errDead = errors.New("the process is dead")

func (m *mortal) die() { m.mu.Lock(); defer m.mu.Unlock(); m.dead = true }

func (m *mortal) check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	return nil
}

// appends counts another one.
func (m *mortal) appends() int { m.mu.Lock(); defer m.mu.Unlock(); m.made++; return m.made }

func (m *mortal) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if err := m.check(); err != nil {
		return spool.Appended{}, err
	}
	if m.appends() == m.lives {
		m.die()
		if m.lost {
			_, _ = m.Store.Append(ctx, a)
		}
		return spool.Appended{}, errDead
	}
	return m.Store.Append(ctx, a)
}

func (m *mortal) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	if err := m.check(); err != nil {
		return spool.Lease{}, err
	}
	return m.Store.Claim(ctx, c)
}

func (m *mortal) Renew(ctx context.Context, l spool.Lease) error {
	if err := m.check(); err != nil {
		return err
	}
	return m.Store.Renew(ctx, l)
}

func (m *mortal) Release(ctx context.Context, l spool.Lease) error {
	if err := m.check(); err != nil {
		return err
	}
	return m.Store.Release(ctx, l)
}

// second returns a world on the same store, as another process sees it, which
// can die.
func (w *world) second(name string) (*world, *mortal) {
	m := &mortal{Store: w.store.(*memstore.Store)}
	return w.on(m, name), m
}

// on returns a world on a store that is this one's to another process.
func (w *world) on(store spool.Store, name string) *world {
	other := &world{t: w.t, store: store, ends: w.ends}
	other.logs = spool.NewLogs(store, &spool.Options{
		NewID:        func() string { return fmt.Sprintf("%s-%06d", name, other.ids.Add(1)) },
		BatchRecords: 1,
	})
	*w.ends = append(*w.ends, func() { _ = other.logs.Close() })
	return other
}

func TestKilledOwnersRunIsSettledByAnother(t *testing.T) {
	inWorld(t, func(w *world) {
		first, store := w.second("first")
		first.start(demo(nil), nil)
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, func(c chunk.Chunk) bool { return c.(*chunk.TextDelta).Delta == "w2 " })
		store.die()
		begun := time.Now()
		w.start(demo(nil), &runner.Options{FailLost: true})
		w.settled("s")
		if took := time.Since(begun); took < 20*time.Second || took > 35*time.Second {
			t.Errorf("taken over after %v", took)
		}
		w.wantLost("s")
	})
}

// wantLost checks that the session's run, which was lost after three words, has failed
// with them as its answer, and that the session goes on.
func (w *world) wantLost(session string) {
	w.t.Helper()
	f := w.fold(session)
	if f.Status != chunk.StatusFailed || f.Error.Code != runner.CodeExecutorLost {
		w.t.Errorf("%s %+v", f.Status, f.Error)
	}
	if got := f.Messages[1].Text(); !strings.HasPrefix(got, "w0 w1 w2 ") {
		w.t.Errorf("kept %q", got)
	}
	want := "user_message run_started step_started text_delta executor_superseded assistant_message step_committed error run_finished"
	if got := kinds(w.settled(session)); got != want {
		w.t.Errorf("got  %s\nwant %s", got, want)
	}
	w.say(session, "u2", "hello")
	if f := w.fold(session); f.Status != chunk.StatusEnded {
		w.t.Errorf("the session did not go on: %s", f.Status)
	}
}

func TestStopOfALostRunIsAStop(t *testing.T) {
	inWorld(t, func(w *world) {
		first, store := w.second("first")
		first.start(demo(nil), nil)
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		store.die()
		w.stop("s", "x1")
		w.start(demo(nil), nil)
		w.wantStopped("s")
	})
}

func TestSupersededOwnerWritesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		var failures []error
		first, _ := w.second("first")
		first.start(demo(nil), &runner.Options{Observer: runner.Observer{Failed: func(_ string, err error) {
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, err)
		}}})
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		lease, err := w.logs.Claim(w.t.Context(), spool.Claim{Owner: "thief", TTL: time.Minute, Session: "s", Force: true})
		if err != nil {
			t.Fatal(err)
		}
		writer := w.log("s").Writer(lease, spool.WriterOptions{})
		defer writer.Close()
		res, err := writer.Commit(w.t.Context(), spool.Row{}, nil, &chunk.ExecutorSuperseded{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		head, err := w.log("s").Head(w.t.Context())
		if err != nil || head.Seq != res.Last {
			t.Errorf("the log went on to %d behind %d, %v", head.Seq, res.Last, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(failures) != 1 || !errors.Is(failures[0], spool.ErrSuperseded) {
			t.Errorf("failures %v", failures)
		}
	})
}

func TestDrain(t *testing.T) {
	inWorld(t, func(w *world) {
		_, stop := w.start(demo(nil), &runner.Options{DrainGrace: time.Minute})
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		queued := say("u2", "hello")
		queued.WhenBusy = chunk.BusyQueue
		w.command("s", queued)
		synctest.Wait()
		stop()
		head, err := w.log("s").Head(w.t.Context())
		if err != nil || head.Status != chunk.StatusEnded || head.Due == 0 {
			t.Errorf("after the drain: %+v, %v", head, err)
		}
		begun := time.Now()
		w.start(demo(nil), nil)
		f := w.fold("s")
		if len(f.Turns) != 2 || f.Turns[0].LastRun().Outcome != "completed" || f.Reason != "completed" {
			t.Errorf("turns %s", mustJSON(f.Turns))
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the lease was not released: %v", took)
		}
	})
}

func TestDetach(t *testing.T) {
	inWorld(t, func(w *world) {
		_, stop := w.start(demo(nil), &runner.Options{DrainGrace: 3 * time.Second})
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("draining took %v", took)
		}
		head, err := w.log("s").Head(w.t.Context())
		if err != nil || head.Status != chunk.StatusActive {
			t.Errorf("%+v, %v", head, err)
		}
		w.start(demo(nil), &runner.Options{FailLost: true})
		f := w.fold("s")
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("the next owner had to wait: %v", took)
		}
		if f.Status != chunk.StatusFailed || f.Error.Code != runner.CodeExecutorLost || f.Messages[1].Text() == "" {
			t.Errorf("%s %+v", f.Status, f.Error)
		}
	})
}

func TestManySessions(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		started, finished := 0, 0
		o := runner.Options{MaxConcurrent: 8, Observer: runner.Observer{
			RunStarted: func(agent.RunInfo) { mu.Lock(); started++; mu.Unlock() },
			RunFinished: func(r agent.RunInfo, err error) {
				mu.Lock()
				defer mu.Unlock()
				finished++
				if err != nil || r.Outcome != chunk.OutcomeCompleted {
					t.Errorf("%s: %s, %v", r.Session, r.Outcome, err)
				}
			},
		}}
		second, _ := w.second("second")
		w.start(demo(nil), &o)
		second.start(demo(nil), &o)
		for i := range 20 {
			w.say(fmt.Sprintf("s%d", i), "u1", "tools")
		}
		for i := range 20 {
			f := w.fold(fmt.Sprintf("s%d", i))
			if f.Reason != "completed" || len(f.Turns) != 1 || len(f.Turns[0].Runs) != 1 || len(toolParts(f)) != 3 {
				t.Errorf("s%d: %s %s", i, f.Reason, mustJSON(f.Turns))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if started != 20 || finished != 20 {
			t.Errorf("%d started, %d finished", started, finished)
		}
	})
}

func TestSameSeamsSameLog(t *testing.T) {
	t.Parallel()
	plain := func(func(tool.Call)) *agent.Agent { return demo(nil) }
	for name, make := range map[string]func(func(tool.Call)) *agent.Agent{
		"plain": plain, "with hooks": hooked(plain), "asked again": breaking(plain),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := func() string {
				var log string
				inWorld(t, func(w *world) {
					w.start(make(nil), nil)
					for i, text := range []string{"tools", "think", "fail", "long"} {
						w.say("s", fmt.Sprintf("u%d", i), text)
						w.settled("s")
					}
					var b strings.Builder
					for _, r := range w.settled("s") {
						fmt.Fprintf(&b, "%d %s\n", r.Seq, r.Data)
					}
					log = b.String()
				})
				return log
			}
			if a, b := record(), record(); a != b {
				t.Errorf("two logs differ: %d and %d bytes", len(a), len(b))
			}
		})
	}
}

func TestClosedStoreEndsRun(t *testing.T) {
	inWorld(t, func(w *world) {
		r, err := runner.New(w.logs, []*agent.Agent{demo(nil)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- r.Run(context.Background()) }()
		synctest.Wait()
		_ = w.store.(*memstore.Store).Close()
		if err := <-done; !errors.Is(err, spool.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

func TestSessionThatCannotBeServedIsLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		var failures atomic.Int64
		w.start(demo(nil), &runner.Options{Observer: runner.Observer{Failed: func(string, error) { failures.Add(1) }}})
		_, err := w.store.Append(w.t.Context(), spool.Append{Session: "s", Records: []chunk.Record{{Type: "user_message", Agent: "s", Data: []byte("{}")}}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if n := failures.Load(); n < 2 || n > 11 {
			t.Errorf("it was tried %d times in five minutes", n)
		}
	})
}

// Whatever append an owner dies at, whether that append is stored or not, a next
// owner that does not recover settles the run with what was shown, and the session goes on.
func TestLostRunsAreSettledAtEveryAppend(t *testing.T) {
	t.Parallel()
	moments, appends := lived(t, func(w, process *world, _ *effects) {
		process.start(demo(nil), nil)
		w.say("s", "u1", "tools")
		w.fold("s")
	})
	if appends < 20 {
		t.Errorf("only %d appends", appends)
	}
	for i := range matrix.Points(t, len(moments), 8) {
		where := moments[i]
		where.goOn(t, func(w *world) {
			shown := w.shown("s")
			w.start(demo(nil), &runner.Options{FailLost: true})
			f := w.fold("s")
			if len(f.Turns) != 1 || f.Live() || len(f.Turns[0].Runs) != 1 {
				t.Fatalf("%s: %s", where, mustJSON(f.Turns))
			}
			if f.Reason != "completed" && (f.Reason != "failed" || f.Error.Code != runner.CodeExecutorLost) {
				t.Errorf("%s: %s %+v", where, f.Reason, f.Error)
			}
			for _, p := range f.Messages[1].Parts {
				if p.Open || p.Tool != nil && !p.Tool.State.Done() {
					t.Errorf("%s: left open: %s", where, mustJSON(p))
				}
			}
			if got := f.Messages[1].Text(); got != shown && f.Reason == "failed" && shown != "" {
				t.Errorf("%s: shown %q, kept %q", where, shown, got)
			}
			w.say("s", "u2", "hello")
			if f := w.fold("s"); len(f.Turns) != 2 || f.Reason != "completed" {
				t.Errorf("%s: the session did not go on: %s", where, f.Reason)
			}
		})
	}
}

// shown returns the text that readers have seen so far.
func (w *world) shown(session string) string {
	var b strings.Builder
	for _, r := range w.records(session) {
		if c, ok := w.decode(r).(*chunk.TextDelta); ok {
			b.WriteString(c.Delta)
		}
	}
	return b.String()
}

// An owner that dies between the error of its failed run and the run's end has decided:
// the next one ends the run with that error, and asks the model for nothing.
func TestFailureThatIsInTheLogStands(t *testing.T) {
	inWorld(t, func(w *world) {
		lease, err := w.logs.Claim(w.t.Context(), spool.Claim{Owner: "dead", Session: "s", TTL: time.Second, Force: true})
		if err != nil {
			t.Fatal(err)
		}
		g, err := w.logs.Log("s")
		if err != nil {
			t.Fatal(err)
		}
		failure := &chunk.ErrorChunk{Error: "no more credit", Code: "provider_authentication", Fatal: true}
		_, err = g.Append(w.t.Context(), lease, spool.Entry{Writer: "w", Ordinal: 1, Base: chunk.Base{RunID: "r", AgentType: "demo"}, Row: spool.Row{Status: chunk.StatusActive},
			Chunks: []chunk.Chunk{&chunk.RunStarted{TurnID: "t", MessageID: "m", Mode: chunk.ModeStart}, &chunk.StepStarted{Base: chunk.Base{Step: 1}, StepID: "r-s1"}, failure}})
		if err != nil {
			t.Fatal(err)
		}
		w.start(demo(nil), nil)
		if f := w.fold("s"); f.Status != chunk.StatusFailed || f.Error == nil || f.Error.Error != failure.Error || f.Error.Code != failure.Code {
			t.Errorf("%s %+v", f.Status, f.Error)
		}
		if got, want := kinds(w.settled("s")), "run_started step_started error executor_superseded step_committed run_finished"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// The notice of a take-over says what its writer knows: that the lease is over, for
// whatever reason, or that the owner was not waited for.
func TestReasonsOfTakeOvers(t *testing.T) {
	for name, c := range map[string]struct {
		leaves func(w *world, stop, die func())
		want   string
	}{
		"expired":  {func(_ *world, _, die func()) { die() }, chunk.LeaseEnded},
		"released": {func(_ *world, stop, _ func()) { stop() }, chunk.LeaseEnded},
		"forced": {func(w *world, _, die func()) {
			die()
			w.stop("s", "x")
			if err := runner.ForceStop(w.t.Context(), w.logs, "s"); err != nil {
				w.t.Error(err)
			}
		}, chunk.OwnerForced},
	} {
		inWorld(t, func(w *world) {
			first, store := w.second("first")
			_, stop := first.start(demo(nil), &runner.Options{DrainGrace: time.Second})
			w.say("s", "u1", "slowly")
			w.until("s", chunk.TypeTextDelta, nil)
			c.leaves(w, stop, store.die)
			w.start(demo(nil), nil)
			notice := w.decode(w.until("s", chunk.TypeExecutorSuperseded, nil)).(*chunk.ExecutorSuperseded)
			if notice.Reason != c.want || notice.AgentType != "demo" {
				t.Errorf("%s: %+v", name, notice)
			}
			w.settled("s")
		})
	}
}

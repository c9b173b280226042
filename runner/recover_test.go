package runner_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/tool"
)

// effects counts what tools have done, outside of any store.
type effects struct {
	mu   sync.Mutex
	done map[string]int // by effect id, without the run's
	all  []string
}

func (e *effects) add(c tool.Call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done == nil {
		e.done = map[string]int{}
	}
	e.done[c.ID]++
	e.all = append(e.all, c.EffectID)
}

func (e *effects) count(call string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done[call]
}

func (e *effects) calls() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := map[string]int{}
	for c, n := range e.done {
		m[c] = n
	}
	return m
}

// finish answers what the session waits for until it waits no more.
func (w *world) finish(s scenario) *fold.Fold {
	w.t.Helper()
	for range 10 {
		f := w.fold("s")
		if !w.reply(s, f) {
			return f
		}
	}
	w.t.Fatal("it waits for ever")
	return nil
}

// reply sends what the session waits for. It reports false if it waits for
// nothing.
func (w *world) reply(s scenario, f *fold.Fold) bool {
	w.t.Helper()
	replies, err := s.replies(w.t.Context(), w.log("s"), f)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(replies) > 0 {
		w.command("s", replies...)
	}
	return len(replies) > 0
}

// undisturbed plays a scenario in peace.
func undisturbed(t *testing.T, s scenario) (want string, records int, done map[string]int) {
	inWorld(t, func(w *world) {
		other, _ := w.second("first") // with one record an append, as the ones that die
		var e effects
		other.start(s.on(w.logs, e.add), nil)
		w.say("s", "u1", s.name)
		w.hasten(s)
		f := w.finish(s)
		want, records, done = s.outcome(f), len(w.settled("s")), e.calls()
		if f.Reason != "completed" {
			t.Fatalf("%s undisturbed: %s", s.name, want)
		}
		checkLog(t, w.settled("s"))
	})
	return want, records, done
}

// Whatever record an owner dies at, before or after it is stored, the next one
// ends with the same messages, state and reason, and no call that has an outcome
// is made again.
func TestKillAtEveryRecord(t *testing.T) {
	for _, s := range append(scenarios(), hasty()...) {
		t.Run(s.title(), func(t *testing.T) {
			want, n, done := undisturbed(t, s)
			for _, lost := range []bool{false, true} {
				died := 0
				for k := 1; k <= n; k++ {
					inWorld(t, func(w *world) {
						if dieAt(t, w, s, k, lost, want, done) {
							died++
						}
					})
				}
				if died < n/2 {
					t.Errorf("of %d records it died at %d", n, died)
				}
			}
		})
	}
}

func dieAt(t *testing.T, w *world, s scenario, k int, lost bool, want string, done map[string]int) (died bool) {
	first, store := w.second("first")
	store.lives, store.lost = k, lost
	var e effects
	_, stop := first.start(s.on(w.logs, e.add), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
	w.say("s", "u1", s.name)
	w.hasten(s)
	time.Sleep(time.Minute)
	if w.reply(s, w.peek()) {
		time.Sleep(time.Minute)
	}
	stop()
	died = store.check() != nil
	where := fmt.Sprintf("died at append %d (stored: %v)", k, lost)
	completed := map[string]bool{}
	for _, p := range toolParts(w.peek()) {
		completed[p.CallID] = p.State.Done()
	}
	before := e.calls()
	w.start(s.on(w.logs, e.add), nil)
	f := w.finish(s)
	checkLog(t, w.settled("s"))
	if got := s.outcome(f); got != want && !s.unknown {
		t.Errorf("%s:\n%s\nundisturbed:\n%s\n%s", where, got, want, kinds(w.settled("s")))
	}
	if s.unknown && (f.Reason != "completed" || !strings.HasSuffix(f.Messages[1].Text(), "that was all")) {
		t.Errorf("%s:\n%s", where, outcome(f))
	}
	for call, n := range e.calls() {
		switch {
		case n > 1 && s.unknown:
			t.Errorf("%s: call %s did its work %d times", where, call, n)
		case n > 2:
			t.Errorf("%s: call %s did its work %d times", where, call, n)
		case completed[call] && n != before[call]:
			t.Errorf("%s: call %s was completed, and made again", where, call)
		}
	}
	ids := map[string]bool{}
	for _, id := range e.all {
		ids[id] = true
	}
	for call := range done {
		if n := e.count(call); n == 0 && !s.unknown {
			t.Errorf("%s: call %s never did its work", where, call)
		}
	}
	if len(ids) != len(e.calls()) {
		t.Errorf("%s: %d effect ids for %d calls", where, len(ids), len(e.calls()))
	}
	return died
}

// peek returns the fold of what is stored, whether anything goes on or not.
func (w *world) peek() *fold.Fold {
	w.t.Helper()
	f := fold.New("s")
	for _, r := range w.records("s") {
		if err := f.Apply(r); err != nil {
			w.t.Fatal(err)
		}
	}
	return f
}

// A run that kills whoever runs it does not go round for ever.
func TestRecoveriesAreBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		a := demo(map[string]scripted.Scene{"endless": sayFor(10_000, time.Second)})
		w.say("s", "u1", "endless")
		for i := range 8 {
			other, store := w.second(fmt.Sprint("owner", i))
			_, stop := other.start(a, &runner.Options{MaxRecoveries: 3, Observer: runner.Observer{Failed: func(string, error) {}}})
			time.Sleep(32 * time.Second) // the lease of the one before, and a part of the answer
			store.die()
			stop()
		}
		f := w.peek()
		if f.Status != chunk.StatusFailed || f.Error.Code != runner.CodeExecutorLost || len(f.Turns[0].Runs) != 1 {
			t.Errorf("%s %+v after %d records", f.Status, f.Error, f.Seq)
		}
		discards := 0
		for _, r := range w.records("s") {
			if r.Type == chunk.TypeStepDiscarded {
				discards++
			}
		}
		if discards != 3 {
			t.Errorf("%d recoveries", discards)
		}
	})
}

// The tool's policy decides about a call whose outcome was lost.
func TestUnknownCalls(t *testing.T) {
	for policy, want := range map[tool.Recovery]struct {
		state chunk.ToolState
		made  int
		text  string
	}{
		tool.RecoverFail:  {chunk.ToolFailed, 1, "unknown"},
		tool.RecoverRetry: {chunk.ToolCompleted, 2, ""},
		tool.RecoverAsk:   {chunk.ToolCompleted, 2, ""},
	} {
		t.Run(string(policy), func(t *testing.T) {
			inWorld(t, func(w *world) {
				var e effects
				a := &agent.Agent{Name: "demo", Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
					"go": useTool(call("a", "work", "{}")),
				}}), Tools: []tool.Tool{tool.With(tool.New("work", "", func(ctx tool.Context, _ struct{}) (string, error) {
					e.add(ctx.Call())
					if e.count("a") == 1 {
						<-ctx.Done()
					}
					return "ok", ctx.Err()
				}), tool.Options{Recovery: policy})}}
				first, store := w.second("first")
				first.start(a, &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
				w.say("s", "u1", "go")
				w.until("s", chunk.TypeToolStart, nil)
				synctest.Wait()
				store.die()
				w.start(a, nil)
				f := w.fold("s")
				if policy == tool.RecoverAsk {
					pending := f.Pending()
					if f.Status != chunk.StatusPaused || len(pending) != 1 || pending[0].Approval == nil {
						t.Fatalf("nobody is asked: %s %s", f.Status, mustJSON(f.Messages))
					}
					if e.count("a") != 1 {
						t.Errorf("made again before anyone was asked")
					}
					w.command("s", &chunk.ToolApprovalResponse{CommandID: "x", ApprovalID: pending[0].Approval.ID, Approved: true})
					f = w.fold("s")
				}
				c := toolParts(f)[0]
				if c.State != want.state || !strings.Contains(c.Error, want.text) || e.count("a") != want.made {
					t.Errorf("%d times: %s", e.count("a"), mustJSON(c))
				}
				if f.Reason != "completed" || e.all[0] != e.all[len(e.all)-1] {
					t.Errorf("%s, effects %v", f.Reason, e.all)
				}
			})
		})
	}
}

func TestDetachedRunGoesOnAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		_, stop := w.start(demo(nil), &runner.Options{DrainGrace: 3 * time.Second})
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		stop()
		begun := time.Now()
		var recovered int
		w.start(demo(nil), &runner.Options{Observer: runner.Observer{RunRecovered: func(agent.RunInfo) { recovered++ }}})
		f := w.fold("s")
		if took := time.Since(begun); took > 11*time.Second || recovered != 1 {
			t.Errorf("it took %v, %d recoveries", took, recovered)
		}
		if f.Reason != "completed" || !strings.HasPrefix(f.Messages[1].Text(), "w0 w1 ") || strings.Count(f.Messages[1].Text(), "w0 ") != 1 {
			t.Errorf("%s %q", f.Reason, f.Messages[1].Text())
		}
	})
}

// A call that is made again does not repeat its events, however they are stored.
func TestLargeEventsAreNotRepeated(t *testing.T) {
	inWorld(t, func(w *world) {
		var e effects
		large := strings.Repeat("x", 100<<10)
		a := &agent.Agent{Name: "demo", Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
			"go": useTool(call("a", "work", "{}")),
		}}), Tools: []tool.Tool{tool.With(tool.New("work", "", func(ctx tool.Context, _ struct{}) (string, error) {
			e.add(ctx.Call())
			for _, v := range []any{large, map[string]int{"$blob": 1}} {
				if err := ctx.Emit("table", v, nil); err != nil {
					return "", err
				}
			}
			if e.count("a") == 1 {
				<-ctx.Done()
			}
			return "ok", ctx.Err()
		}), tool.Options{Recovery: tool.RecoverRetry})}}
		first, store := w.second("first")
		first.start(a, &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeCustom, nil)
		synctest.Wait()
		store.die()
		w.start(a, nil)
		tables := 0
		for _, p := range w.fold("s").Messages[1].Parts {
			if p.Name == "table" {
				tables++
			}
		}
		if tables != 2 || e.count("a") != 2 {
			t.Errorf("%d tables of %d calls", tables, e.count("a"))
		}
	})
}

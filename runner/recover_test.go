package runner_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
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
	done, _ := e.seen()
	return done
}

// seen returns the effects by call, and their ids.
func (e *effects) seen() (done map[string]int, ids []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	done = map[string]int{}
	maps.Copy(done, e.done)
	return done, slices.Clone(e.all)
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

// life is a scenario played in peace.
type life struct {
	want    string // its outcome
	log     []chunk.Record
	done    map[string]int // effects by call
	appends int            // of its owner, one record each
	moments []moment       // at which its owner could have died
}

func undisturbed(t *testing.T, s scenario) (l life) {
	t.Helper()
	l.moments, l.appends = lived(t, func(w, process *world, e *effects) {
		process.start(s.on(w.logs, e.add), nil)
		w.say("s", "u1", s.name)
		w.hasten(s)
		f := w.finish(s)
		l.want, l.log, l.done = s.outcome(f), w.settled("s"), e.calls()
		if f.Reason != "completed" {
			t.Fatalf("%s undisturbed: %s", s.name, l.want)
		}
		checkLog(t, l.log)
	})
	return l
}

// Whatever record an owner dies at, before or after it is stored, the next one
// ends with the same messages, state and reason, and no call that has an outcome
// is made again.
func TestKillAtEveryRecord(t *testing.T) {
	t.Parallel()
	for _, s := range append(scenarios(), hasty()...) {
		t.Run(s.title(), func(t *testing.T) {
			t.Parallel()
			l := undisturbed(t, s)
			if l.appends < len(l.log)/2 || len(l.moments) < l.appends {
				t.Errorf("of %d records %d were appended by the owner, and it could die at %d moments", len(l.log), l.appends, len(l.moments))
			}
			for i := range matrix.Points(t, len(l.moments), 16) {
				l.moments[i].goOn(t, func(w *world) { takeOver(t, w, s, l, l.moments[i]) })
			}
		})
	}
}

// takeOver goes on where the owner died.
func takeOver(t *testing.T, w *world, s scenario, l life, died moment) {
	completed := map[string]bool{}
	for _, p := range toolParts(w.peek()) {
		completed[p.CallID] = p.State.Done()
	}
	var e effects
	w.hasten(s)
	w.start(s.on(w.logs, e.add), nil)
	f := w.finish(s)
	checkLog(t, w.settled("s"))
	if got := s.outcome(f); got != l.want && !s.unknown {
		t.Errorf("%s:\n%s\nundisturbed:\n%s\n%s", died, got, l.want, kinds(w.settled("s")))
	}
	if s.unknown && (f.Reason != "completed" || !strings.HasSuffix(f.Messages[1].Text(), "that was all")) {
		t.Errorf("%s:\n%s", died, outcome(f))
	}
	again, ids := e.seen()
	times := maps.Clone(died.done)
	for call, n := range again {
		times[call] += n
		if n > 1 {
			t.Errorf("%s: the next owner made call %s %d times", died, call, n)
		}
	}
	for call, n := range times {
		switch {
		case n > 1 && s.unknown, n > 2:
			t.Errorf("%s: call %s did its work %d times", died, call, n)
		case completed[call] && again[call] > 0:
			t.Errorf("%s: call %s was completed, and made again", died, call)
		}
	}
	for call := range l.done {
		if times[call] == 0 && !s.unknown {
			t.Errorf("%s: call %s never did its work", died, call)
		}
	}
	known := map[string]bool{}
	for _, id := range append(ids, died.ids...) {
		known[id] = true
	}
	if len(known) != len(times) {
		t.Errorf("%s: %d effect ids for %d calls", died, len(known), len(times))
	}
}

// Whatever append an owner's store fails at permanently, the owner ends: nothing of
// it goes on, and it has done nothing that it had not stored to be about to do.
func TestOwnerEndsWithItsStoreAtEveryAppend(t *testing.T) {
	t.Parallel()
	plain := scenario{name: "tools", agent: func(func(tool.Call)) *agent.Agent { return demo(nil) }}
	for _, s := range append(append(scenarios(), hasty()...), plain) {
		t.Run(s.title(), func(t *testing.T) {
			t.Parallel()
			appends := undisturbed(t, s).appends
			for _, lost := range []bool{false, true} {
				died := 0
				for i := range matrix.Points(t, appends, 16) {
					inWorld(t, func(w *world) {
						if dieAt(t, w, s, i+1, lost) {
							died++
						}
					})
				}
				if !matrix.Race && died < appends/2 || died == 0 {
					t.Errorf("of %d appends it died at %d", appends, died)
				}
			}
		})
	}
}

// dieAt lets an owner's store fail from its k-th append on. If it is lost, that
// append is stored, but the owner does not learn of it.
func dieAt(t *testing.T, w *world, s scenario, k int, lost bool) (died bool) {
	first, store := w.second("first")
	store.lives, store.lost = k, lost
	var e effects
	_, stop := first.start(s.on(w.logs, e.add), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
	w.say("s", "u1", s.name)
	w.hasten(s)
	time.Sleep(time.Minute)
	for store.check() == nil && w.reply(s, w.peek()) {
		time.Sleep(time.Minute)
	}
	stop()
	where := fmt.Sprintf("failed at append %d (stored: %v)", k, lost)
	dispatched := map[string]bool{}
	for _, r := range w.records("s") {
		if r.Type == chunk.TypeToolStart {
			dispatched[w.decode(r).(*chunk.ToolStart).ToolCallID] = true
		}
	}
	for call, n := range e.calls() {
		if n > 1 || !dispatched[call] {
			t.Errorf("%s: call %s did its work %d times, and the log knows of it: %v", where, call, n, dispatched[call])
		}
	}
	return store.check() != nil
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

// A run that kills its owners is not continued for ever.
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

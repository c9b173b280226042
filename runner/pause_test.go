package runner_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/tool"
)

// waitingWorld has a session that waits, with nobody to run it.
func waitingWorld(w *world, name string, limit time.Duration) (scenario, *effects) {
	w.t.Helper()
	var s scenario
	for _, s = range scenarios() {
		if s.title() == name {
			break
		}
	}
	var e effects
	a := s.agent(e.add)
	a.WaitLimit = limit
	_, stop := w.start(a, nil)
	w.say("s", "u1", s.name)
	if f := w.fold("s"); f.Status != chunk.StatusPaused {
		w.t.Fatalf("it does not wait: %s", outcome(f))
	}
	stop()
	return s, &e
}

// A pause holds nothing: the process may end, and days later another goes on.
func TestPauseOutlivesItsProcess(t *testing.T) {
	for _, s := range scenarios() {
		if s.answer == nil {
			continue
		}
		name := s.title()
		l := undisturbed(t, s)
		inWorld(t, func(w *world) {
			s, e := waitingWorld(w, name, 0)
			head, err := w.log("s").Head(w.t.Context())
			if err != nil || head.Due != 0 || head.Status != chunk.StatusPaused {
				t.Errorf("%+v, %v", head, err)
			}
			before := head.Seq
			time.Sleep(72 * time.Hour)
			w.start(s.agent(e.add), nil)
			time.Sleep(time.Hour)
			if head, _ := w.log("s").Head(w.t.Context()); head.Seq != before {
				t.Errorf("something was written while it waits")
			}
			f := w.finish(s)
			if got := outcome(f); got != l.want {
				t.Errorf("%s:\n%s\nat once:\n%s", name, got, l.want)
			}
			for call, n := range l.done {
				if e.count(call) != n {
					t.Errorf("%s: call %s did its work %d times", name, call, e.count(call))
				}
			}
		})
	}
}

// Nobody answers: that is a decision, too.
func TestPauseExpires(t *testing.T) {
	for _, name := range []string{"approval", "client"} {
		inWorld(t, func(w *world) {
			s, e := waitingWorld(w, name, time.Hour)
			w.start(s.agent(e.add), nil)
			begun := time.Now()
			w.until("s", chunk.TypeRunFinished, nil)
			if took := time.Since(begun); took < 59*time.Minute || took > 61*time.Minute {
				t.Errorf("%s: it waited %v", name, took)
			}
			f := w.fold("s")
			if f.Reason != "completed" {
				t.Errorf("%s: %s", name, f.Reason)
			}
			for _, c := range toolParts(f) {
				if name == "approval" && c.CallID != "c" && (c.State != chunk.ToolDenied || c.Approval.Reason == "" || e.count(c.CallID) != 0) ||
					name == "client" && c.CallID == "a" && (c.State != chunk.ToolFailed || c.Error == "") {
					t.Errorf("%s: %s", name, mustJSON(c))
				}
			}
		})
	}
}

// A stop that comes in the moment of the pause ends it all the same.
func TestStopInTheMomentOfThePause(t *testing.T) {
	inWorld(t, func(w *world) {
		var s scenario
		for _, s = range scenarios() {
			if s.name == "approval" {
				break
			}
		}
		a := s.agent(func(tool.Call) {})
		first, store := w.second("first")
		_, stop := first.start(a, &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
		w.say("s", "u1", "approval")
		w.until("s", chunk.TypeRunSuspended, nil)
		synctest.Wait()
		store.die()
		stop()
		w.stopBeforeTheLast("s")
	})
}

// What a paused run waits for is told in words that clients know.
func TestPauseSaysWhatItWaitsFor(t *testing.T) {
	for name, want := range map[string]chunk.RunPaused{
		"approval": {Reason: "approval", PendingToolName: "gated", PendingToolCallID: "a"},
		"client":   {Reason: "client_tool", PendingToolName: "locate", PendingToolCallID: "a"},
	} {
		inWorld(t, func(w *world) {
			waitingWorld(w, name, 0)
			var told []chunk.RunPaused
			for _, r := range w.settled("s") {
				if c, ok := w.decode(r).(*chunk.RunPaused); ok {
					if c.RunID == "" || c.AgentID != "s" {
						t.Errorf("%s: %+v", name, c)
					}
					c.Base = chunk.Base{}
					told = append(told, *c)
				}
			}
			if len(told) != 1 || told[0] != want {
				t.Errorf("%s: told %+v, want %+v", name, told, want)
			}
		})
	}
}

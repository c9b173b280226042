package runner_test

import (
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
)

func (w *world) interrupt(session, id string) {
	w.t.Helper()
	w.command(session, &chunk.InterruptRequested{CommandID: id, Reason: "wait"})
}

func (w *world) goOn(session string) {
	w.t.Helper()
	w.command(session, &chunk.ResumeRequested{CommandID: "go-" + w.fold(session).Interrupted().ID, Mode: chunk.ModeContinue})
}

// wantInterrupted checks a session that rests after an interrupt.
func (w *world) wantInterrupted(session string, steps int) *fold.Fold {
	w.t.Helper()
	f := w.fold(session)
	run := f.Interrupted()
	if run == nil || f.Status != chunk.StatusPaused || f.Reason != "interrupted" || f.Interrupt != nil || run.Steps != steps {
		w.t.Fatalf("%s %s, %s", f.Status, f.Reason, mustJSON(f.Turns))
	}
	w.wantMarked(f)
	return f
}

// slowSteps is a scene of n steps with a call each, and a last one. Each part
// takes a while.
func slowSteps(n int) scripted.Scene {
	var steps []scripted.Step
	for range n {
		steps = append(steps, scripted.Say(scripted.Text("on "), scripted.Calls(call("a", "get_weather", `{"city":"Rome"}`))))
	}
	scene := then(steps...)
	return func(c scripted.Call) iter.Seq2[model.Part, error] {
		return func(yield func(model.Part, error) bool) {
			for p, err := range scene(c) {
				time.Sleep(10 * time.Millisecond)
				if !yield(p, err) {
					return
				}
			}
		}
	}
}

func TestInterruptWaitsForTheStepBoundary(t *testing.T) {
	for name, at := range map[string]chunk.Type{
		"in the model phase": chunk.TypeTextDelta, "in a tool": chunk.TypeToolStart, "while arguments come": chunk.TypeToolArgStreamStart,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start(demo(map[string]scripted.Scene{"go": slowSteps(2)}), nil)
				w.say("s", "u1", "go")
				w.until("s", at, nil)
				w.interrupt("s", "i1")
				w.interrupt("s", "i1") // a double click
				w.interrupt("s", "i2") // another tab
				f := w.wantInterrupted("s", 1)
				run := f.LastTurn().LastRun()
				for _, id := range []string{"i1", "i2"} {
					if v := f.Verdict(id); v.State != fold.VerdictAccepted || v.RunID != run.ID {
						t.Errorf("%s: %+v", id, v)
					}
				}
				said := w.decode(w.until("s", chunk.TypeRunInterrupted, nil)).(*chunk.RunInterrupted)
				if said.CheckpointID == nil || *said.CheckpointID != f.Checkpoints[0].ID || said.Reason != "wait" {
					t.Errorf("%s", mustJSON(said))
				}
				if got := kinds(w.settled("s")); !strings.HasSuffix(got, "step_committed checkpoint_created run_interrupted run_suspended") {
					t.Error(got)
				}
				w.goOn("s")
				f = w.fold("s")
				resumed := w.decode(w.until("s", chunk.TypeRunResumed, nil)).(*chunk.RunResumed)
				if resumed.Mode != "continue" || *resumed.FromCheckpointID != f.Checkpoints[0].ID || resumed.FromStepCount != 1 {
					t.Errorf("%s", mustJSON(resumed))
				}
				if f.Reason != "completed" || len(f.Turns) != 1 || len(f.Turns[0].Runs) != 2 || f.Messages[1].Text() != "on on that was all" {
					t.Errorf("%s %s", f.Reason, mustJSON(f.Turns))
				}
				checkLog(t, w.settled("s"))
			})
		})
	}
}

// Before its first step a run has nothing to come to the end of.
func TestInterruptBeforeTheFirstRecord(t *testing.T) {
	inWorld(t, func(w *world) {
		w.say("s", "u1", "hello")
		w.interrupt("s", "i1")
		w.start(demo(nil), nil)
		f := w.wantInterrupted("s", 0)
		if v := f.Verdict("i1"); v.RunID != f.LastTurn().LastRun().ID {
			t.Errorf("%+v", v)
		}
		if got := kinds(w.settled("s")); got != "user_message interrupt_requested run_started run_interrupted run_suspended" {
			t.Error(got)
		}
		w.goOn("s")
		if f := w.fold("s"); f.Reason != "completed" || len(f.Messages) != 2 {
			t.Errorf("%s", mustJSON(f))
		}
	})
}

// The last step's boundary is the end of the turn: an interrupt has nothing to
// pause there.
func TestInterruptInTheLastStep(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		w.interrupt("s", "i1")
		f := w.fold("s")
		if f.Reason != "completed" || f.Interrupt != nil || f.Verdict("i1").State != fold.VerdictAccepted {
			t.Errorf("%s %s", f.Reason, mustJSON(f.Interrupt))
		}
		w.interrupt("s", "i2")
		w.command("s", &chunk.InterruptRequested{CommandID: "i3", Target: "nobody"})
		synctest.Wait()
		f = w.fold("s")
		for _, id := range []string{"i2", "i3"} {
			if v := f.Verdict(id); v.Code != fold.RefusedNothingToInterrupt {
				t.Errorf("%s: %+v", id, v)
			}
		}
		w.say("s", "u2", "hello") // an old interrupt does not hit it
		if f := w.fold("s"); f.Reason != "completed" || len(f.Turns) != 2 {
			t.Errorf("%s, %d turns", f.Reason, len(f.Turns))
		}
	})
}

func TestStopAfterInterrupt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(map[string]scripted.Scene{"go": useTool(call("a", "slow", "{}"))}), nil)
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeToolStart, nil)
		w.interrupt("s", "i1")
		w.stop("s", "x1")
		f := w.wantStopped("s")
		if f.Interrupt != nil || f.Interrupted() != nil {
			t.Errorf("%s", mustJSON(f))
		}
		w.command("s", &chunk.ResumeRequested{CommandID: "c1", Mode: chunk.ModeContinue})
		if v := w.fold("s").Verdict("c1"); v.Code != fold.RefusedNothingToResume {
			t.Errorf("%+v", v)
		}
	})
}

// A stop that lands in the moment of the pause ends the turn all the same.
func TestStopInTheMomentOfTheInterrupt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.say("s", "u1", "go")
		w.interrupt("s", "i1")
		_, stop := w.start(demo(map[string]scripted.Scene{"go": slowSteps(2)}), nil)
		w.wantInterrupted("s", 0)
		stop()
		if f := w.stopBeforeTheLast("s"); f.Interrupted() != nil {
			t.Errorf("still interrupted: %s", mustJSON(f))
		}
	})
}

// An owner that takes over a run that was asked to pause pauses it: at once if it was
// in a model phase, which is dropped.
func TestNewOwnerObeysTheInterrupt(t *testing.T) {
	for _, shown := range []bool{false, true} {
		inWorld(t, func(w *world) {
			first, store := w.second("first")
			hang := func(yield func(model.Part, error) bool) {
				if shown && !yield(model.TextDelta{ID: "t", Delta: "lost"}, nil) {
					return
				}
				time.Sleep(time.Hour)
			}
			a := demo(map[string]scripted.Scene{"go": func(c scripted.Call) iter.Seq2[model.Part, error] {
				if c.Round == 1 {
					return hang
				}
				return slowSteps(1)(c)
			}})
			_, stop := first.start(a, &runner.Options{StopGrace: time.Millisecond, Observer: runner.Observer{Failed: func(string, error) {}}})
			w.say("s", "u1", "go")
			w.until("s", chunk.TypeStepStarted, func(c chunk.Chunk) bool { return c.ChunkBase().Step == 2 })
			synctest.Wait()
			store.die()
			stop()
			w.interrupt("s", "i1")
			w.start(demo(map[string]scripted.Scene{"go": slowSteps(1)}), nil)
			f := w.wantInterrupted("s", 1)
			if strings.Contains(f.Messages[1].Text(), "lost") || len(f.Messages[1].Parts) == 0 {
				t.Errorf("%s", mustJSON(f.Messages[1]))
			}
			w.goOn("s")
			if f := w.fold("s"); f.Reason != "completed" || f.Messages[1].Text() != "on that was all" {
				t.Errorf("shown %v: %s", shown, outcome(f))
			}
			time.Sleep(2 * time.Hour) // until the model that was left behind is back
		})
	}
}

// An interrupted session takes another message; what was interrupted stays as it
// is.
func TestMessageAfterInterrupt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.say("s", "u1", "go")
		w.interrupt("s", "i1")
		w.start(demo(map[string]scripted.Scene{"go": slowSteps(2)}), nil)
		w.wantInterrupted("s", 0)
		w.say("s", "u2", "hello")
		f := w.fold("s")
		if f.Reason != "completed" || len(f.Turns) != 2 || f.Turns[0].LastRun().Suspended != "interrupted" || len(f.Messages) != 4 {
			t.Errorf("%s", outcome(f))
		}
		if p := f.Messages[1].Parts; p[len(p)-1].Name != "run-interrupted" {
			t.Errorf("not marked any more: %s", mustJSON(p))
		}
		w.command("s",
			&chunk.ResumeRequested{CommandID: "c1", Mode: chunk.ModeWithMessage, WithMessage: true}, say("u3", "hello"))
		f = w.fold("s")
		run := f.LastTurn().LastRun()
		if v := f.Verdict("c1"); f.LastTurn().ID != "u3" || run.Mode != chunk.ModeWithMessage || v.RunID != run.ID {
			t.Errorf("%s, %+v", mustJSON(f.LastTurn()), v)
		}
		if got := kinds(w.settled("s")); !strings.Contains(got, "resume_requested user_message run_started run_resumed step_started") {
			t.Error(got)
		}
	})
}

func steer(id, text string) *chunk.UserMessage {
	m := say(id, text)
	m.WhenBusy = chunk.BusySteer
	return m
}

func (w *world) turns(session string) string {
	var ends []string
	for _, turn := range w.fold(session).Turns {
		run := turn.LastRun()
		ends = append(ends, turn.ID+" "+string(run.Outcome)+run.Suspended)
	}
	return strings.Join(ends, ", ")
}

func TestSteer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(map[string]scripted.Scene{"go": slowSteps(3)}), nil)
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeToolStart, nil)
		w.command("s", steer("u2", "hello"))
		w.command("s", steer("u3", "slowly")) // in order, and not away from each other
		if got := w.turns("s"); got != "u1 steered, u2 completed, u3 completed" {
			t.Error(got)
		}
		ends := w.finished("s")
		if ends[0].FinishReason != "other" || ends[0].Outcome != chunk.OutcomeSteered {
			t.Errorf("%s", mustJSON(ends[0]))
		}
		f := w.fold("s")
		if len(f.Messages) != 6 || f.Messages[1].Text() != "on " || f.Turns[0].LastRun().Steps != 1 {
			t.Errorf("%s", outcome(f))
		}
	})
}

func TestSteerInTheLastStep(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		w.command("s", steer("u2", "hello"))
		if got := w.turns("s"); got != "u1 completed, u2 completed" {
			t.Error(got)
		}
	})
}

// A run that pauses is not waited for by what steers it: nobody may ever answer.
func TestSteerOfAPause(t *testing.T) {
	for _, before := range []bool{true, false} {
		inWorld(t, func(w *world) {
			var s scenario
			for _, s = range scenarios() {
				if s.name == "approval" {
					break
				}
			}
			var e effects
			w.start(s.agent(e.add), nil)
			w.say("s", "u1", "approval")
			until := chunk.TypeRunSuspended
			if before {
				until = chunk.TypeToolArgStreamStart
			}
			w.until("s", until, nil)
			w.command("s", steer("u2", "tools"))
			f := w.fold("s")
			if len(f.Turns) != 2 || f.Status == chunk.StatusPaused || f.LastTurn().ID != "u2" || f.Reason != "completed" {
				t.Errorf("%s", outcome(f))
			}
			for _, c := range toolParts(f)[:3] {
				if !c.State.Done() {
					t.Errorf("left open: %s", mustJSON(c))
				}
			}
		})
	}
}

// Interrupted and steered at once, the session goes on with the message.
func TestSteerAndInterrupt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(map[string]scripted.Scene{"go": slowSteps(3)}), nil)
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeToolStart, nil)
		w.interrupt("s", "i1")
		w.command("s", steer("u2", "hello"))
		if got := w.turns("s"); got != "u1 steered, u2 completed" && got != "u1 interrupted, u2 completed" {
			t.Error(got)
		}
	})
}

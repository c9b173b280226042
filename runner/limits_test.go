package runner_test

import (
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/tool"
)

// wantLimit checks that the session's last run reached a limit.
func (w *world) wantLimit(code string) *fold.Fold {
	w.t.Helper()
	f := w.fold("s")
	ends := w.finished("s")
	end := ends[len(ends)-1]
	if f.Status != chunk.StatusEnded || f.Reason != "limit" || f.Error != nil ||
		end.Code != code || end.FinishReason != "length" || f.LastTurn().LastRun().Code != code {
		w.t.Errorf("%s %s %+v, ended with %+v", f.Status, f.Reason, f.Error, end)
	}
	if got, want := w.settled("s")[len(w.settled("s"))-1].Type, chunk.TypeRunFinished; got != want {
		w.t.Errorf("the log ends with %s", got)
	}
	return f
}

func TestStepTimeout(t *testing.T) {
	inWorld(t, func(w *world) {
		a := demo(map[string]scripted.Scene{"go": useTool(call("a", "slow", "{}"), call("b", "deaf", "{}"), call("c", "plan_trip", `{"city":"Rome","days":1}`))})
		a.StepTimeout = 5 * time.Second
		w.start(a, nil)
		w.say("s", "u1", "slowly") // ten seconds of words
		f := w.wantLimit("step_timeout")
		if text := f.Messages[1].Text(); !strings.HasPrefix(text, "w0 w1 ") || strings.Contains(text, "w60 ") {
			t.Errorf("kept %q", text)
		}
		begun := time.Now()
		w.say("s", "u2", "go")
		f = w.wantLimit("step_timeout")
		if took := time.Since(begun); took > 8*time.Second {
			t.Errorf("it took %v", took)
		}
		var states []string
		for _, c := range toolParts(f) {
			states = append(states, string(c.State))
		}
		if got := strings.Join(states, " "); got != "error error completed" || string(f.State) != `{"itinerary":["1 days in Rome"]}` {
			t.Errorf("calls: %s, state %s", got, f.State)
		}
		time.Sleep(time.Minute) // until the deaf tool is back
	})
}

// The time of a run counts from its start, with any owner.
func TestRunTimeoutAcrossOwners(t *testing.T) {
	inWorld(t, func(w *world) {
		a := demo(map[string]scripted.Scene{"go": sayFor(1000, time.Second)})
		a.RunTimeout = time.Minute
		begun := time.Now()
		first, store := w.second("first")
		first.start(a, nil)
		w.say("s", "u1", "go")
		time.Sleep(20 * time.Second)
		store.die()
		w.start(a, nil)
		w.wantLimit("run_timeout")
		if took := time.Since(begun); took < time.Minute || took > 65*time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

// A run that is found when its time is over asks the model nothing any more.
func TestRunTimeoutWhileNobodyRuns(t *testing.T) {
	inWorld(t, func(w *world) {
		a := demo(map[string]scripted.Scene{"go": sayFor(1000, time.Second)})
		a.RunTimeout = time.Minute
		_, stop := w.start(a, nil)
		w.say("s", "u1", "go")
		time.Sleep(20 * time.Second)
		stop()
		time.Sleep(time.Hour)
		begun := time.Now()
		w.start(a, nil)
		w.wantLimit("run_timeout")
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Pauses do not count, what came before them does.
func TestRunTimeoutAndPauses(t *testing.T) {
	for after, want := range map[int]string{10: "completed", 60: "limit"} {
		inWorld(t, func(w *world) {
			gated := tool.With(tool.New("gated", "", func(ctx tool.Context, _ struct{}) (int, error) { return 0, nil }), tool.Options{Approval: true})
			a := demo(map[string]scripted.Scene{"go": func(c scripted.Call) iter.Seq2[model.Part, error] {
				return func(yield func(model.Part, error) bool) {
					if c.Round == 0 {
						time.Sleep(30 * time.Second)
						_ = yield(model.ToolCallEnd{ID: "a", Name: "gated"}, nil) && yield(model.Finish{Reason: "tool-calls"}, nil)
						return
					}
					time.Sleep(time.Duration(after) * time.Second)
					_ = yield(model.TextDelta{Delta: "done"}, nil) && yield(model.Finish{Reason: "stop"}, nil)
				}
			}})
			a.Tools = append(a.Tools, gated)
			a.RunTimeout = time.Minute
			w.start(a, nil)
			w.say("s", "u1", "go")
			f := w.fold("s")
			time.Sleep(72 * time.Hour)
			w.command("s", &chunk.ToolApprovalResponse{CommandID: "ok", ApprovalID: f.Pending()[0].Approval.ID, Approved: true})
			if f := w.fold("s"); f.Reason != want {
				t.Errorf("with %d s after the pause: %s", after, f.Reason)
			}
			time.Sleep(time.Minute) // until the model is back
		})
	}
}

// spender uses tokens and calls a tool, without end.
func spender(input, output int64) scripted.Scene {
	return func(scripted.Call) iter.Seq2[model.Part, error] {
		return func(yield func(model.Part, error) bool) {
			_ = yield(model.UsageUpdate{Usage: chunk.Usage{InputTokens: input, OutputTokens: output}}, nil) &&
				yield(model.ToolCallEnd{ID: "a", Name: "gated"}, nil) && yield(model.Finish{Reason: "tool-calls"}, nil)
		}
	}
}

func TestTokenBudget(t *testing.T) {
	for name, o := range map[string]tool.Options{"in one run": {}, "over pauses": {Approval: true}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := demo(map[string]scripted.Scene{"go": spender(20, 5)})
				a.Tools = append(a.Tools, tool.With(tool.New("gated", "", func(tool.Context, struct{}) (int, error) { return 0, nil }), o))
				a.TokenBudget = 70
				w.start(a, nil)
				w.say("s", "u1", "go")
				for {
					f := w.fold("s")
					if f.Status != chunk.StatusPaused {
						break
					}
					ask := f.Pending()[0].Approval.ID
					w.command("s", &chunk.ToolApprovalResponse{CommandID: "yes-" + ask, ApprovalID: ask, Approved: true})
				}
				f := w.wantLimit("max_tokens")
				if f.Usage.InputTokens != 60 || len(toolParts(f)) != 3 {
					t.Errorf("%+v, %d calls", f.Usage, len(toolParts(f)))
				}
			})
		})
	}
}

func TestMaxStepsSaysSo(t *testing.T) {
	inWorld(t, func(w *world) {
		a := demo(map[string]scripted.Scene{"go": spender(1, 1)})
		a.Tools = append(a.Tools, tool.New("gated", "", func(tool.Context, struct{}) (int, error) { return 0, nil }))
		a.MaxSteps = 4
		w.start(a, nil)
		w.say("s", "u1", "go")
		if f := w.wantLimit("max_steps"); len(toolParts(f)) != 4 {
			t.Errorf("%d calls", len(toolParts(f)))
		}
	})
}

// The hooks of a run's end know how it ended, and what they write stands before
// the end; those that hang are left behind.
func TestAfterRun(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		var ends []agent.RunEnd
		hooks := &agent.Hooks{AfterRun: func(h agent.HookContext, e agent.RunEnd) {
			mu.Lock()
			ends = append(ends, e)
			mu.Unlock()
			if err := tool.UpdateState(h.Context, func(m *marks) error { m.Marks = map[string]int{string(e.Outcome) + e.Suspended: 1}; return nil }); err != nil {
				t.Error(err)
			}
			if err := h.Emit("over", e.Outcome, nil); err != nil {
				t.Error(err)
			}
			if e.Outcome == chunk.OutcomeStopped {
				time.Sleep(time.Minute)
				if err := h.Emit("late", 1, nil); err == nil {
					t.Error("it was not left behind")
				}
			}
		}}
		a := demo(nil)
		a.Tools = append(a.Tools, tool.With(tool.New("gated", "", func(tool.Context, struct{}) (int, error) { return 0, nil }), tool.Options{Approval: true}))
		a.Model = scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"go": useTool(call("a", "gated", "{}")), "slowly": sayFor(100, 100*time.Millisecond)}})
		w.start(a, &runner.Options{Hooks: hooks})
		state := func(text, want string) {
			t.Helper()
			if f := w.fold("s"); string(f.State) != want {
				t.Errorf("%s: the state is %s, want %s\n%s", text, f.State, want, kinds(w.settled("s")))
			}
		}
		w.say("s", "u1", "hello")
		state("hello", `{"marks":{"completed":1}}`)
		w.say("s", "u2", "fail")
		state("fail", `{"marks":{"failed":1}}`)
		w.say("s", "u3", "slowly")
		w.until("s", chunk.TypeTextDelta, func(c chunk.Chunk) bool { return c.(*chunk.TextDelta).Delta == "w2 " })
		begun := time.Now()
		w.stop("s", "x1")
		state("stop", `{"marks":{"stopped":1}}`)
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the stop took %v", took)
		}
		w.say("s", "u4", "go")
		state("pause", `{"marks":{"awaiting_approval":1}}`)
		mu.Lock()
		defer mu.Unlock()
		if len(ends) != 4 || ends[1].Code != model.CodeUnavailable || ends[1].Err == nil || ends[2].Err != nil {
			t.Errorf("%+v", ends)
		}
		time.Sleep(2 * time.Minute)
	})
}

// A hook that hangs before the model is left behind as a model that does.
func TestHookThatHangsIsLeftBehind(t *testing.T) {
	inWorld(t, func(w *world) {
		a := demo(nil)
		a.Hooks = &agent.Hooks{BeforeModel: func(h agent.HookContext, _ *model.Request) error {
			time.Sleep(time.Hour)
			return h.Emit("late", 1, nil)
		}}
		w.start(a, nil)
		w.say("s", "u1", "hello")
		w.until("s", chunk.TypeStepStarted, nil)
		w.stop("s", "x1")
		w.wantStopped("s")
		time.Sleep(2 * time.Hour)
		if n := strings.Count(kinds(w.settled("s")), "custom"); n != 0 {
			t.Error("it wrote something")
		}
	})
}

// An answer that does not end is cut off, whatever it consists of.
func TestAnswerLimit(t *testing.T) {
	piece := strings.Repeat("word ", 2000)
	for name, part := range map[string]model.Part{
		"text":      model.TextDelta{Delta: piece},
		"reasoning": model.ReasoningDelta{Delta: piece},
		"arguments": model.ToolCallDelta{ID: "a", Delta: piece},
		"default":   model.TextDelta{Delta: strings.Repeat(piece, 20)},
	} {
		inWorld(t, func(w *world) {
			closed := false
			a := demo(map[string]scripted.Scene{"go": func(scripted.Call) iter.Seq2[model.Part, error] {
				return func(yield func(model.Part, error) bool) {
					defer func() { closed = true }()
					for ok := yield(model.ToolCallStart{ID: "a", Name: "plan_trip"}, nil); ok; ok = yield(part, nil) {
					}
				}
			}})
			want := 25_000
			if a.MaxAnswer = want; name == "default" {
				want, a.MaxAnswer = 8<<20, 0
			}
			w.start(a, nil)
			w.say("s", "u1", "go")
			f := w.wantLimit("max_answer")
			said := 0
			for _, p := range f.Messages[1].Parts {
				said += len(p.Text)
				if p.Tool != nil && p.Tool.State != chunk.ToolFailed {
					t.Errorf("%s: a call is %s", name, p.Tool.State)
				}
				if p.Tool != nil {
					said += len(p.Tool.InputText) + len(p.Tool.Input)
				}
			}
			if said > want || said < want*3/4 || !closed {
				t.Errorf("%s: %d bytes of the answer are kept, the model's stream is closed: %v", name, said, closed)
			}
		})
	}
}

package runner_test

import (
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/tool"
)

// costs is a scene that takes a second and so many tokens for each of its answers,
// and makes the same calls in all of them.
func costs(input, output int64, calls ...scripted.ToolCall) scripted.Scene {
	return func(scripted.Call) iter.Seq2[model.Part, error] {
		return func(yield func(model.Part, error) bool) {
			time.Sleep(time.Second)
			if !yield(model.UsageUpdate{Usage: chunk.Usage{InputTokens: input, OutputTokens: output}}, nil) {
				return
			}
			for _, c := range calls {
				if !yield(model.ToolCallEnd{ID: c.ID, Name: c.Name, Arguments: c.Arguments}, nil) {
					return
				}
			}
			yield(model.Finish{Reason: "tool-calls"}, nil)
		}
	}
}

// spenders is an agent with two children, of which one has a child too: together
// they never come to an end.
func spenders(o tool.Options) *agent.Agent {
	work := tool.With(tool.New("work", "", func(tool.Context, struct{}) (int, error) { return 0, nil }), o)
	dig := costs(15, 5, call("w", "work", "{}"))
	helper := &agent.Agent{Name: "helper", Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"dig": dig}}),
		Tools: []tool.Tool{work}, MaxSteps: 100}
	kid := &agent.Agent{MaxSteps: 100}
	a := parent(map[string]scripted.Scene{"go": costs(5, 5, call("a", "subagent__kid", `{"task":"dig"}`), call("b", "subagent__kid", `{"task":"delegate"}`))},
		agent.SubAgentOptions{}, kid)
	kid.Model = scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"dig": dig, "delegate": costs(3, 2, call("h", "subagent__helper", `{"task":"dig"}`))}})
	kid.Tools = []tool.Tool{work, agent.SubAgent(helper, agent.SubAgentOptions{})}
	a.TokenBudget = 200
	return a
}

// What children use counts in their parent's budget, live, over pauses and after a
// crash: all of them end with the limit.
func TestTokenBudgetOfChildren(t *testing.T) {
	for name, o := range map[string]tool.Options{"live": {}, "over pauses": {Approval: true}, "recovered": {Recovery: tool.RecoverRetry}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				if name == "recovered" {
					first, store := w.second("first")
					_, stop := first.start(spenders(o), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
					w.say("s", "u1", "go")
					n := 0
					w.until("s", chunk.TypeStepCommitted, func(c chunk.Chunk) bool {
						if c.ChunkBase().AgentID == "s.2.1" {
							n++
						}
						return n == 3
					})
					store.die()
					stop()
				} else {
					w.say("s", "u1", "go")
				}
				w.start(spenders(o), nil)
				for f := w.fold("s"); f.Status == chunk.StatusPaused; f = w.fold("s") {
					for _, p := range f.PendingCalls() {
						w.command("s", &chunk.ToolApprovalResponse{Base: chunk.Base{AgentID: p.Agent}, CommandID: "yes-" + p.Approval.ID, ApprovalID: p.Approval.ID, Approved: true})
					}
				}
				f := w.wantLimit("max_tokens")
				used := f.TotalUsage()
				if n := used.InputTokens + used.OutputTokens; n < 200 || n >= 240 { // two were at it
					t.Errorf("%d tokens", n)
				}
				for _, id := range []string{"s.1", "s.2", "s.2.1"} {
					if run := f.Child(id).LastTurn().LastRun(); run.Outcome != chunk.OutcomeLimit || run.Code != "max_tokens" || id != "s.2" && f.Child(id).Usage.InputTokens < 45 {
						t.Errorf("%s: %s", id, mustJSON(run))
					}
				}
				if n := strings.Count(outcomes(f), "reached a limit"); n != 2 {
					t.Errorf("the calls: %s", outcomes(f))
				}
			})
		})
	}
}

// A child begins only if something is left for it, and its own budget may be
// smaller than that.
func TestChildrenGetWhatIsLeft(t *testing.T) {
	for name, want := range map[string]struct {
		budget, own int64
		used        int64
	}{
		"nothing":      {budget: 10, used: 10},
		"a little":     {budget: 11, used: 30},
		"its own":      {budget: 1000, own: 40, used: 60},
		"of no budget": {own: 40, used: 60},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				kid := demo(map[string]scripted.Scene{"dig": costs(15, 5, call("w", "plan_trip", `{"city":"Rome","days":1}`))})
				kid.TokenBudget = want.own
				a := parent(map[string]scripted.Scene{"go": func(c scripted.Call) iter.Seq2[model.Part, error] {
					if c.Round == 0 {
						return costs(5, 5, call("a", "subagent__kid", `{"task":"dig"}`))(c)
					}
					return costs(5, 5)(c)
				}}, agent.SubAgentOptions{}, kid)
				a.TokenBudget = want.budget
				w.start(a, nil)
				w.say("s", "u1", "go")
				f := w.ended("s")
				reason := "limit"
				if want.own > 0 {
					reason = "completed" // the parent hears of it
				}
				used := f.TotalUsage()
				if run := f.Child("s.1").LastTurn().LastRun(); f.Reason != reason || used.InputTokens+used.OutputTokens != want.used ||
					run.Code != "max_tokens" || (run.Steps == 0) != (want.used == 10) {
					t.Errorf("%s, used %+v; the child %s", f.Reason, used, mustJSON(run))
				}
			})
		})
	}
}

package runner_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
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

// ask is a scene that gives one task to each kid and then says done.
func ask(tasks ...string) scripted.Scene {
	var calls []scripted.ToolCall
	for i, task := range tasks {
		calls = append(calls, call(string(rune('a'+i)), "subagent__kid", mustJSON(map[string]string{"task": task})))
	}
	return useTool(calls...)
}

// parent returns an agent that asks a kid, which is a demo agent with scenes.
func parent(scenes map[string]scripted.Scene, o agent.SubAgentOptions, kid *agent.Agent) *agent.Agent {
	kid.Name = "kid"
	return &agent.Agent{Name: "parent", Model: scripted.New(&scripted.Options{Scenes: scenes}),
		Tools: append(tools(), agent.SubAgent(kid, o))}
}

// ended checks that nothing in the session is open, and returns the root's fold.
func (w *world) ended(session string) *fold.Fold {
	w.t.Helper()
	f := w.fold(session)
	over := map[string]bool{}
	for _, r := range w.settled(session) {
		run := w.decode(r).ChunkBase().RunID
		if over[run] {
			w.t.Errorf("%d: a %s of a run that is over", r.Seq, r.Type)
		}
		if r.Type == chunk.TypeRunFinished || r.Type == chunk.TypeRunSuspended {
			over[run] = run != ""
		}
	}
	var check func(f *fold.Fold)
	check = func(f *fold.Fold) {
		if f.OpenRun() != nil || f.Live() || f.Status == chunk.StatusActive || f.Status == chunk.StatusPaused {
			w.t.Errorf("%s is not over: %s", f.Session, mustJSON(f))
		}
		for _, c := range f.Children {
			if c.Ended == 0 && c.Mode == "" {
				w.t.Errorf("%s has not ended", c.Session)
			}
			check(c)
		}
	}
	check(f)
	return f
}

func TestChildrenAreAttributed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(family(func(tool.Call) {}), nil)
		w.say("s", "u1", "sub-agents")
		f := w.ended("s")
		types := map[string]string{"s": "demo", "s.1": "researcher", "s.2": "researcher", "s.2.1": "helper"}
		runs, order := map[string]string{}, map[string][]string{}
		for _, r := range w.settled("s") {
			b := w.decode(r).ChunkBase()
			if b.AgentID != r.Agent || types[b.AgentID] == "" {
				t.Fatalf("%d: a %s of agent %q", r.Seq, r.Type, b.AgentID)
			}
			switch c := w.decode(r).(type) {
			case *chunk.SubAgentStart:
				order[c.SubSessionID] = append(order[c.SubSessionID], string(r.Type))
			case *chunk.SubAgentEnd:
				order[c.SubSessionID] = append(order[c.SubSessionID], string(r.Type)+string(c.Result))
			case *chunk.ToolStart, *chunk.ToolEnd:
				for _, kid := range f.Child(b.AgentID).Children {
					if kid.CallID == callOf(c) {
						order[kid.Session] = append(order[kid.Session], string(r.Type))
					}
				}
			case *chunk.UserMessage, *chunk.RunStarted, *chunk.RunFinished:
				order[b.AgentID] = append(order[b.AgentID], string(r.Type))
			}
			if chunk.IsCommand(r.Type) {
				continue
			}
			if b.AgentType != types[b.AgentID] || b.RunID == "" || runs[b.AgentID] != "" && runs[b.AgentID] != b.RunID {
				t.Errorf("%d: a %s of %s, run %q, says %q", r.Seq, r.Type, b.AgentID, b.RunID, b.AgentType)
			}
			runs[b.AgentID] = b.RunID
			if r.Type == chunk.TypeTextDelta && b.Step == 0 {
				t.Errorf("%d: a delta outside of a step", r.Seq)
			}
		}
		for session, result := range map[string]string{"s.1": `"found it"`, "s.2": `"was helped"`, "s.2.1": `"helped"`} {
			want := "tool_start subagent_start user_message run_started run_finished subagent_end" + result + " tool_end"
			if got := strings.Join(order[session], " "); got != want {
				t.Errorf("%s: %s", session, got)
			}
			if m := f.Child(session).Messages; len(m) != 2 || m[0].Role != chunk.RoleUser {
				t.Errorf("%s has a history of %d messages", session, len(m))
			}
		}
		if f.State == nil || f.Child("s.1").State == nil || string(f.State) == string(f.Child("s.1").State) {
			t.Errorf("the state %s is the child's %s", f.State, f.Child("s.1").State)
		}
	})
}

func callOf(c chunk.Chunk) string {
	switch c := c.(type) {
	case *chunk.ToolStart:
		return c.ToolCallID
	case *chunk.ToolEnd:
		return c.ToolCallID
	}
	return ""
}

// With the same seams, one child after the other makes the same log.
func TestChildrenAreDeterministic(t *testing.T) {
	var logs [2]string
	for i := range logs {
		inWorld(t, func(w *world) {
			w.start(parent(map[string]scripted.Scene{"go": then(
				scripted.Say(scripted.Calls(call("a", "subagent__kid", `{"task":"look"}`))),
				scripted.Say(scripted.Calls(call("a", "subagent__kid", `{"task":"look"}`))))},
				agent.SubAgentOptions{}, demo(map[string]scripted.Scene{"look": useTool(call("w", "get_weather", `{"city":"Rome"}`))})), nil)
			w.say("s", "u1", "go")
			w.ended("s")
			for _, r := range w.settled("s") {
				logs[i] += string(r.Data) + "\n"
			}
		})
	}
	if logs[0] != logs[1] || strings.Count(logs[0], `"subagent_end"`) != 2 {
		t.Errorf("the logs differ:\n%s\n%s", logs[0], logs[1])
	}
}

func TestStopReachesTheChildren(t *testing.T) {
	inWorld(t, func(w *world) {
		grand := &agent.Agent{Name: "grand", Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"slowly": sayFor(100, time.Second)}})}
		kid := demo(map[string]scripted.Scene{"deep": useTool(call("a", "subagent__grand", `{"task":"slowly"}`)), "use": useTool(call("a", "deaf", `{}`))})
		kid.Tools = append(kid.Tools, agent.SubAgent(grand, agent.SubAgentOptions{}))
		w.start(parent(map[string]scripted.Scene{"go": ask("deep", "use", "slowly")}, agent.SubAgentOptions{}, kid), nil)
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeTextDelta, func(c chunk.Chunk) bool { return c.ChunkBase().AgentID == "s.1.1" })
		time.Sleep(3 * time.Second)
		w.stop("s", "stop")
		f := w.ended("s")
		if f.Reason != "stopped" || f.Child("s.1.1").Reason != "stopped" || !strings.HasPrefix(f.Child("s.1.1").Messages[1].Text(), "w0 w1") {
			t.Errorf("%s", mustJSON(f))
		}
		var order []string
		for _, r := range w.settled("s") {
			if r.Type == chunk.TypeRunFinished {
				order = append(order, r.Agent)
			}
		}
		if got := strings.Join(order, " "); got != "s.1.1 s.1 s.2 s.3 s" {
			t.Errorf("ended in the order %s", got)
		}
		last := f.Seq
		time.Sleep(2 * time.Minute) // the deaf tool comes back
		if f := w.fold("s"); f.Seq != last {
			t.Errorf("%d records after the end", f.Seq-last)
		}
	})
}

func TestFailingChildren(t *testing.T) {
	broken := func(scripted.Call) iter.Seq2[model.Part, error] {
		return func(yield func(model.Part, error) bool) {
			_ = yield(model.TextDelta{Delta: "I was about to"}, nil) && yield(nil, &model.Error{Code: "x", Message: "no quota"})
		}
	}
	panics := func(scripted.Call) iter.Seq2[model.Part, error] { panic("out of cheese") }
	endless := func(c scripted.Call) iter.Seq2[model.Part, error] {
		return scripted.Steps(scripted.Say(scripted.Calls(call(fmt.Sprint("n", c.Round), "plan_trip", `{"city":"Rome","days":1}`))))(scripted.Call{})
	}
	var self *agent.Agent
	for name, tt := range map[string]struct {
		scene   scripted.Scene
		o       agent.SubAgentOptions
		adjust  func(kid *agent.Agent)
		outcome chunk.Outcome // the child's
		said    string        // what the parent's model is told
		failed  string        // code of the root's error
	}{
		"fails":        {scene: broken, outcome: chunk.OutcomeFailed, said: "the agent failed: no quota"},
		"fatal":        {scene: broken, o: agent.SubAgentOptions{Fatal: true}, outcome: chunk.OutcomeFailed, said: "the agent failed: no quota", failed: "tool_fatal"},
		"panics":       {scene: panics, outcome: chunk.OutcomeFailed, said: "the agent failed"},
		"bad tool":     {scene: useTool(call("a", "fatal", `{}`)), outcome: chunk.OutcomeFailed, said: "the agent failed: a tool ended the run: no licence"},
		"steps":        {scene: endless, adjust: func(kid *agent.Agent) { kid.MaxSteps = 2 }, outcome: chunk.OutcomeLimit, said: "the agent reached a limit"},
		"run time":     {scene: sayFor(100, time.Second), adjust: func(kid *agent.Agent) { kid.RunTimeout = 5 * time.Second }, outcome: chunk.OutcomeLimit, said: "the agent reached a limit"},
		"step time":    {scene: sayFor(100, time.Second), adjust: func(kid *agent.Agent) { kid.StepTimeout = 5 * time.Second }, outcome: chunk.OutcomeLimit, said: "the agent reached a limit"},
		"time":         {scene: sayFor(100, time.Second), o: agent.SubAgentOptions{Timeout: 10 * time.Second}, outcome: chunk.OutcomeStopped, said: "timed out after 10s"},
		"deaf":         {scene: useTool(call("a", "deaf", `{}`)), o: agent.SubAgentOptions{Timeout: 10 * time.Second}, outcome: chunk.OutcomeStopped, said: "timed out after 10s"},
		"deaf at last": {scene: useTool(call("a", "deaf", `{}`)), adjust: func(kid *agent.Agent) { kid.RunTimeout = 10 * time.Second }, outcome: chunk.OutcomeLimit, said: "the agent reached a limit"},
		"depth": {scene: ask("x marks the spot"), adjust: func(kid *agent.Agent) {
			self = kid
			kid.Tools = append(kid.Tools, agent.SubAgent(self, agent.SubAgentOptions{Name: "subagent__kid"}))
		}, outcome: chunk.OutcomeCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				kid := demo(map[string]scripted.Scene{"x": tt.scene})
				kid.MaxRetries = -1
				kid.Name = "kid"
				if tt.adjust != nil {
					tt.adjust(kid)
				}
				// The parent goes on long enough for what was left behind to come back.
				slowly := func(c scripted.Call) iter.Seq2[model.Part, error] {
					if c.Round == 0 {
						return ask("x")(c)
					}
					return sayFor(100, time.Second)(c)
				}
				w.start(parent(map[string]scripted.Scene{"go": slowly}, tt.o, kid), nil)
				w.say("s", "u1", "go")
				f := w.ended("s")
				if run := f.Child("s.1").LastTurn().LastRun(); run.Outcome != tt.outcome {
					t.Errorf("the child ended %s: %s", run.Outcome, mustJSON(f.Child("s.1").Error))
				}
				c := f.Messages[1].Parts[1].Tool
				if tt.said != "" && (c.State != chunk.ToolFailed || !strings.HasPrefix(c.Error, tt.said)) {
					t.Errorf("the call: %s", mustJSON(c))
				}
				if tt.failed == "" && (f.Reason != "completed" || !strings.HasSuffix(f.Messages[1].Text(), "w99 ")) || tt.failed != "" && f.Error.Code != tt.failed {
					t.Errorf("the root: %s %+v", f.Reason, f.Error)
				}
				if name == "depth" {
					deepest := f.Child("s.1.1.1.1.1")
					if deepest == nil || len(deepest.Children) != 1 || !strings.Contains(toolParts(deepest)[0].Error, "5 deep") {
						t.Errorf("as deep as %s", mustJSON(deepest))
					}
				}
				last := f.Seq
				time.Sleep(2 * time.Minute)
				if f := w.fold("s"); f.Seq != last {
					t.Errorf("%d records after the end", f.Seq-last)
				}
			})
		})
	}
}

func TestChildWithAnOutput(t *testing.T) {
	inWorld(t, func(w *world) {
		kid := demo(map[string]scripted.Scene{"judge": scripted.Steps(scripted.Say(scripted.Text(`{"sound":true}`)))})
		kid.Output = agent.OutputOf[verdictOf]()
		schema := json.RawMessage(`{"type":"object","properties":{"case":{"type":"string"}},"required":["case"],"additionalProperties":false}`)
		a := parent(map[string]scripted.Scene{"go": useTool(call("a", "judge", `{"case":"judge me"}`), call("b", "judge", `{"task":"x"}`))},
			agent.SubAgentOptions{Name: "judge", Input: schema, Prompt: func(in json.RawMessage) string {
				var v struct{ Case string }
				_ = json.Unmarshal(in, &v)
				return v.Case
			}}, kid)
		w.start(a, nil)
		w.say("s", "u1", "go")
		f := w.ended("s")
		parts := toolParts(f)
		if string(parts[0].Output) != `{"sound":true}` || !parts[1].InputInvalid || len(f.Children) != 1 {
			t.Errorf("%s", mustJSON(parts))
		}
	})
}

// asking is a kid whose tool needs an approval.
func asking() *agent.Agent {
	kid := demo(map[string]scripted.Scene{"book": useTool(call("g", "gated", `{}`))})
	kid.Tools = append(kid.Tools, tool.With(tool.New("gated", "", func(tool.Context, struct{}) (string, error) { return "ok", nil }), tool.Options{Approval: true}))
	return kid
}

func yes(f *fold.Fold) chunk.Chunk {
	p := f.PendingCalls()[0]
	return &chunk.ToolApprovalResponse{Base: chunk.Base{AgentID: p.Agent}, CommandID: "yes-" + p.Agent, ApprovalID: p.Approval.ID, Approved: true}
}

// A child's question may be answered while others are still at work, and then the
// parent does not pause.
func TestAnswerWhileOthersWork(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(parent(map[string]scripted.Scene{"go": ask("book", "slowly")}, agent.SubAgentOptions{}, asking()), nil)
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeRunSuspended, nil)
		f := w.peek()
		if f.OpenRun() == nil || len(f.PendingCalls()) != 1 {
			t.Fatalf("%s", mustJSON(f))
		}
		w.command("s", yes(f))
		w.until("s", chunk.TypeRunFinished, func(c chunk.Chunk) bool { return c.ChunkBase().AgentID == "s" })
		f = w.ended("s")
		runs, v := f.LastTurn().Runs, f.Verdict("yes-s.1")
		if f.Reason != "completed" || len(runs) != 1 || v.RunID != runs[0].ID || v.From <= runs[0].Start || v.From >= runs[0].End {
			t.Errorf("%+v %s", v, mustJSON(f.Turns))
		}
	})
}

// Nobody answers a child: its own limit counts, and its parent goes on.
func TestChildsPauseExpires(t *testing.T) {
	for name, limits := range map[string][2]time.Duration{"the child's": {0, time.Hour}, "the parent's": {time.Hour, 0}, "the earlier": {2 * time.Hour, time.Hour}} {
		inWorld(t, func(w *world) {
			kid := asking()
			kid.WaitLimit = limits[1]
			a := parent(map[string]scripted.Scene{"go": ask("book")}, agent.SubAgentOptions{}, kid)
			a.WaitLimit = limits[0]
			w.start(a, nil)
			begun := time.Now()
			w.say("s", "u1", "go")
			w.until("s", chunk.TypeRunFinished, func(c chunk.Chunk) bool { return c.ChunkBase().AgentID == "s" })
			if took := time.Since(begun); took < 59*time.Minute || took > 61*time.Minute {
				t.Errorf("%s: it waited %v", name, took)
			}
			if f := w.ended("s"); f.Reason != "completed" || toolParts(f.Child("s.1"))[0].State != chunk.ToolDenied {
				t.Errorf("%s: %s", name, mustJSON(f))
			}
		})
	}
}

// A stop, another message and a stop of the child alone end its pause.
func TestChildsPauseEnds(t *testing.T) {
	for name, command := range map[string]chunk.Chunk{
		"stop":         &chunk.StopRequested{CommandID: "x"},
		"message":      say("x", "hello"),
		"child's stop": &chunk.StopRequested{Base: chunk.Base{AgentID: "s.1"}, CommandID: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start(parent(map[string]scripted.Scene{"go": ask("book")}, agent.SubAgentOptions{}, asking()), nil)
				w.say("s", "u1", "go")
				if f := w.fold("s"); f.Status != chunk.StatusPaused || f.Reason != "awaiting_children" || f.LastTurn().LastRun().Pending != nil {
					t.Fatalf("%s", mustJSON(f))
				}
				w.command("s", command)
				f := w.ended("s")
				kid := f.Child("s.1")
				if kid.Reason != "stopped" || !toolParts(kid)[0].State.Done() || f.Verdict("x").State != fold.VerdictAccepted {
					t.Errorf("%s", mustJSON(f))
				}
				if name == "child's stop" && (f.Reason != "completed" || toolParts(f)[0].Error != "the agent was stopped") {
					t.Errorf("%s", mustJSON(f))
				}
			})
		})
	}
}

// The hooks of a parent see its children, and are called in them, too.
func TestHooksAroundChildren(t *testing.T) {
	inWorld(t, func(w *world) {
		var told []string
		kid := demo(map[string]scripted.Scene{"look": useTool(call("w", "fails", `{}`)), "refused": useTool()})
		note := func(who string) *agent.Hooks {
			return &agent.Hooks{
				BeforeRun: func(h agent.HookContext) error {
					told = append(told, who+" run "+h.Run.Session)
					return nil
				},
				BeforeTool: func(h agent.HookContext, c *agent.ToolCall) error {
					told = append(told, who+" tool "+c.Name)
					return nil
				},
				BeforeSubAgent: func(h agent.HookContext, c *agent.SubAgentCall) error {
					told = append(told, who+" before "+c.SubAgent+" "+c.Session)
					if strings.Contains(string(c.Input), "refused") {
						return errors.New("not that one")
					}
					return nil
				},
				AfterSubAgent: func(h agent.HookContext, c *agent.SubAgentCall) error {
					told = append(told, who+" after "+c.SubAgent+" "+c.Session+" "+string(c.Result))
					c.Result = json.RawMessage(`"changed"`)
					return nil
				},
				AfterRun: func(h agent.HookContext, e agent.RunEnd) {
					told = append(told, who+" end "+h.Run.Session+" "+string(e.Outcome))
				},
			}
		}
		kid.Hooks = note("kid")
		a := parent(map[string]scripted.Scene{"go": ask("refused", "look")}, agent.SubAgentOptions{}, kid)
		a.Hooks = note("parent")
		w.start(a, &runner.Options{Hooks: note("options")})
		w.say("s", "u1", "go")
		f := w.ended("s")
		want := `parent run s, options run s, parent before kid s.1, parent before kid s.1, options before kid s.1, ` +
			`parent run s.1, kid run s.1, options run s.1, parent tool fails, kid tool fails, options tool fails, ` +
			`parent end s.1 completed, kid end s.1 completed, options end s.1 completed, parent after kid s.1 "done", options after kid s.1 "changed", ` +
			`parent end s completed, options end s completed`
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if parts := toolParts(f); parts[0].Error != "not that one" || string(parts[1].Output) != `"changed"` || len(f.Children) != 1 {
			t.Errorf("%s", mustJSON(parts))
		}
	})
}

package runner_test

import (
	"fmt"
	"strings"
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

// spawner is an agent with a companion of a mode, which has scenes.
func spawner(scenes map[string]scripted.Scene, mode string, kid *agent.Agent) *agent.Agent {
	kid.Name = "kid"
	return &agent.Agent{Name: "parent", Model: scripted.New(&scripted.Options{Scenes: scenes}), Tools: tools(),
		Companions: []agent.Companion{{Agent: kid, Mode: mode, Description: "Does what it is told."}}}
}

func spawn(id, task string) scripted.ToolCall {
	return call(id, "companion__spawnAgent", mustJSON(map[string]string{"agent": "kid", "task": task}))
}

func toChild(id, op, child string) scripted.ToolCall {
	return call(id, "companion__"+op, mustJSON(map[string]string{"childId": child}))
}

func tellChild(id, child, message string) scripted.ToolCall {
	return call(id, "companion__sendMessage", mustJSON(map[string]string{"childId": child, "message": message}))
}

// outcomes are those of the session's own calls.
func outcomes(f *fold.Fold) string {
	var b strings.Builder
	for _, m := range f.Messages {
		for _, p := range m.Parts {
			if p.Tool != nil {
				said := p.Tool.Error
				if p.Tool.State == chunk.ToolCompleted {
					said = string(p.Tool.Output)
				}
				fmt.Fprintln(&b, p.Tool.CallID, said)
			}
		}
	}
	return b.String()
}

func TestCompanions(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(company(func(tool.Call) {}), nil)
		w.say("s", "u1", "companions")
		f := w.ended("s")
		const want = `a {"childId":"s.1","status":"working"}
b {"childId":"s.2","result":"found it"}
c {"childId":"s.2","result":"found more"}
d {"childId":"s.1","result":"found it"}
e {"done":0}
f there is no such child
g {"childId":"s.1","agent":"digger","status":"terminated"}
h [{"childId":"s.1","agent":"digger","mode":"background","status":"terminated"},{"childId":"s.2","agent":"adviser","mode":"blocking","status":"idle"}]
i {"childId":"s.2","agent":"adviser","mode":"blocking","status":"idle","result":"found more"}
j the child was terminated
`
		if got := outcomes(f); got != want {
			t.Errorf("got %s", got)
		}
		if two := f.Child("s.2"); len(two.Turns) != 2 || len(two.Messages) != 4 || two.Turns[1].LastRun().ID == two.Turns[0].LastRun().ID {
			t.Errorf("the adviser: %s", mustJSON(two.Turns))
		}
	})
}

// A companion keeps its history from one turn to the next, also over a crash
// while it works.
func TestCompanionsAcrossTurns(t *testing.T) {
	for _, mode := range []string{chunk.ChildBlocking, chunk.ChildBackground} {
		t.Run(mode, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := spawner(map[string]scripted.Scene{"one": useTool(spawn("a", "hello")),
					"two":   useTool(tellChild("b", "s.1", "slowly")),
					"three": useTool(toChild("c", "waitForResult", "s.1"))}, mode,
					demo(map[string]scripted.Scene{"slowly": sayFor(10, time.Second)}))
				first, store := w.second("first")
				_, stop := first.start(a, &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
				w.say("s", "u1", "one")
				w.until("s", chunk.TypeRunFinished, func(c chunk.Chunk) bool { return c.ChunkBase().AgentID == "s" })
				synctest.Wait()
				f := w.ended("s")
				if kid := f.Child("s.1"); kid.Reason != "completed" || kid.Mode != mode {
					t.Fatalf("the run did not wait for its child: %s", mustJSON(f))
				}
				w.say("s", "u2", "two")
				w.until("s", chunk.TypeTextDelta, func(c chunk.Chunk) bool { return strings.HasPrefix(c.(*chunk.TextDelta).Delta, "w5") })
				store.die()
				stop()
				w.start(a, nil)
				w.until("s", chunk.TypeRunFinished, func(c chunk.Chunk) bool { return c.ChunkBase().RunID == w.peek().LastTurn().LastRun().ID })
				f = w.ended("s")
				kid := f.Child("s.1")
				if len(kid.Turns) != 2 || len(kid.Messages) != 4 || !strings.HasSuffix(kid.Messages[3].Text(), "w9 ") || strings.Count(kid.Messages[3].Text(), "w0") != 1 {
					t.Errorf("the child: %s", mustJSON(kid.Messages))
				}
				w.say("s", "u3", "three")
				f = w.ended("s")
				if got := outcomes(f); !strings.HasSuffix(got, "c "+mustJSON(map[string]string{"childId": "s.1", "result": kid.Messages[3].Text()})+"\n") {
					t.Errorf("got %s", got)
				}
			})
		})
	}
}

// A background child works while its parent goes on, and a stop ends both.
func TestBackgroundChildren(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(spawner(map[string]scripted.Scene{
			"go":   then(scripted.Say(scripted.Calls(spawn("a", "slowly"), spawn("b", "slowly"))), scripted.Say(scripted.Calls(call("c", "slow", "{}")))),
			"kill": useTool(toChild("d", "terminateChild", "s.1"), toChild("e", "terminateChild", "s.7")),
			"more": useTool(tellChild("f", "s.2", "hello")),
			"both": then(scripted.Say(scripted.Calls(tellChild("g", "s.2", "slowly"))), scripted.Say(scripted.Calls(toChild("h", "terminateChild", "s.2")))),
		}, chunk.ChildBackground, demo(nil)), nil)
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeToolStart, func(c chunk.Chunk) bool { return c.(*chunk.ToolStart).ToolCallID == "c" })
		time.Sleep(3 * time.Second)
		w.stop("s", "x")
		f := w.ended("s")
		for _, id := range []string{"s.1", "s.2"} {
			if kid := f.Child(id); kid.Reason != "stopped" || !strings.HasPrefix(kid.Messages[1].Text(), "w0 w1") || kid.Ended != 0 {
				t.Errorf("%s: %s", id, mustJSON(kid))
			}
		}
		w.say("s", "u2", "kill")
		w.ended("s")
		w.say("s", "u3", "more")
		f = w.ended("s")
		if f.Child("s.1").Ended == 0 || f.Child("s.2").Ended != 0 || f.Child("s.2").Reason != "completed" || !strings.Contains(outcomes(f), "e there is no such child") {
			t.Errorf("%s\n%s", outcomes(f), mustJSON(f.Children))
		}
		w.say("s", "u4", "both")
		f = w.ended("s")
		if kid := f.Child("s.2"); kid.Ended == 0 || kid.Reason != "stopped" || f.Reason != "completed" {
			t.Errorf("terminated at work: %s", mustJSON(kid))
		}
	})
}

// A background child waits for an answer: its parent may say all it has to say,
// and its run waits for the child.
func TestBackgroundChildAsks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(spawner(map[string]scripted.Scene{"go": useTool(spawn("a", "book"))}, chunk.ChildBackground, asking()), nil)
		w.say("s", "u1", "go")
		f := w.fold("s")
		if f.Status != chunk.StatusPaused || f.Reason != "awaiting_children" || f.Messages[1].Text() != "done" {
			t.Fatalf("%s", mustJSON(f))
		}
		w.command("s", yes(f))
		f = w.ended("s")
		if f.Reason != "completed" || f.Messages[1].Text() != "done" || toolParts(f.Child("s.1"))[0].State != chunk.ToolCompleted {
			t.Errorf("%s", mustJSON(f))
		}
	})
}

func TestCompanionsAreChecked(t *testing.T) {
	kid := demo(nil)
	kid.Name = "kid"
	for want, companions := range map[string][]agent.Companion{
		"has no agent":                  {{}},
		"two companions are called":     {{Agent: kid}, {Agent: kid}},
		"the unknown mode":              {{Agent: kid, Mode: "now and then"}},
		"agent kid2: it has no model":   {{Agent: &agent.Agent{Name: "kid2"}}},
		"agent parent: it has no model": nil,
	} {
		a := &agent.Agent{Name: "parent", Model: kid.Model, Companions: companions}
		if companions == nil {
			a.Model = nil
		}
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// An interrupt pauses background children as well, each at a step boundary of its
// own, and the next run takes them up there: in the same message, with no call made
// again. Steering stops them, and so does a stop of that next run.
func TestInterruptWithABackgroundChild(t *testing.T) {
	const steps = 30
	for name, next := range map[string]func(w *world){
		"resumed":         func(w *world) { w.goOn("s") },
		"another message": func(w *world) { w.say("s", "u2", "other") },
		"steered":         nil,
		"stopped": func(w *world) {
			w.goOn("s")
			w.until("s", chunk.TypeToolStart, func(c chunk.Chunk) bool {
				return strings.HasPrefix(c.ChunkBase().RunID, w.peek().LastTurn().LastRun().ID) && w.peek().LastTurn().LastRun().Mode == chunk.ModeContinue
			})
			w.stop("s", "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var e effects
				dutifully := tool.New("dutifully", "", func(ctx tool.Context, _ struct{}) (int, error) {
					time.Sleep(2 * time.Second)
					e.add(ctx.Call())
					return 1, nil
				})
				long := func(before ...scripted.ToolCall) scripted.Scene {
					all := []scripted.Step{scripted.Say(scripted.Calls(append(before, call("a", "dutifully", "{}"))...))}
					for len(all) < steps {
						all = append(all, scripted.Say(scripted.Calls(call("a", "dutifully", "{}"))))
					}
					return then(all...)
				}
				kid := demo(map[string]scripted.Scene{"long": long()})
				kid.Name, kid.MaxSteps, kid.Tools = "kid", 100, []tool.Tool{dutifully}
				elder := *kid // has a kid of its own
				elder.Companions = []agent.Companion{{Agent: kid, Mode: chunk.ChildBackground}}
				elder.Model = scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"long": long(spawn("k", "long"))}})
				a := spawner(map[string]scripted.Scene{"go": long(spawn("s", "long")), "other": then()}, chunk.ChildBackground, &elder)
				a.MaxSteps, a.Tools = 100, []tool.Tool{dutifully}
				w.start(a, nil)
				w.say("s", "u1", "go")
				w.until("s", chunk.TypeToolEnd, func(c chunk.Chunk) bool { return c.ChunkBase().AgentID == "s.1.1" })
				begun := time.Now()
				if next == nil {
					steer := say("u2", "other")
					steer.WhenBusy = chunk.BusySteer
					w.command("s", steer)
				} else {
					w.interrupt("s", "i1")
					f := w.wantInterrupted("s", w.fold("s").LastTurn().LastRun().Steps)
					if took := time.Since(begun); took > 10*time.Second {
						t.Errorf("it waited %v", took)
					}
					for _, id := range []string{"s.1", "s.1.1"} {
						if kid := f.Child(id); kid.OpenRun() != nil || kid.Break() == nil || kid.Break().Steps == 0 || kid.Break().Steps > 5 {
							t.Errorf("%s: %s %s", id, kid.Status, mustJSON(kid.Turns))
						}
					}
					next(w)
				}
				f := w.ended("s")
				for _, id := range []string{"s.1", "s.1.1"} {
					kid := f.Child(id)
					want, done := chunk.OutcomeCompleted, steps
					if name == "steered" || name == "stopped" {
						want, done = chunk.OutcomeStopped, 0
					}
					if run := kid.LastTurn().LastRun(); run.Outcome != want || len(kid.Turns) != 1 || len(kid.Messages) != 2 ||
						done > 0 && strings.Count(mustJSON(kid.Messages[1]), `"state":"completed"`) != done+strings.Count(mustJSON(kid.Messages[1]), "spawnAgent") {
						t.Errorf("%s: %s", id, mustJSON(kid))
					}
				}
				for id, n := range e.calls() {
					if n != 1 {
						t.Errorf("%s was made %d times", id, n)
					}
				}
			})
		})
	}
}

// Going back to before a companion began ends it, also one that waits for an
// answer: nobody is asked any more. One that had begun by then lives on.
func TestCompanionsThatTheHistoryForgets(t *testing.T) {
	back := func(w *world, c *chunk.ResumeRequested) {
		at := w.peek().Checkpoints[0]
		then, err := w.log("s").FoldAt(w.t.Context(), at.Seq)
		if err != nil {
			w.t.Fatal(err)
		}
		var chunks []chunk.Chunk
		for _, c := range then.Owed().Content("back", at.ID) {
			chunks = append(chunks, c)
		}
		c.CommandID, c.CheckpointID = "r1", at.ID
		w.command("s", append(chunks, c)...)
	}
	for name, tt := range map[string]struct {
		do    func(w *world)
		ended string
		waits string // whose question is open then
	}{
		"from_checkpoint": {func(w *world) { back(w, &chunk.ResumeRequested{Mode: chunk.ModeFromCheckpoint}) }, "s.2", "s.3"},
		"without a run": {func(w *world) {
			ask := w.peek().PendingCalls()[0]
			back(w, &chunk.ResumeRequested{Mode: chunk.ModeFromCheckpoint, NoRun: true})
			if f := w.fold("s"); len(f.PendingCalls()) != 0 || f.Child("s.2").Ended != 0 {
				w.t.Errorf("asked still: %s", mustJSON(f.PendingCalls()))
			}
			w.command("s", &chunk.ToolApprovalResponse{Base: chunk.Base{AgentID: "s.2"}, CommandID: "late", ApprovalID: ask.Approval.ID, Approved: true})
			if v := w.peek().Verdict("late"); v.Code != fold.RefusedNotPending {
				w.t.Errorf("%+v", v)
			}
			w.say("s", "u2", "other")
		}, "s.2", ""},
		"an edit":         {func(w *world) { w.command("s", edit("u2", "", "other")...) }, "s.1 s.2", ""},
		"another message": {func(w *world) { w.say("s", "u2", "other") }, "", "s.2"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := spawner(map[string]scripted.Scene{"other": then(), "go": then(scripted.Say(scripted.Calls(spawn("a", "hello"))),
					scripted.Say(scripted.Calls(spawn("b", "book"))), scripted.Say(scripted.Calls(call("c", "slowly", "{}"))))},
					chunk.ChildBackground, asking())
				a.Tools = append(a.Tools, tool.New("slowly", "", func(tool.Context, struct{}) (int, error) { time.Sleep(time.Minute); return 1, nil }))
				w.start(a, nil)
				w.say("s", "u1", "go")
				w.until("s", chunk.TypeToolStart, func(c chunk.Chunk) bool { return c.(*chunk.ToolStart).ToolName == "slowly" })
				w.interrupt("s", "i1")
				if f := w.wantInterrupted("s", 3); len(f.PendingCalls()) != 1 || f.PendingCalls()[0].Agent != "s.2" {
					t.Fatalf("%s", mustJSON(f.PendingCalls()))
				}
				tt.do(w)
				f := w.fold("s")
				var ended, waits []string
				for _, c := range f.Children {
					if c.Ended > 0 {
						ended = append(ended, c.Session)
						if c.Status == chunk.StatusPaused || c.Live() || c.Ended <= f.LastTurn().LastRun().Start {
							t.Errorf("%s: %s", c.Session, mustJSON(c))
						}
					}
				}
				for _, c := range f.PendingCalls() {
					waits = append(waits, c.Agent)
				}
				if strings.Join(ended, " ") != tt.ended || strings.Join(waits, " ") != tt.waits {
					t.Errorf("ended %v, waiting %v: %s", ended, waits, mustJSON(f.Children))
				}
			})
		})
	}
}

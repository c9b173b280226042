package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
)

// A child that is asked to stop does so in the middle of its answer, or of a tool
// that ignores its context, and nobody else does.
func TestStopOfAChildAtWork(t *testing.T) {
	for _, task := range []string{"slowly", "use", "deep"} {
		t.Run(task, func(t *testing.T) {
			inWorld(t, func(w *world) {
				grand := &agent.Agent{Name: "grand", Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"slowly": sayFor(1000, time.Second)}})}
				kid := demo(map[string]scripted.Scene{"slowly": sayFor(1000, time.Second), "use": useTool(call("a", "deaf", `{}`)),
					"deep": useTool(call("a", "subagent__grand", `{"task":"slowly"}`)), "brief": sayFor(8, time.Second)})
				kid.Tools = append(kid.Tools, agent.SubAgent(grand, agent.SubAgentOptions{}))
				w.start(parent(map[string]scripted.Scene{"go": ask(task, "brief")}, agent.SubAgentOptions{}, kid), nil)
				w.say("s", "u1", "go")
				stopped, begun := "s.1", time.Now()
				if task == "deep" {
					stopped = "s.1.1"
				}
				w.until("s", chunk.TypeStepStarted, func(c chunk.Chunk) bool { return c.ChunkBase().AgentID == stopped })
				time.Sleep(3 * time.Second)
				w.command("s", &chunk.StopRequested{Base: chunk.Base{AgentID: stopped}, CommandID: "x"})
				f := w.ended("s")
				if took := time.Since(begun); took > 20*time.Second {
					t.Errorf("it took %v", took)
				}
				time.Sleep(2 * time.Minute) // the deaf tool comes back
				if last := f.Seq; w.fold("s").Seq != last {
					t.Error("records after the end")
				}
				if f.Reason != "completed" || f.Child(stopped).Reason != "stopped" || f.Child("s.2").Reason != "completed" {
					t.Errorf("%s", mustJSON(f))
				}
			})
		})
	}
}

// A child that is terminated while it is told something else says no more, and
// the run comes to its end.
func TestTerminatedWhileItIsTold(t *testing.T) {
	for _, mode := range []string{chunk.ChildBlocking, chunk.ChildBackground} {
		t.Run(mode, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start(spawner(map[string]scripted.Scene{
					"go":   useTool(spawn("a", "hello")),
					"both": useTool(toChild("b", "terminateChild", "s.1"), tellChild("c", "s.1", "slowly"), toChild("d", "waitForResult", "s.1"), tellChild("e", "s.1", "hello")),
				}, mode, demo(nil)), nil)
				w.say("s", "u1", "go")
				w.ended("s")
				w.say("s", "u2", "both")
				f := w.ended("s")
				kid := f.Child("s.1")
				if f.Reason != "completed" || kid.Ended == 0 || kid.OpenRun() != nil || kid.Live() {
					t.Fatalf("%s", mustJSON(f))
				}
				ended := false
				for _, r := range w.settled("s") {
					ended = ended || r.Type == chunk.TypeSubAgentEnd
					if ended && r.Agent == "s.1" && r.Type == chunk.TypeStepStarted {
						t.Errorf("record %d: a step behind the end", r.Seq)
					}
				}
			})
		})
	}
}

// A companion that would be too deep is not talked to either.
func TestCompanionsTooDeep(t *testing.T) {
	inWorld(t, func(w *world) {
		grand := demo(nil)
		grand.Name = "grand"
		kid := demo(map[string]scripted.Scene{"deep": then(
			scripted.Say(scripted.Calls(call("a", "companion__spawnAgent", `{"agent":"grand","task":"hello"}`))),
			scripted.Say(scripted.Calls(tellChild("b", "s.1.1", "hello"))))})
		kid.Companions = []agent.Companion{{Agent: grand}}
		a := spawner(map[string]scripted.Scene{"go": useTool(spawn("a", "deep"))}, chunk.ChildBlocking, kid)
		a.MaxDepth = 1
		w.start(a, nil)
		w.say("s", "u1", "go")
		f := w.ended("s")
		if got := outcomes(f.Child("s.1")); strings.Count(got, "agents may be nested 1 deep") != 2 || len(f.Child("s.1.1").Turns) != 0 {
			t.Errorf("got %s", got)
		}
	})
}

// Metadata functions that panic take nobody down: not the run, and not the process
// in which a child's is.
func TestMetadataThatPanics(t *testing.T) {
	inWorld(t, func(w *world) {
		boom := func(context.Context, agent.RunInfo) any { panic("boom") }
		kid := demo(nil)
		kid.StartMetadata, kid.FinishMetadata = boom, boom
		a := parent(map[string]scripted.Scene{"go": ask("hello")}, agent.SubAgentOptions{}, kid)
		a.StartMetadata, a.FinishMetadata = boom, boom
		w.start(a, nil)
		w.say("s", "u1", "go")
		if f := w.ended("s"); f.Reason != "completed" || f.Child("s.1").Reason != "completed" {
			t.Errorf("%s", mustJSON(f))
		}
	})
}

// A run that fails does not wait for the tool of a background child that ignores
// its context.
func TestFailureWithADeafCompanion(t *testing.T) {
	inWorld(t, func(w *world) {
		kid := demo(map[string]scripted.Scene{"use": useTool(call("x", "never", `{}`))})
		over := make(chan struct{})
		kid.Tools = append(kid.Tools, tool.New("never", "", func(tool.Context, struct{}) (json.RawMessage, error) { <-over; return nil, nil }))
		fail := func(c scripted.Call) iter.Seq2[model.Part, error] {
			if c.Round == 0 {
				return useTool(spawn("a", "use"))(c)
			}
			return func(yield func(model.Part, error) bool) {
				time.Sleep(time.Second)
				yield(nil, errors.New("broken"))
			}
		}
		w.start(spawner(map[string]scripted.Scene{"go": fail}, chunk.ChildBackground, kid), nil)
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeRunFinished, func(c chunk.Chunk) bool { return c.ChunkBase().AgentID == "s" })
		close(over)
		if f := w.ended("s"); f.Status != chunk.StatusFailed || f.Child("s.1").Reason != "stopped" {
			t.Errorf("%s", mustJSON(f))
		}
	})
}

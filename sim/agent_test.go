package sim_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
)

// effects are what tools have done in the world.
type effects struct {
	mu   sync.Mutex
	done map[effect]int
}

type effect struct{ session, tool, id string }

func newEffects() *effects { return &effects{done: map[effect]int{}} }

// count notes that a tool does its work, and returns how often it has done so.
func (e *effects) count(c tool.Call) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := effect{c.Session, c.Name, c.EffectID}
	e.done[k]++
	return e.done[k]
}

// scenes are what users can ask for.
var scenes = []string{"talk", "tools", "once", "ask", "hand", "delegate"}

// agent is what a node's runner executes. Nothing of a dead node counts.
func (w *world) agent(n *node) *agent.Agent {
	type worked struct {
		Done map[string]int `json:"done,omitempty"`
	}
	work := func(ctx tool.Context, in struct {
		Ms int `json:"ms"`
	}) (map[string]int, error) {
		c := ctx.Call()
		if ctx.Err() == nil && !n.link.isDead() && w.store.lost() == 0 {
			if times := w.effects.count(c); times > 1 && c.Name == "once" {
				w.fail("%s: %s is made %d times (%s, on %s)", c.Session, c.Name, times, c.EffectID, n.name)
			}
			if w.store.isFinished(c) {
				w.fail("%s: %s is made again on %s, and has an outcome", c.Session, c.ID, n.name)
			}
		}
		if err := ctx.Progress(tool.Progress{Label: "working"}); err != nil {
			return nil, err
		}
		err := tool.UpdateState(ctx, func(s *worked) error {
			if s.Done == nil {
				s.Done = map[string]int{}
			}
			s.Done[c.ID]++
			return nil
		})
		if err != nil {
			return nil, err
		}
		t := time.NewTimer(time.Duration(in.Ms) * time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
			return map[string]int{"ms": in.Ms}, ctx.Emit("worked", in, nil)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	retry := tool.Options{Recovery: tool.RecoverRetry}
	gated := tool.Options{Recovery: tool.RecoverRetry, Approval: true}
	resumable := w.seed%2 == 0
	speaks := &provider{Model: scripted.New(&scripted.Options{Scenes: plays(), Rate: 15, Background: resumable}), n: n}
	working := []tool.Tool{tool.With(tool.New("work", "", work), retry), tool.New("once", "", work)}
	helper := &agent.Agent{Name: "helper", Tools: working, Model: speaks}
	a := &agent.Agent{Name: "demo", Model: speaks, Tools: append([]tool.Tool{
		tool.With(tool.New("gated", "", work), gated), tool.Client[struct{}]("locate", ""), agent.SubAgent(helper, agent.SubAgentOptions{})}, working...)}
	if w.spoiled.agent != nil {
		w.spoiled.agent(a)
	}
	return a
}

// plays are the scenes.
func plays() map[string]scripted.Scene {
	call := func(id, name, args string) scripted.ToolCall {
		return scripted.ToolCall{ID: id, Name: name, Arguments: args}
	}
	bye := scripted.Say(scripted.Reasoning("so it is"), scripted.Text("and that was all there is to say."))
	var words []string
	for i := range 60 {
		words = append(words, fmt.Sprintf("w%d", i))
	}
	return map[string]scripted.Scene{
		"talk": scripted.Steps(scripted.Say(scripted.Reasoning("let me think about it"), scripted.Text(strings.Join(words, " ")))),
		"tools": scripted.Steps(
			scripted.Say(scripted.Text("one, two "), scripted.Calls(call("a", "work", `{"ms":300}`), call("b", "work", `{"ms":2000}`))),
			scripted.Say(scripted.Calls(call("a", "work", `{"ms":200}`))), bye),
		"once": scripted.Steps(
			scripted.Say(scripted.Text("only once "), scripted.Calls(call("a", "once", `{"ms":1000}`), call("b", "once", `{"ms":4000}`))), bye),
		"ask": scripted.Steps(
			scripted.Say(scripted.Text("may I? "), scripted.Calls(call("a", "gated", `{"ms":100}`), call("b", "gated", `{"ms":200}`), call("c", "work", `{"ms":1500}`))), bye),
		"delegate": scripted.Steps(
			scripted.Say(scripted.Text("both: "), scripted.Calls(call("a", "subagent__helper", `{"task":"tools, please"}`),
				call("b", "subagent__helper", `{"task":"once, please"}`), call("c", "work", `{"ms":500}`))), bye),
		"hand": scripted.Steps(
			scripted.Say(scripted.Calls(call("a", "locate", `{}`), call("b", "work", `{"ms":1000}`), call("c", "gated", `{"ms":50}`))),
			scripted.Say(scripted.Calls(call("a", "locate", `{}`))), bye),
	}
}

// provider is a model that notes who is asked for an answer that could be resumed.
type provider struct {
	*scripted.Model
	n *node
}

func (p *provider) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Part, error] {
	at := step{r.Session, r.RunID, r.Step}
	if !p.n.link.isDead() && p.n.w.store.isAnswered(at) {
		p.n.w.fail("%s asks for step %d of run %s in %s, whose answer could be resumed", p.n.name, at.number, at.run, at.agent)
	}
	return p.Model.Stream(ctx, r)
}

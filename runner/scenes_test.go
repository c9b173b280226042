package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
)

// scenario is a conversation that must come out the same whatever dies in it.
type scenario struct {
	name  string
	agent func(effect func(tool.Call)) *agent.Agent
	// answer answers a pending call, as a user or a client would.
	answer func(t *chunk.ToolPart) chunk.Chunk
	// during comes while the call a does its work, from another node.
	during func() chunk.Chunk
	// again: when it is over it goes back to its first checkpoint, and on.
	again bool
	// hooked: hooks leave their marks everywhere.
	hooked bool
	// early answers a call as soon as it is asked for, while others still run;
	// nil: not this one.
	early func(asked chunk.Chunk) chunk.Chunk
	// breaks: the first answer breaks off, in every process.
	breaks bool
	// unknown: calls whose outcome is lost fail, so that only effects are the
	// same and not what the model made of them.
	unknown bool
	// anywhere: an interrupt meets children where it may.
	anywhere bool
}

type verdictOf struct {
	Sound bool `json:"sound"`
}

type worked struct {
	Done map[string]int `json:"done,omitempty"`
}

// effectful is a tool whose work can be seen from outside, beside what it says,
// shows and changes.
func effectful(name string, effect func(tool.Call), o tool.Options) tool.Tool {
	return tool.With(tool.New(name, "", func(ctx tool.Context, in struct {
		N int `json:"n"`
	}) (map[string]int, error) {
		if err := ctx.Progress(tool.Progress{Label: "working"}); err != nil {
			return nil, err
		}
		if err := ctx.Emit("begun", in, nil); err != nil {
			return nil, err
		}
		err := tool.UpdateState(ctx, func(s *worked) error {
			if s.Done == nil {
				s.Done = map[string]int{}
			}
			s.Done[fmt.Sprint(name, in.N)]++
			return nil
		})
		if err != nil {
			return nil, err
		}
		effect(ctx.Call())
		return map[string]int{"done": in.N}, ctx.Emit("end", in, &tool.EmitOptions{ID: fmt.Sprint(name, in.N)})
	}), o)
}

// then is a scene of steps, the last of which says goodbye.
func then(steps ...scripted.Step) scripted.Scene {
	return scripted.Steps(append(steps, scripted.Say(scripted.Reasoning("all is done"), scripted.Text("that was all")))...)
}

func scenarios() []scenario {
	retry := tool.Options{Recovery: tool.RecoverRetry}
	steps := func(o tool.Options, extra ...tool.Tool) func(func(tool.Call)) *agent.Agent {
		return func(effect func(tool.Call)) *agent.Agent {
			return &agent.Agent{Name: "demo", Tools: append([]tool.Tool{effectful("work", effect, o), effectful("gated", effect,
				tool.Options{Recovery: o.Recovery, ApprovalIf: func(in json.RawMessage) bool { return string(in) != `{"n":0}` }})}, extra...),
				Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
					"tools": then(
						scripted.Say(scripted.Reasoning("first one"), scripted.Text("one "), scripted.Calls(call("a", "work", `{"n":1}`))),
						scripted.Say(scripted.Text("two "), scripted.Calls(call("a", "work", `{"n":2}`)))),
					"parallel": then(scripted.Say(scripted.Calls(call("a", "work", `{"n":1}`), call("b", "work", `{"n":2}`), call("c", "nothing", `{}`)))),
					"approval": then(scripted.Say(scripted.Text("may I? "), scripted.Calls(call("a", "gated", `{"n":1}`), call("b", "gated", `{"n":2}`),
						call("c", "gated", `{"n":0}`)))),
					"client": then(scripted.Say(scripted.Text("where? "), scripted.Calls(call("a", "locate", `{}`), call("b", "work", `{"n":1}`)))),
					"output": structured,
					"your":   structured, // answer was not accepted
				}}),
			}
		}
	}
	approve := func(t *chunk.ToolPart) chunk.Chunk {
		return &chunk.ToolApprovalResponse{CommandID: "answer-" + t.CallID, ApprovalID: t.Approval.ID, Approved: t.CallID == "a" || t.CallID == "g-c1", Reason: "because"}
	}
	return []scenario{
		{name: "tools", agent: steps(retry)},
		{name: "parallel", agent: steps(retry)},
		{name: "approval", agent: steps(retry), answer: approve},
		{name: "client", agent: steps(retry, tool.Client[struct{}]("locate", "")), answer: func(t *chunk.ToolPart) chunk.Chunk {
			return &chunk.ToolResultSubmitted{CommandID: "answer-" + t.CallID, ToolCallID: t.CallID, Result: json.RawMessage(`{"lat":52.5}`)}
		}},
		{name: "output", agent: func(effect func(tool.Call)) *agent.Agent {
			a := steps(retry)(effect)
			a.Output = agent.OutputOf[verdictOf]()
			return a
		}},
		{name: "tools", agent: steps(retry), during: func() chunk.Chunk {
			return &chunk.InterruptRequested{CommandID: "i1", Reason: "wait"}
		}},
		{name: "tools", agent: steps(retry), during: func() chunk.Chunk {
			steer := say("u2", "parallel")
			steer.WhenBusy = chunk.BusySteer
			return steer
		}},
		{name: "parallel", agent: hooked(steps(retry)), hooked: true},
		{name: "approval", agent: hooked(steps(retry)), hooked: true, answer: approve},
		{name: "parallel", agent: breaking(steps(retry)), breaks: true},
		{name: "tools", agent: steps(retry), again: true},
		{name: "tools", agent: steps(tool.Options{}), unknown: true},
		{name: "sub-agents", agent: family},
		{name: "sub-approval", agent: family, answer: approve},
		{name: "companions", agent: company},
		{name: "companion-approval", agent: company, answer: approve},
		{name: "companions at work", agent: slowCompany, anywhere: true, during: func() chunk.Chunk {
			return &chunk.InterruptRequested{CommandID: "i1"}
		}},
		{name: "companions at work", agent: slowCompany, again: true},
	}
}

// breaking has a model whose first answer breaks off behind a call, and whose
// second one behind nothing.
func breaking(steps func(func(tool.Call)) *agent.Agent) func(func(tool.Call)) *agent.Agent {
	return func(effect func(tool.Call)) *agent.Agent {
		a := steps(effect)
		a.Model = &breaksOff{Model: a.Model}
		return a
	}
}

type breaksOff struct {
	model.Model
	asked int
}

func (m *breaksOff) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Part, error] {
	if m.asked++; m.asked > 2 {
		return m.Model.Stream(ctx, r)
	}
	first := m.asked == 1
	return func(yield func(model.Part, error) bool) {
		if first && !(yield(model.TextDelta{Delta: "let me"}, nil) && yield(model.ToolCallStart{ID: "a", Name: "work"}, nil) &&
			yield(model.ToolCallDelta{ID: "a", Delta: `{"n"`}, nil)) {
			return
		}
		yield(nil, &model.Error{Code: model.CodeTruncated, Message: "the line broke", Retryable: true})
	}
}

type marks struct {
	Marks map[string]int `json:"marks,omitempty"`
}

// hooked has hooks that each leave a mark in the state and in the message.
func hooked(steps func(func(tool.Call)) *agent.Agent) func(func(tool.Call)) *agent.Agent {
	mark := func(h agent.HookContext, point string) error {
		if err := h.Emit(point, h.Step, nil); err != nil {
			return err
		}
		if err := h.Emit("latest", point, &tool.EmitOptions{ID: "hook"}); err != nil {
			return err
		}
		return tool.UpdateState(h.Context, func(m *marks) error {
			if m.Marks == nil {
				m.Marks = map[string]int{}
			}
			m.Marks[point]++
			return nil
		})
	}
	return func(effect func(tool.Call)) *agent.Agent {
		a := steps(effect)
		a.Hooks = &agent.Hooks{
			BeforeRun:   func(h agent.HookContext) error { return mark(h, "before-run") },
			BeforeStep:  func(h agent.HookContext) error { return mark(h, "before-step") },
			BeforeModel: func(h agent.HookContext, _ *model.Request) error { return mark(h, "before-model") },
			AfterModel:  func(h agent.HookContext, _ agent.Answer) error { return mark(h, "after-model") },
			BeforeTool:  func(h agent.HookContext, c *agent.ToolCall) error { return mark(h, "before-"+c.ID) },
			AfterTool: func(h agent.HookContext, c *agent.ToolCall) error {
				if err := mark(h, "after-"+c.ID); err != nil {
					return err
				}
				return c.Err
			},
			AfterStep: func(h agent.HookContext, _ agent.Result) error { return mark(h, "after-step") },
		}
		return a
	}
}

// title names a scenario among those that begin with the same words.
func (s scenario) title() string {
	switch {
	case s.breaks:
		return s.name + ", asked again"
	case s.hooked:
		return s.name + " with hooks"
	case s.unknown:
		return s.name + " that must not be repeated"
	case s.again:
		return s.name + " from the first checkpoint"
	case s.during != nil:
		return s.name + ", " + string(s.during().ChunkType())
	}
	return s.name
}

// on returns the scenario's agent for runs of these logs' session s.
func (s scenario) on(logs *spool.Logs, effect func(tool.Call)) *agent.Agent {
	return s.agent(func(c tool.Call) {
		effect(c)
		if s.during == nil || c.ID != "a" {
			return
		}
		if g, err := logs.Log("s"); err == nil {
			_, _ = g.Command(context.Background(), spool.Row{}, s.during())
		}
	})
}

// replies is what somebody does about a session that waits: they answer what it
// asks, let it go on when it was interrupted, and try another end. g is its log.
func (s scenario) replies(ctx context.Context, g *spool.Log, f *fold.Fold) ([]chunk.Chunk, error) {
	var chunks []chunk.Chunk
	if f.Status == chunk.StatusPaused { // children that wait could be answered before
		for _, p := range f.PendingCalls() {
			c := s.answer(p.ToolPart)
			c.ChunkBase().AgentID = p.Agent
			chunks = append(chunks, c)
		}
	}
	if run := f.Interrupted(); run != nil {
		chunks = append(chunks, &chunk.ResumeRequested{CommandID: "go-" + run.ID, Mode: chunk.ModeContinue, Target: run.ID})
	}
	if s.again && f.Reason == "completed" && len(f.Turns) == 1 {
		at := f.Checkpoints[0]
		then, err := g.FoldAt(ctx, at.Seq)
		if err != nil {
			return nil, err
		}
		for _, c := range then.Owed().Content("back", at.ID) {
			chunks = append(chunks, c)
		}
		chunks = append(chunks, &chunk.ResumeRequested{CommandID: "again", Mode: chunk.ModeFromCheckpoint, CheckpointID: at.ID})
	}
	return chunks, nil
}

// family is an agent with children of its own, one of which has a child too.
func family(effect func(tool.Call)) *agent.Agent {
	retry := tool.Options{Recovery: tool.RecoverRetry}
	work := effectful("work", effect, retry)
	member := func(name string, scenes map[string]scripted.Scene, tools ...tool.Tool) *agent.Agent {
		return &agent.Agent{Name: name, Tools: tools, Model: scripted.New(&scripted.Options{Scenes: scenes})}
	}
	helper := member("helper", map[string]scripted.Scene{
		"help": scripted.Steps(scripted.Say(scripted.Text("let me "), scripted.Calls(call("a", "work", `{"n":3}`))), scripted.Say(scripted.Text("helped"))),
	}, work)
	researcher := member("researcher", map[string]scripted.Scene{
		"dig":  scripted.Steps(scripted.Say(scripted.Reasoning("hm"), scripted.Calls(call("a", "work", `{"n":1}`))), scripted.Say(scripted.Text("found it"))),
		"call": scripted.Steps(scripted.Say(scripted.Calls(call("a", "subagent__helper", `{"task":"help me"}`), call("b", "work", `{"n":2}`))), scripted.Say(scripted.Text("was helped"))),
		"book": scripted.Steps(scripted.Say(scripted.Text("may I? "), scripted.Calls(call("g", "gated", `{"n":1}`))), scripted.Say(scripted.Text("booked"))),
	}, work, agent.SubAgent(helper, agent.SubAgentOptions{}), effectful("gated", effect, tool.Options{Recovery: tool.RecoverRetry, Approval: true}))
	return member("demo", map[string]scripted.Scene{
		"sub-agents": then(scripted.Say(scripted.Text("both: "), scripted.Calls(call("a", "subagent__researcher", `{"task":"dig there"}`),
			call("b", "subagent__researcher", `{"task":"call for help"}`), call("c", "work", `{"n":0}`)))),
		"sub-approval": then(scripted.Say(scripted.Calls(call("a", "subagent__researcher", `{"task":"book it"}`), call("b", "work", `{"n":0}`),
			call("c", "subagent__researcher", `{"task":"book it, too"}`)))),
	}, work, agent.SubAgent(researcher, agent.SubAgentOptions{Description: "Finds things out."}))
}

// company is an agent with companions: one in the background, one that blocks.
func company(effect func(tool.Call)) *agent.Agent {
	retry := tool.Options{Recovery: tool.RecoverRetry}
	work := effectful("work", effect, retry)
	kid := &agent.Agent{Name: "digger", Tools: []tool.Tool{work, effectful("gated", effect, tool.Options{Recovery: tool.RecoverRetry, Approval: true})},
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
			"dig":    scripted.Steps(scripted.Say(scripted.Calls(call("a", "work", `{"n":1}`))), scripted.Say(scripted.Text("found it"))),
			"deeper": scripted.Steps(scripted.Say(scripted.Calls(call("b", "work", `{"n":2}`))), scripted.Say(scripted.Text("found more"))),
			"book":   scripted.Steps(scripted.Say(scripted.Calls(call("g", "gated", `{"n":1}`))), scripted.Say(scripted.Text("booked"))),
		}})}
	adviser := *kid
	adviser.Name = "adviser"
	return &agent.Agent{Name: "demo", Tools: []tool.Tool{work}, Companions: []agent.Companion{
		{Agent: kid, Mode: chunk.ChildBackground, Description: "Digs."}, {Agent: &adviser, Description: "Advises."}},
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
			"companions": then(
				scripted.Say(scripted.Text("go: "), scripted.Calls(call("a", "companion__spawnAgent", `{"agent":"digger","task":"dig there"}`),
					call("b", "companion__spawnAgent", `{"agent":"adviser","task":"dig here"}`))),
				scripted.Say(scripted.Calls(call("c", "companion__sendMessage", `{"childId":"s.2","message":"deeper"}`), call("d", "companion__waitForResult", `{"childId":"s.1"}`),
					call("e", "work", `{"n":0}`), call("f", "companion__sendMessage", `{"childId":"s.9","message":"hello"}`))),
				scripted.Say(scripted.Calls(call("g", "companion__terminateChild", `{"childId":"s.1"}`))),
				scripted.Say(scripted.Calls(call("h", "companion__listChildren", `{}`), call("i", "companion__getChildStatus", `{"childId":"s.2"}`),
					call("j", "companion__sendMessage", `{"childId":"s.1","message":"deeper"}`)))),
			"companion-approval": then(scripted.Say(scripted.Calls(call("a", "companion__spawnAgent", `{"agent":"digger","task":"book it"}`)))),
		}})}
}

// slowCompany is an agent that is done while its companions are still at work: one
// that it has begun before its first checkpoint, and one after that.
func slowCompany(effect func(tool.Call)) *agent.Agent {
	work := effectful("work", effect, tool.Options{Recovery: tool.RecoverRetry})
	dig := then(scripted.Say(scripted.Calls(call("b", "work", `{"n":1}`))), scripted.Say(scripted.Calls(call("b", "work", `{"n":2}`))))
	kid := &agent.Agent{Name: "digger", Tools: []tool.Tool{work}, Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
		"dig": func(c scripted.Call) iter.Seq2[model.Part, error] {
			return func(yield func(model.Part, error) bool) {
				time.Sleep(50 * time.Millisecond)
				for p, err := range dig(c) {
					if !yield(p, err) {
						return
					}
				}
			}
		},
	}})}
	spawn := func(id string) scripted.ToolCall {
		return call(id, "companion__spawnAgent", `{"agent":"digger","task":"dig there"}`)
	}
	return &agent.Agent{Name: "demo", Tools: []tool.Tool{work}, Companions: []agent.Companion{{Agent: kid, Mode: chunk.ChildBackground}},
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"companions": then(
			scripted.Say(scripted.Calls(spawn("s1"))),
			scripted.Say(scripted.Calls(spawn("s2"), call("a", "work", `{"n":0}`))))}})}
}

// pauses is what an outcome says of where a run was interrupted.
var pauses = regexp.MustCompile(`(?m)^\d+ (start|continue) .*\n|,\{[^{}]*"run-interrupted"[^{}]*\}|\{[^{}]*"run-interrupted"[^{}]*\},`)

func (s scenario) outcome(f *fold.Fold) string {
	if s.anywhere {
		return pauses.ReplaceAllString(outcome(f), "")
	}
	return outcome(f)
}

// structured answers wrongly at first, after a tool.
func structured(c scripted.Call) iter.Seq2[model.Part, error] {
	last := c.Request.Messages[len(c.Request.Messages)-1]
	switch {
	case strings.Contains(last.Text(), "not accepted"):
		return scripted.Steps(scripted.Say(scripted.Text(`{"sound":true}`)))(c)
	case c.Round > 0:
		return scripted.Steps(scripted.Say(scripted.Text("It is sound, I think.")))(scripted.Call{})
	}
	return scripted.Steps(scripted.Say(scripted.Calls(call("a", "work", `{"n":1}`))))(c)
}

// outcome is what of a session must be the same, however often it died.
func outcome(f *fold.Fold) string {
	var b strings.Builder
	var state any
	_ = json.Unmarshal(f.State, &state)
	fmt.Fprintln(&b, f.Status, f.Reason, mustJSON(f.Error), mustJSON(state), mustJSON(f.Usage), len(f.Checkpoints))
	for _, t := range f.Turns {
		for i, r := range t.Runs {
			fmt.Fprintln(&b, i, r.Mode, r.Outcome, r.Suspended, r.Pending, r.Steps)
		}
	}
	for _, c := range f.Children {
		fmt.Fprintln(&b, c.Session, c.AgentType, c.CallID, c.Mode, c.Ended > 0, outcome(c))
	}
	for _, m := range f.Messages {
		c := m.Clone()
		c.ID, c.TurnID, c.Time = "", "", 0
		for i := range c.Parts {
			p := &c.Parts[i]
			p.First = 0
			if p.Type == chunk.PartStep {
				p.ID = p.ID[strings.LastIndex(p.ID, "-s"):]
			}
			if p.Name == "run-interrupted" {
				p.Data = nil // it names the run
			}
			if p.Tool != nil {
				p.Tool.EffectID = ""
				if p.Tool.Approval != nil {
					p.Tool.Approval.ID = ""
				}
			}
		}
		// Parallel calls tell of themselves in any order.
		slices.SortStableFunc(c.Parts, func(p, q chunk.Part) int {
			if p.Type == chunk.PartData && q.Type == chunk.PartData {
				return strings.Compare(p.Name+p.ID+string(p.Data), q.Name+q.ID+string(q.Data))
			}
			return 0
		})
		fmt.Fprintln(&b, mustJSON(c))
	}
	return b.String()
}

// checkLog checks what holds for every log.
func checkLog(t *testing.T, records []chunk.Record) {
	t.Helper()
	ended, messages, owed := map[string]bool{}, map[string]string{}, map[string]bool{}
	for _, r := range records {
		c, err := chunk.Decode(r.Data)
		if err != nil {
			t.Fatal(err)
		}
		run := c.ChunkBase().RunID
		if ended[run] && run != "" {
			t.Errorf("%d: %s of a run that is over", r.Seq, r.Type)
		}
		switch c := c.(type) {
		case *chunk.RunStarted:
			if m := messages[c.TurnID]; m != "" && m != c.MessageID {
				t.Errorf("the turn %s has two messages", c.TurnID)
			}
			messages[c.TurnID] = c.MessageID
		case *chunk.StepCommitted:
			if c.CheckpointID != "" {
				owed[c.CheckpointID] = true
			}
		case *chunk.CheckpointCreated:
			if !owed[c.CheckpointID] {
				t.Errorf("%d: no commit has named the checkpoint %s, or it is created again", r.Seq, c.CheckpointID)
			}
			delete(owed, c.CheckpointID)
		case *chunk.RunFinished, *chunk.RunSuspended:
			ended[run] = true
		}
	}
	for id := range owed {
		t.Errorf("the checkpoint %s was not created", id)
	}
}

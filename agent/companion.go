package agent

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/tool"
)

// Companion is an agent that another can have as a long-lived child. The other's
// model gets tools for it:
//
//	companion__spawnAgent{agent, task}         begins a child
//	companion__sendMessage{childId, message}   tells it more, in the same turn or a later one
//	companion__waitForResult{childId}          waits until it has nothing to do
//	companion__getChildStatus{childId}         how it is, and what it said last
//	companion__listChildren{}                  all of them
//	companion__terminateChild{childId}         ends it permanently
//
// A child keeps its history and its state, in the session's log, as long as the
// session lives, and as the history holds the call that began it: a rollback or an
// edit that goes back to before that ends it. It works only while a run of its
// parent's is open: before that is done, or pauses, it waits for children that
// still work. An interrupt pauses them as well, each at its next step boundary, and
// the next run takes them up. A stop, a steering message and a failure of the
// parent stop them.
type Companion struct {
	Agent *Agent
	// Mode is [chunk.ChildBlocking], whose spawn and messages are calls that last
	// until the child has answered, or [chunk.ChildBackground], whose calls come
	// back at once while the child works beside its parent. "": blocking.
	Mode        string
	Description string // for the model that may spawn it
}

// What a companion tool does.
type companionOp string

const (
	opSpawn     companionOp = "spawnAgent"
	opSend      companionOp = "sendMessage"
	opWait      companionOp = "waitForResult"
	opStatus    companionOp = "getChildStatus"
	opList      companionOp = "listChildren"
	opTerminate companionOp = "terminateChild"
)

// companionTool is one of the tools of an agent that has companions.
type companionTool struct {
	agent *Agent
	op    companionOp
}

// companionInput is the input of all of them.
type companionInput struct {
	Agent   string `json:"agent"`
	Task    string `json:"task"`
	ChildID string `json:"childId"`
	Message string `json:"message"`
}

func (t *companionTool) Spec() tool.Spec {
	s := tool.Spec{Name: "companion__" + string(t.op), Recovery: tool.RecoverRetry}
	type property struct {
		Type        string   `json:"type"`
		Description string   `json:"description"`
		Enum        []string `json:"enum,omitempty"`
	}
	properties, required := map[string]property{}, []string{}
	child := func() {
		properties["childId"] = property{Type: "string", Description: "the child's id, as spawnAgent returned it"}
		required = append(required, "childId")
	}
	switch t.op {
	case opSpawn:
		s.Description = "Starts a child agent that you can send messages to later. Available agents:"
		var names []string
		for _, c := range t.agent.Companions {
			names = append(names, c.Agent.Name)
			how := "the call returns its answer"
			if c.mode() == chunk.ChildBackground {
				how = "it works in the background"
			}
			s.Description += fmt.Sprintf("\n- %s (%s): %s", c.Agent.Name, how, c.Description)
		}
		properties["agent"] = property{"string", "which agent", names}
		properties["task"] = property{Type: "string", Description: "what to do, with all the information needed to do it"}
		required = append(required, "agent", "task")
	case opSend:
		s.Description = "Sends a message to a child agent."
		child()
		properties["message"] = property{Type: "string", Description: "what to tell it"}
		required = append(required, "message")
	case opWait:
		s.Description = "Waits until a child agent has nothing left to do, and returns its last answer."
		child()
	case opStatus:
		s.Description = "Returns a child agent's status and its last answer."
		child()
	case opList:
		s.Description = "Lists the child agents."
	case opTerminate:
		s.Description = "Terminates a child agent permanently, whatever it is doing."
		child()
	}
	s.Input, _ = json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
	return s
}

// Call implements [tool.Tool]. Only an agent's step knows how to make the call.
func (t *companionTool) Call(tool.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, tool.Fatal(spool.ErrUnsupported.Because("a companion was called outside of an agent's step"))
}

// tools returns the agent's tools and those for its companions.
func (a *Agent) tools() []tool.Tool {
	if len(a.Companions) == 0 {
		return a.Tools
	}
	all := slices.Clone(a.Tools)
	for _, op := range []companionOp{opSpawn, opSend, opWait, opStatus, opList, opTerminate} {
		all = append(all, &companionTool{a, op})
	}
	return all
}

func (c *Companion) mode() string {
	if c.Mode == "" {
		return chunk.ChildBlocking
	}
	return c.Mode
}

func (a *Agent) companion(name string) *Companion {
	i := slices.IndexFunc(a.Companions, func(c Companion) bool { return c.Agent != nil && c.Agent.Name == name })
	if i < 0 {
		return nil
	}
	return &a.Companions[i]
}

func (a *Agent) checkCompanions(above []*Agent) error {
	for i := range a.Companions {
		c := &a.Companions[i]
		switch {
		case c.Agent == nil:
			return fmt.Errorf("agent %s: a companion has no agent", a.Name)
		case a.companion(c.Agent.Name) != c:
			return fmt.Errorf("agent %s: two companions are called %q", a.Name, c.Agent.Name)
		case c.mode() != chunk.ChildBlocking && c.mode() != chunk.ChildBackground:
			return fmt.Errorf("agent %s: the companion %s has the unknown mode %q", a.Name, c.Agent.Name, c.Mode)
		}
		if err := c.Agent.check(append(above, a)); err != nil {
			return fmt.Errorf("agent %s: %w", a.Name, err)
		}
	}
	return nil
}

// begets returns the agent that a call starts, and how the child is related to
// it; nil if it starts none.
func (s *step) begets(c *call) (of *Agent, mode string) {
	t := s.tool(c.name)
	if sub := subAgentOf(t); sub != nil {
		return sub.child, ""
	}
	if t, ok := t.(*companionTool); ok && t.op == opSpawn {
		if k := s.agent.companion(inputOf(c).Agent); k != nil {
			return k.Agent, k.mode()
		}
	}
	return nil, ""
}

func inputOf(c *call) companionInput {
	var in companionInput
	_ = json.Unmarshal([]byte(c.args), &in)
	return in
}

// childStatus is what a model is told of a child.
type childStatus struct {
	ChildID string          `json:"childId"`
	Agent   string          `json:"agent,omitempty"`
	Mode    string          `json:"mode,omitempty"`
	Status  string          `json:"status,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"` // why the last task has no result
}

// The statuses of a child.
const (
	childWorking    = "working"
	childWaiting    = "waiting" // for an answer
	childIdle       = "idle"
	childTerminated = "terminated"
)

func statusOf(f *fold.Fold) childStatus {
	s := childStatus{ChildID: f.Session, Agent: f.AgentType, Mode: f.Mode, Status: childIdle}
	switch {
	case f.Ended > 0:
		s.Status = childTerminated
	case len(f.PendingCalls()) > 0:
		s.Status = childWaiting
	case f.Live(), f.Break() != nil:
		s.Status = childWorking
	}
	return s
}

// busy reports whether the child still has something to do or to wait for.
func (s *childStatus) busy() bool { return s.Status == childWorking || s.Status == childWaiting }

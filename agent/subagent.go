package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/tool"
)

// SubAgentOptions say how an agent is a tool of another.
type SubAgentOptions struct {
	Name        string // of the tool; "": subagent__ and the agent's name
	Description string // for the model that may call it
	// Input is the JSON Schema of the call's arguments, an object. nil: one
	// string, task.
	Input json.RawMessage
	// Prompt makes what the child is told of the arguments. nil: the task, or the
	// arguments as they are.
	Prompt func(input json.RawMessage) string
	// Timeout is how long the child may take, from when it begins or goes on
	// after a pause or a crash; then it is stopped and the call fails. 0: no
	// limit; the parent's ToolTimeout does not count.
	Timeout time.Duration
	// Fatal makes the parent's run fail with the child. Otherwise the model is
	// told, as of any tool that fails.
	Fatal bool
}

const defaultMaxDepth = 5

var taskSchema = json.RawMessage(`{"type":"object","properties":{"task":{"type":"string","description":"what to do, with all the information needed to do it"}},"required":["task"],"additionalProperties":false}`)

// SubAgent makes a tool of an agent. A call runs it as a child with a history
// and a state of its own, in the session's log, and waits until it is done: its
// structured output, or else the text of its last step, is the result. A child
// that pauses pauses its parent; one whose process dies goes on where it was.
// SubAgent panics if the tool's name or schema is not valid, as that is a mistake in
// the program.
func SubAgent(child *Agent, o SubAgentOptions) tool.Tool {
	s := &subAgent{child: child, o: o, spec: tool.Spec{Name: o.Name, Description: o.Description, Input: o.Input, Timeout: o.Timeout}}
	if s.spec.Name == "" {
		s.spec.Name = "subagent__" + child.Name
	}
	if s.spec.Input == nil {
		s.spec.Input = taskSchema
	}
	err := tool.CheckName(s.spec.Name)
	if err == nil {
		s.schema, err = tool.ParseSchema(s.spec.Input)
	}
	if err != nil {
		panic(fmt.Sprintf("agent.SubAgent(%q): %v", child.Name, err))
	}
	return s
}

type subAgent struct {
	child  *Agent
	o      SubAgentOptions
	spec   tool.Spec
	schema *tool.Schema
}

func (s *subAgent) Spec() tool.Spec { return s.spec }

// Check implements [tool.Checker].
func (s *subAgent) Check(input json.RawMessage) error { return s.schema.Validate(input) }

// Call implements [tool.Tool]. Only an agent's step knows how to make the call.
func (s *subAgent) Call(tool.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, tool.Fatal(spool.ErrUnsupported.Because("a sub-agent was called outside of an agent's step"))
}

func (s *subAgent) prompt(input json.RawMessage) string {
	if s.o.Prompt != nil {
		return s.o.Prompt(input)
	}
	var in struct {
		Task string `json:"task"`
	}
	if s.o.Input == nil && json.Unmarshal(input, &in) == nil {
		return in.Task
	}
	return string(input)
}

// subAgentOf returns the sub-agent that a tool is, with whatever options.
func subAgentOf(t tool.Tool) *subAgent {
	for t != nil {
		if s, ok := t.(*subAgent); ok {
			return s
		}
		u, ok := t.(interface{ Unwrap() tool.Tool })
		if !ok {
			return nil
		}
		t = u.Unwrap()
	}
	return nil
}

// checkChildren checks the agents below this one.
func (a *Agent) checkChildren(above []*Agent) error {
	for _, t := range a.Tools {
		s := subAgentOf(t)
		if s == nil {
			continue
		}
		if s.child == nil {
			return fmt.Errorf("agent %s: a sub-agent is nil", a.Name)
		}
		if err := s.child.check(append(above, a)); err != nil {
			return fmt.Errorf("agent %s: %w", a.Name, err)
		}
	}
	return a.checkCompanions(above)
}

// Find returns the agent of that name among this one and those below it, or nil.
func (a *Agent) Find(name string) *Agent { return a.find(name, map[*Agent]bool{}) }

func (a *Agent) find(name string, seen map[*Agent]bool) *Agent {
	if a.Name == name {
		return a
	}
	seen[a] = true
	var below []*Agent
	for _, t := range a.Tools {
		if s := subAgentOf(t); s != nil {
			below = append(below, s.child)
		}
	}
	for _, c := range a.Companions {
		below = append(below, c.Agent)
	}
	for _, b := range below {
		if !seen[b] {
			if found := b.find(name, seen); found != nil {
				return found
			}
		}
	}
	return nil
}

// depth says how many agents are above the one of a session.
func depth(session string) int {
	return strings.Count(strings.TrimPrefix(session, chunk.RootID(session)), ".")
}

// callSuffix is added to the ids of a child's calls: the providers of other agents in
// the session may use the same ids.
func callSuffix(session string) string {
	if path := strings.TrimPrefix(session, chunk.RootID(session)); path != "" {
		return "-c" + path[1:]
	}
	return ""
}

// errChildWaits ends the work of a child that waits for an answer.
var errChildWaits = errors.New("agent: the child waits for an answer")

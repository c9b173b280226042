package agent

import (
	"encoding/json"
	"errors"

	"github.com/spool-run/spool/tool"
)

// CheckResult reports why a client's result of one of the agent's calls is not
// what the call's tool declares, or nil; also for a tool that the agent does not
// have.
func (a *Agent) CheckResult(name string, result json.RawMessage) error {
	for _, t := range a.Tools {
		if t.Spec().Name == name {
			if err := tool.CheckResult(t, result); err != nil {
				return errors.New(shown(err.Error()))
			}
			return nil
		}
	}
	return nil
}

// allTools returns the agent's tools as this step has them. The list is made at the
// first call, which the step's own goroutine makes, and does not change within the
// step.
func (s *step) allTools() []tool.Tool {
	if s.tools != nil {
		return s.tools
	}
	own := s.agent.tools()
	s.tools = make([]tool.Tool, 0, len(own))
	names := map[string]bool{}
	for _, t := range own {
		names[t.Spec().Name] = true
		s.tools = append(s.tools, t)
	}
	if s.agent.MoreTools == nil {
		return s.tools
	}
	for _, t := range s.agent.MoreTools() {
		if name := t.Spec().Name; !names[name] && !involves(t) {
			names[name] = true
			s.tools = append(s.tools, t)
		}
	}
	return s.tools
}

func (s *step) tool(name string) tool.Tool {
	for _, t := range s.allTools() {
		if t.Spec().Name == name {
			return t
		}
	}
	return nil
}

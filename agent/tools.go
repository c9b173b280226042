package agent

import "github.com/spool-run/spool/tool"

// allTools returns the agent's tools as the step has them: those that come and go
// stay for its time. The step's own goroutine asks first.
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

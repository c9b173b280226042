package runner

import (
	"context"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/fold"
)

// abandonAnswer ends the provider's work on the answer of a run that is over.
// Otherwise it would be finished and paid, and nobody would hear it. Only Close waits
// for the attempt; if it fails, that is only logged.
func (s *session) abandonAnswer(ctx context.Context, a openAnswer) {
	if s.agent == nil {
		return
	}
	of := s.agent
	if a.child != "" {
		if of = s.agent.Find(a.child); of == nil {
			return
		}
	}
	end := func() {
		if err := of.Abandon(ctx, a.cursor); err != nil {
			s.logs.Logger().Warn("the provider's work on an answer was not ended", "session", s.lease.Session, "error", err)
		}
	}
	if s.r == nil {
		s.logs.Go(end)
		return
	}
	s.r.wg.Add(1)
	s.logs.Go(func() { defer s.r.wg.Done(); end() })
}

// openAnswer is an answer that a provider still works on.
type openAnswer struct {
	child  string // the agent type of a child; "" for the session's own agent
	cursor string
}

// openAnswers returns those of an open run and of its children.
func openAnswers(f *fold.Fold) []openAnswer {
	var open []openAnswer
	if cursor := f.Answer(); cursor != "" {
		open = append(open, openAnswer{f.AgentType, cursor})
	}
	for _, c := range f.Children {
		open = append(open, openAnswers(c)...)
	}
	return open
}

// named returns the agent of that name, the first one for "", or nil.
func named(agents []*agent.Agent, name string) *agent.Agent {
	for _, a := range agents {
		if name == "" || a.Name == name {
			return a
		}
	}
	return nil
}

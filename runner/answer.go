package runner

import (
	"context"

	"github.com/spool-run/spool/agent"
)

// abandonAnswer ends the provider's work on the answer of a run that is over:
// it would be finished, and paid, with nobody to hear it. Nobody waits for the
// attempt but Close, and a failed one is only logged.
func (s *session) abandonAnswer(ctx context.Context, cursor string) {
	if s.agent == nil {
		return
	}
	end := func() {
		if err := s.agent.Abandon(ctx, cursor); err != nil {
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

// named returns the agent of that name, the first one for "", or nil.
func named(agents []*agent.Agent, name string) *agent.Agent {
	for _, a := range agents {
		if name == "" || a.Name == name {
			return a
		}
	}
	return nil
}

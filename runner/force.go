package runner

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/fold"
)

// ForceStop ends an open run whose owner does not obey a stop: the owner hangs, or is
// gone while its lease has not expired. It takes the session over and settles the run;
// from then on the owner can write nothing. It does nothing if no run is open, or if
// the open run was not asked to stop. If the session's agent is among agents, ForceStop
// also ends what its provider does in the background.
func ForceStop(ctx context.Context, logs *spool.Logs, name string, agents ...*agent.Agent) error {
	g, err := logs.Log(name)
	if err != nil {
		return err
	}
	asked := false
	err = g.View(ctx, func(f *fold.Fold) error {
		asked = f.OpenRun() != nil && f.Stop != nil
		return nil
	})
	if err != nil || !asked {
		return err
	}
	lease, err := logs.Claim(ctx, spool.Claim{Owner: "stop-" + logs.NewID(), TTL: spool.DefaultLeaseTTL, Session: name, Force: true, InProcess: true,
		Principal: g.Known().Principal, SamePrincipal: true})
	if err != nil {
		return err
	}
	if leaser, ok := logs.Store().(spool.Leaser); ok {
		defer func() { _ = leaser.Release(context.WithoutCancel(ctx), lease) }()
	}
	s := &session{logs: logs, lease: lease, log: g}
	s.w = g.Writer(lease, spool.WriterOptions{Name: "stop"})
	defer s.w.Close()
	p, err := s.plan(ctx)
	if err != nil || p.open == nil || !p.stop {
		return err // the owner has obeyed meanwhile; a run that is open now is recovered
	}
	s.agent = named(agents, p.open.AgentType)
	return s.abandon(ctx, p)
}

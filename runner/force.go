package runner

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/engine"
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
	asked, agentType := false, ""
	err = g.View(ctx, func(f *fold.Fold) error {
		if run := f.OpenRun(); run != nil {
			asked, agentType = f.Stop != nil, run.AgentType
		}
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
	e, err := engine.New(engine.Options{Logs: logs, Lease: lease, Agent: named(agents, agentType), Forced: true})
	if err != nil {
		return err
	}
	defer e.Close()
	p, err := e.Plan(ctx)
	if err != nil || !p.Stops() {
		return err // the owner has obeyed meanwhile; a run that is open now is recovered
	}
	return e.Settle(ctx, p)
}

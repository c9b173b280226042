package runner

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/fold"
)

// ForceStop ends an open run whose stop its owner does not obey, be it that the
// owner is gone and its lease still runs, or that it hangs: it takes the session
// over and settles the run. The owner can write nothing from then on. It does
// nothing if no run is open or none has been asked to stop. The agents, if the
// session's is among them, say where a provider works on in the background: that
// is ended too.
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
	lease, err := logs.Claim(ctx, spool.Claim{Owner: "stop-" + logs.NewID(), TTL: defaultTTL, Session: name, Force: true})
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
		return err // it was obeyed in this very moment; whatever runs now is recovered
	}
	s.agent = named(agents, p.open.AgentType)
	return s.abandon(ctx, p)
}

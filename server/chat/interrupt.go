package chat

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// InterruptOptions say what to interrupt and why. They are those of a stop.
type InterruptOptions = StopOptions

// Interrupt lets a run come to its next step boundary and pause there, and
// returns when it has: paused, or at its end, if that came first. A session where
// nothing runs, or that waits for somebody's answer, is answered as it stands. Errors: [spool.ErrNotFound] for an
// unknown session, [ErrNotInterruptible], and the store's.
func Interrupt(ctx context.Context, d *Deps, session string, o InterruptOptions) (*Settled, error) {
	g, err := d.Logs.Log(session)
	if err != nil {
		return nil, err
	}
	h, err := g.Head(ctx)
	if err != nil {
		return nil, err
	}
	s := &Settled{Session: session}
	command := ""
	look := func(f *fold.Fold) error {
		s.take(f)
		if run := f.Interrupted(); run != nil {
			s.RunID = run.ID
		}
		if command != "" {
			s.RunID = f.Verdict(command).RunID
			s.pend(f.Interrupt != nil)
			return nil
		}
		switch run := f.OpenRun(); {
		case f.Asks(): // it is paused, whatever is queued behind it
		case run != nil && o.RunID != "" && o.RunID != run.ID:
		case run != nil && run.Mode == chunk.ModeExternal:
			return ErrNotInterruptible.With(session, nil)
		case run != nil:
			command = "interrupt-" + hash(run.ID)
		case f.Live() && o.RunID == "" && f.Continue != nil:
			command = "interrupt-" + hash(f.Continue.ID)
		case f.Live() && o.RunID == "":
			command = "interrupt-" + hash(f.Waiting[0].ID)
		}
		return nil
	}
	if err := g.View(ctx, look); err != nil || command == "" {
		return s, err
	}
	if _, err := g.Command(ctx, spool.Row{}, &chunk.InterruptRequested{CommandID: command, Target: o.RunID, Reason: o.Reason}); err != nil {
		return nil, err
	}
	return s, s.await(ctx, g, h.Incarnation, stopPatience, look)
}

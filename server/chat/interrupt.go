package chat

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// InterruptOptions say what to interrupt and why. They are the same as for a stop.
type InterruptOptions = StopOptions

// Interrupt pauses a run at its next step boundary. It returns when the run has paused,
// or has ended before that. If no run is open, or the session waits for an answer, it
// returns the present state. Errors: [spool.ErrNotFound] for an unknown session,
// [ErrNotInterruptible], and the store's.
func Interrupt(ctx context.Context, d *Deps, session string, o InterruptOptions) (*Settled, error) {
	g, err := d.visitRoot(ctx, session)
	if err != nil {
		return nil, err
	}
	s := &Settled{Session: session}
	command := ""
	look := func(f *fold.Fold) (err error) {
		s.take(f)
		if run := f.Interrupted(); run != nil {
			s.RunID = run.ID
		}
		if command == "" {
			command, err = interruptOf(f, o.RunID)
			return err
		}
		s.RunID = f.Verdict(command).RunID
		s.pend(f.Interrupt != nil)
		return nil
	}
	if err := g.View(ctx, look); err != nil || command == "" {
		return s, err
	}
	if err := g.command(ctx, spool.Row{}, &chunk.InterruptRequested{CommandID: command, Target: o.RunID, Reason: o.Reason}); err != nil {
		return nil, err
	}
	_, err = s.await(ctx, g, stopPatience, look)
	return s, err
}

// interruptOf is the id of the command that interrupts the run that is open or about to
// be; "" if there is none.
func interruptOf(f *fold.Fold, runID string) (string, error) {
	switch run := f.OpenRun(); {
	case f.Asks(): // it is paused, even if messages are queued
	case run != nil && runID != "" && runID != run.ID:
	case run != nil && run.Mode == chunk.ModeExternal:
		return "", ErrNotInterruptible.With(f.Session, nil)
	case run != nil:
		return "interrupt-" + hash(run.ID), nil
	case f.Live() && runID == "" && f.Continue != nil:
		return "interrupt-" + hash(f.Continue.ID), nil
	case f.Live() && runID == "":
		return "interrupt-" + hash(f.Waiting[0].ID), nil
	}
	return "", nil
}

package chat

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spool-run/spool"
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
	look := func(f *spool.Fold) error {
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
		case run != nil && run.Mode == spool.ModeExternal:
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
	if _, err := g.Command(ctx, spool.Row{}, &spool.InterruptRequested{CommandID: command, Target: o.RunID, Reason: o.Reason}); err != nil {
		return nil, err
	}
	return s, s.await(ctx, g, h.Incarnation, stopPatience, look)
}

// take notes where a session stands.
func (s *Settled) take(f *spool.Fold) {
	s.Status, s.Reason, s.StreamSequence = f.Status, f.Reason, f.Seq
	s.pend(false)
	if f.Live() && !f.Asks() {
		s.Status, s.Reason = spool.StatusActive, ""
	}
}

// pend notes whether the command has yet to take effect.
func (s *Settled) pend(pending bool) {
	if s.Pending = pending; pending {
		s.Status, s.Reason = spool.StatusActive, ""
	}
}

// await looks until nothing is pending, or for so long.
func (s *Settled) await(ctx context.Context, g *spool.Log, incarnation uint64, patience time.Duration, look func(*spool.Fold) error) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if err := g.View(ctx, look); err != nil || !s.Pending {
			return err
		}
		switch err := await(waiting, subject{g, g.Session()}, incarnation, s.StreamSequence, false); {
		case err == nil:
		case errors.Is(err, io.EOF):
			return g.View(ctx, look)
		case ctx.Err() == nil && waiting.Err() != nil:
			return nil
		default:
			return err
		}
	}
}

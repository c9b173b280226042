package chat

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/runner"
)

// StopOptions say what to stop and why.
type StopOptions struct {
	RunID  string `json:"runId"` // the run meant; "" for whichever is active
	Reason string `json:"reason"`
}

// ParseStop reads a stop's body, which may be empty.
func ParseStop(data []byte) (StopOptions, error) {
	var o StopOptions
	if len(bytes.TrimSpace(data)) == 0 {
		return o, nil
	}
	err := decodeOne(data, &o)
	return o, err
}

// stopPatience is how long [Stop] waits for the run to settle.
const stopPatience = 10 * time.Second

// forceStop is how long an owner may take: the grace that it gives its tools, and
// as much again.
const forceStop = 4 * time.Second

// Stop cancels what runs, keeps what was written, and returns when the run has
// settled. A session where nothing runs is settled already. A child is stopped
// alone: its parent's call fails, and its parent goes on. Errors:
// [spool.ErrNotFound] for an unknown session, and the store's.
func Stop(ctx context.Context, d *Deps, session string, o StopOptions) (*Settled, error) {
	g, err := d.subject(session)
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
		s.Status, s.Reason, s.StreamSequence = f.Status, f.Reason, f.Position()
		switch run := f.OpenRun(); {
		case s.RunID != "":
			r := f.Run(s.RunID)
			s.Pending = r != nil && r.End == 0
		case run != nil && (o.RunID == "" || o.RunID == run.ID):
			s.RunID, s.Pending, command = run.ID, true, "stop-"+hash(run.ID)
		case run == nil && waits(f, o.RunID):
			s.Pending = true
			if command == "" && f.Status == chunk.StatusPaused {
				command = "stop-" + hash(f.LastTurn().LastRun().ID)
			} else if command == "" {
				command = "stop-" + hash(f.Waiting[0].ID)
			}
		default:
			s.Pending = false
		}
		s.pend(s.Pending)
		return nil
	}
	if err := g.View(ctx, look); err != nil {
		return nil, err
	}
	if !s.Pending {
		return s, nil
	}
	if _, err := g.Command(ctx, spool.Row{}, &chunk.StopRequested{Base: chunk.Base{AgentID: session}, CommandID: command, Target: s.RunID, Reason: o.Reason}); err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	force := d.ForceStop
	if force <= 0 {
		force = forceStop
	}
	polite, cancelPolite := context.WithTimeout(patience, force)
	defer cancelPolite()
	waiting := polite
	for {
		if err := g.View(ctx, look); err != nil {
			return nil, err
		}
		if !s.Pending {
			return s, nil
		}
		switch err := await(waiting, g, h.Incarnation, s.StreamSequence, false); {
		case err == nil, errors.Is(err, io.EOF):
			if err != nil && s.Pending {
				return s, g.View(ctx, look)
			}
		case ctx.Err() == nil && patience.Err() != nil:
			return s, nil
		case ctx.Err() == nil && polite.Err() != nil && waiting == polite:
			waiting = patience
			if g.child() {
				continue // its owner is its parent's, who is not to be stopped
			}
			if err := runner.ForceStop(ctx, d.Logs, session, d.Agents...); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// waits says whether a run is about to open, or the given one is paused until
// somebody answers.
func waits(f *fold.Fold, runID string) bool {
	if f.Continue != nil || len(f.Pending()) > 0 {
		return runID == "" || runID == f.LastTurn().LastRun().ID
	}
	return len(f.Waiting) > 0 && runID == ""
}

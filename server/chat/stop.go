package chat

import (
	"context"
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

// stopPatience is how long [Stop] waits for the run to settle.
const stopPatience = 10 * time.Second

// forceStop is how long an owner may take: twice the grace period that it gives its
// tools.
const forceStop = 4 * time.Second

// Stop cancels the open run, keeps what it has written, and returns when the run is
// settled. A session without an open run is settled already. A stopped child ends
// alone: its parent's call fails, and its parent continues. Errors: [spool.ErrNotFound]
// for an unknown session, and the store's.
func Stop(ctx context.Context, d *Deps, session string, o StopOptions) (*Settled, error) {
	g, err := d.Visit(ctx, session)
	if err != nil {
		return nil, err
	}
	s := &stopping{Settled: Settled{Session: session}, of: o.RunID}
	if err := g.View(ctx, s.look); err != nil || !s.Pending {
		return &s.Settled, err
	}
	stop := &chunk.StopRequested{Base: chunk.Base{AgentID: session}, CommandID: s.command, Target: s.RunID, Reason: o.Reason}
	if err := g.command(ctx, spool.Row{}, stop); err != nil {
		return nil, err
	}
	force := d.ForceStop
	if force <= 0 {
		force = forceStop
	}
	late, err := s.await(ctx, g, min(force, stopPatience), s.look)
	if err != nil || !late {
		return s.settled(err)
	}
	if !g.Child() { // a child has its parent's owner, which must not be stopped
		if err := runner.ForceStop(ctx, d.Logs, session, d.Agents...); err != nil {
			return nil, err
		}
	}
	_, err = s.await(ctx, g, max(stopPatience-force, 0), s.look)
	return s.settled(err)
}

// stopping is a stop in progress.
type stopping struct {
	Settled
	of      string // the run meant; "" for whichever is active
	command string
}

func (s *stopping) settled(err error) (*Settled, error) {
	if err != nil {
		return nil, err
	}
	return &s.Settled, nil
}

// look finds the run to stop, and later whether it has stopped.
func (s *stopping) look(f *fold.Fold) error {
	s.Status, s.Reason, s.StreamSequence = f.Status, f.Reason, f.Position()
	switch run := f.OpenRun(); {
	case s.RunID != "":
		r := f.Run(s.RunID)
		s.pend(r != nil && r.End == 0)
	case run != nil && (s.of == "" || s.of == run.ID):
		s.RunID, s.command = run.ID, "stop-"+hash(run.ID)
		s.pend(true)
	case run == nil && waits(f, s.of):
		if s.command == "" && f.Status == chunk.StatusPaused {
			s.command = "stop-" + hash(f.LastTurn().LastRun().ID)
		} else if s.command == "" {
			s.command = "stop-" + hash(f.Waiting[0].ID)
		}
		s.pend(true)
	default:
		s.pend(false)
	}
	return nil
}

// waits reports whether a run is about to be opened, or the given one is paused and
// waits for answers.
func waits(f *fold.Fold, runID string) bool {
	if f.Continue != nil || len(f.Pending()) > 0 {
		return runID == "" || runID == f.LastTurn().LastRun().ID
	}
	return len(f.Waiting) > 0 && runID == ""
}

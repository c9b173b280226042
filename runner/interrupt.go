package runner

import (
	"context"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// errSteered ends a run for a message that is to take its place.
var errSteered = errors.New("runner: steered")

// boundary says what a run does between two steps: go on, make room for a message
// that steers it, or pause because somebody interrupted it.
func (s *session) boundary(ctx context.Context) (result agent.Result, err error) {
	err = s.log.View(ctx, func(f *spool.Fold) error {
		switch steered, interrupted := f.Boundary(); {
		case steered:
			result = agent.Result{Done: true, Outcome: spool.OutcomeSteered, FinishReason: "other"}
		case interrupted:
			result = agent.Result{Suspended: spool.SuspendedInterrupted}
		}
		return nil
	})
	return result, err
}

// asked returns errStopped or errSteered if something has asked the open run to
// end: a run that pauses looks for it in its last moment.
func asked(f *spool.Fold) error {
	if f.Stop != nil {
		return errStopped
	}
	for _, w := range f.Waiting {
		if w.Seq > f.OpenRun().Start && w.WhenBusy == spool.BusyInterrupt {
			return errStopped
		}
	}
	if steered, _ := f.Boundary(); steered {
		return errSteered
	}
	return nil
}

// interrupt pauses the run at a step boundary, until somebody resumes it or says
// something else.
func (s *session) interrupt(ctx context.Context, info agent.RunInfo) error {
	var chunks []spool.Chunk
	var settle *spool.Settle
	err := s.log.View(ctx, func(f *spool.Fold) error {
		if err := asked(f); err != nil {
			return err
		}
		chunks = f.Interrupting()
		if len(f.Waiting) == 0 {
			settle = &spool.Settle{Seen: f.Seq}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.w.SetStep(0)
	_, err = s.w.Commit(ctx, spool.Row{Status: spool.StatusPaused}, settle, chunks...)
	s.w.SetRun("")
	if err == nil {
		s.r.tell.RunSuspended(info, spool.SuspendedInterrupted)
	}
	return err
}

// resumed returns what a run that does not begin its turn from nothing says
// first: where it goes on, and, after a rollback, that what came since is void.
func resumed(p plan, mode string) []spool.Chunk {
	if mode == spool.ModeStart {
		return nil
	}
	c := &spool.RunResumed{Mode: mode, FromStepCount: p.fromStep, FromCheckpointID: p.fromPoint}
	if p.rollback == nil {
		return []spool.Chunk{c}
	}
	at := p.rollback
	c.FromStepCount, c.FromCheckpointID = at.StepCount, &at.ID
	return []spool.Chunk{c, &spool.StreamResync{CheckpointID: at.ID, StepCount: at.StepCount, MessageCount: at.MessageCount,
		FromSequence: at.Seq, Reason: "rollback"}}
}

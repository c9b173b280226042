package runner

import (
	"errors"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// errSteered ends a run for a message that is to take its place.
var errSteered = errors.New("runner: steered")

// asked returns agent.ErrStopped or errSteered if something has asked the open run to
// end, else nil. It is looked for last before a run pauses.
func asked(f *fold.Fold) error {
	if f.Stop != nil {
		return agent.ErrStopped
	}
	for _, w := range f.Waiting {
		if w.Seq > f.OpenRun().Start && w.WhenBusy == chunk.BusyInterrupt {
			return agent.ErrStopped
		}
	}
	if steered, _ := f.Boundary(); steered {
		return errSteered
	}
	return nil
}

// resumed returns the first records of a run that does not begin a turn: they say where
// it goes on, and, after a rollback, that what came since the checkpoint is void.
func resumed(p plan, mode string) []chunk.Chunk {
	if mode == chunk.ModeStart {
		return nil
	}
	c := &chunk.RunResumed{Mode: mode, FromStepCount: p.fromStep, FromCheckpointID: p.fromPoint}
	if p.rollback == nil {
		return []chunk.Chunk{c}
	}
	at := p.rollback
	c.FromStepCount, c.FromCheckpointID = at.StepCount, &at.ID
	return []chunk.Chunk{c, &chunk.StreamResync{CheckpointID: at.ID, StepCount: at.StepCount, MessageCount: at.MessageCount,
		FromSequence: at.Seq, Reason: "rollback"}}
}

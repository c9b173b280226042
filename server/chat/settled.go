package chat

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Settled is the state of a session after a command.
type Settled struct {
	Session        string       `json:"sessionId"`
	Status         chunk.Status `json:"status"`
	Reason         string       `json:"reason,omitempty"`
	RunID          string       `json:"runId,omitempty"` // the run that the command concerns
	StreamSequence uint64       `json:"streamSequence"`
	Pending        bool         `json:"pending,omitempty"` // the command was stored, and has not taken effect yet
}

// take notes the state of a session.
func (s *Settled) take(f *fold.Fold) {
	s.Status, s.Reason, s.StreamSequence = f.Status, f.Reason, f.Seq
	s.pend(false)
	if f.Live() && !f.Asks() {
		s.Status, s.Reason = chunk.StatusActive, ""
	}
}

// pend notes whether the command has yet to take effect.
func (s *Settled) pend(pending bool) {
	if s.Pending = pending; pending {
		s.Status, s.Reason = chunk.StatusActive, ""
	}
}

// await looks at the session until nothing is pending, the log is quiet, or the
// patience is used up: then it reports late.
func (s *Settled) await(ctx context.Context, g Session, patience time.Duration, look func(*fold.Fold) error) (late bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = g.Until(waiting, func(f *fold.Fold) (spool.Look, error) {
		if err := look(f); err != nil || !s.Pending {
			return spool.Seen, err
		}
		return spool.Maybe, nil
	})
	switch {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil && ctx.Err() == nil && waiting.Err() != nil:
		return true, nil
	}
	return false, err
}

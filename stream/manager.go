package stream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Manager is a view of logs as streams that are written, ended and read: for producers
// that have an agent of their own. A stream is a session's log. Writing to it opens a
// run of mode external under a claim. Ending, failing or pausing it settles that run,
// so that status, messages and every wire are the same as for agents' runs.
//
// While a stream is open, this manager's lease on it is renewed by each write. When the
// lease expires, a runner of the same store may fail the run as lost. Another manager
// may take an open stream over; then writes here fail with [spool.ErrSuperseded]. An
// agent's open run is never taken over: that fails with [spool.ErrBusy].
type Manager struct {
	logs *spool.Logs
	runs *runs
}

// ManagerOptions are a manager's settings.
type ManagerOptions struct {
	// TTL is how long a stream may go without a write before it counts as abandoned. 0:
	// ten minutes.
	TTL time.Duration
}

// NewManager returns a manager. The logs' store must be a [spool.Leaser].
func NewManager(l *spool.Logs, o *ManagerOptions) *Manager {
	ttl := 10 * time.Minute
	if o != nil && o.TTL > 0 {
		ttl = o.TTL
	}
	return &Manager{logs: l, runs: newRuns(l, ttl, 0)}
}

// Logs returns the logs that the manager is a view of.
func (m *Manager) Logs() *spool.Logs { return m.logs }

// EndStream ends a stream. What was streamed becomes its message, and output, if there
// is any, its result. Ending a stream that is not open changes nothing.
func (m *Manager) EndStream(ctx context.Context, streamID string, output json.RawMessage) error {
	var last []chunk.Chunk
	if output != nil {
		last = append(last, &chunk.Output{Output: output})
	}
	return m.settle(ctx, streamID, func(r *run) error {
		return r.finish(ctx, &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"}, "the stream ended", last...)
	})
}

// FailStream ends a stream with an error.
func (m *Manager) FailStream(ctx context.Context, streamID, message string) error {
	message = cmp.Or(message, "the stream failed")
	return m.settle(ctx, streamID, func(r *run) error {
		return r.finish(ctx, &chunk.RunFinished{Outcome: chunk.OutcomeFailed, FinishReason: "error", Error: message}, "")
	})
}

// PauseStream pauses a stream that waits for a human or a client. Its readers end.
// [Manager.ResumeStream] or a new writer continues the same turn. Pausing a stream that
// is not open changes nothing.
func (m *Manager) PauseStream(ctx context.Context, streamID string) error {
	return m.settle(ctx, streamID, func(r *run) error {
		var pause *chunk.RunSuspended
		_, err := r.ask(ctx, func(f *fold.Fold) []chunk.Chunk {
			pause = suspension(f)
			return nil
		})
		if err != nil {
			return err
		}
		return r.suspend(ctx, pause)
	})
}

// suspension is a pause for all calls that have no outcome.
func suspension(f *fold.Fold) *chunk.RunSuspended {
	pause := f.Owed().Suspend(chunk.SuspendedClientTool, nil, 0)[0].(*chunk.RunSuspended)
	pause.Base = chunk.Base{}
	for _, p := range f.Message(f.LastTurn().MessageID).Parts {
		if p.Tool == nil || p.Tool.State.Done() {
			continue
		}
		pause.ToolCallIDs = append(pause.ToolCallIDs, p.Tool.CallID)
		if p.Tool.Approval != nil && p.Tool.Approval.Approved == nil {
			pause.Kind = chunk.SuspendedApproval
		}
	}
	return pause
}

// ResumeStream opens a paused stream again, in the same turn. It changes nothing for an
// open stream, and fails with [chunk.ErrInvalid] for any other.
func (m *Manager) ResumeStream(ctx context.Context, streamID string) error {
	s, err := m.runs.hold(ctx, streamID)
	if err != nil {
		return err
	}
	defer m.runs.leave(s)
	h, err := s.log.Head(ctx)
	if err != nil {
		return err
	}
	if h.Status != chunk.StatusPaused && h.Status != chunk.StatusActive {
		return chunk.ErrInvalid.Because("the stream is not paused").With(streamID, nil)
	}
	return m.activate(ctx, s, terms{paused: true})
}

// activate makes sure that this manager has claimed the stream and that it has an open
// run.
func (m *Manager) activate(ctx context.Context, s *slot, t terms) error {
	if s.run != nil {
		leaser, ok := m.logs.Store().(spool.Leaser)
		if !ok {
			return spool.ErrUnsupported
		}
		err := leaser.Renew(ctx, s.run.lease)
		if !errors.Is(err, spool.ErrSuperseded) {
			return err
		}
		s.run = nil
	}
	t.owner, t.takeOver, t.resume = "stream-manager:", true, chunk.ModeContinue
	var err error
	s.run, err = m.runs.open(ctx, s.log, t)
	return err
}

// settle closes what was streamed in the open run, calls end and releases the stream.
func (m *Manager) settle(ctx context.Context, streamID string, end func(r *run) error) error {
	s, err := m.runs.hold(ctx, streamID)
	if err != nil {
		return err
	}
	defer m.runs.leave(s)
	h, err := s.log.Head(ctx)
	if err != nil {
		return err
	}
	if h.Status != chunk.StatusActive {
		return nil
	}
	if s.run == nil {
		err := m.activate(ctx, s, terms{existing: true})
		if errors.Is(err, errNotOpen) {
			return nil // another process was faster
		}
		if err != nil {
			return err
		}
	}
	r := s.run
	if err := r.heed(ctx); err != nil || !r.open {
		return err
	}
	if err = r.complete(ctx, "stop"); err == nil {
		err = end(r)
	}
	if err != nil {
		r.open = false // the next writer claims the stream again
		return err
	}
	return r.release(ctx)
}

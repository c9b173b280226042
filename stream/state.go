package stream

import (
	"context"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// StateStore is a view of logs as a store of session state, with the method names of
// such stores. It stores nothing: all it returns comes from the fold of the session's
// log, so it always agrees with the streams.
type StateStore struct{ logs *spool.Logs }

// NewStateStore returns a view of these logs.
func NewStateStore(l *spool.Logs) *StateStore { return &StateStore{l} }

// SessionRun is a run as a state store reports it.
type SessionRun struct {
	RunID     string       `json:"runId"`
	TurnID    string       `json:"turnId"`
	AgentType string       `json:"agentType,omitempty"`
	Mode      string       `json:"mode"`
	Status    chunk.Status `json:"status"`
	Reason    string       `json:"reason,omitempty"` // how it ended, or what it waits for
	// StartSequence is the last sequence before the run's turn: the chunks after
	// it are the turn's, see [Manager.GetChunksFromSequence].
	StartSequence uint64      `json:"startSequence"`
	StepCount     int         `json:"stepCount"`
	StartTime     int64       `json:"startTime"`         // Unix milliseconds
	EndTime       int64       `json:"endTime,omitempty"` // 0 while it is open
	Usage         chunk.Usage `json:"usage"`
}

// MessagePage is a page of a history.
type MessagePage struct {
	Messages []chunk.Message
	HasMore  bool
}

// LoadState returns a session's state, messages and status, with what an open run has
// streamed so far, or nil if there is no such session.
func (s *StateStore) LoadState(ctx context.Context, session string) (*fold.Snapshot, error) {
	var state *fold.Snapshot
	err := s.view(ctx, session, func(f *fold.Fold) {
		snapshot := f.Snapshot(fold.SnapshotOptions{})
		state = &snapshot
	})
	return state, err
}

// SessionExists says whether there is such a session.
func (s *StateStore) SessionExists(ctx context.Context, session string) (bool, error) {
	exists := false
	err := s.view(ctx, session, func(*fold.Fold) { exists = true })
	return exists, err
}

// GetMessages returns up to limit messages of a session from offset on, oldest
// first; all of them with a limit of 0. An unknown session has none.
func (s *StateStore) GetMessages(ctx context.Context, session string, offset, limit int) (MessagePage, error) {
	if offset < 0 || limit < 0 {
		return MessagePage{}, chunk.ErrInvalid.Because("offset and limit must be 0 or more").With(session, nil)
	}
	state, err := s.LoadState(ctx, session)
	if state == nil {
		return MessagePage{Messages: []chunk.Message{}}, err
	}
	n := len(state.Messages)
	from, to := min(offset, n), n
	if limit > 0 {
		to = from + min(limit, n-from)
	}
	return MessagePage{state.Messages[from:to], to < n}, nil
}

// GetCurrentRun returns a session's latest run, open or not, or nil if it has had
// none.
func (s *StateStore) GetCurrentRun(ctx context.Context, session string) (*SessionRun, error) {
	var current *SessionRun
	err := s.view(ctx, session, func(f *fold.Fold) {
		turn := f.LastTurn()
		if turn == nil {
			return
		}
		r := turn.LastRun()
		current = &SessionRun{RunID: r.ID, TurnID: turn.ID, AgentType: r.AgentType, Mode: r.Mode, Status: f.Status, Reason: f.Reason,
			StartSequence: turn.Start(), StepCount: r.Steps, StartTime: r.StartTime, EndTime: r.EndTime, Usage: r.Usage}
		if r.End == 0 {
			current.Status, current.Reason = chunk.StatusActive, ""
		}
	})
	return current, err
}

// DeleteSession deletes a session with everything in it. It is no error if there is
// none. The store must be a [spool.Trimmer].
func (s *StateStore) DeleteSession(ctx context.Context, session string) error {
	if err := chunk.CheckID(session); err != nil {
		return err
	}
	t, ok := s.logs.Store().(spool.Trimmer)
	if !ok {
		return spool.ErrUnsupported.With(session, nil)
	}
	if err := t.Delete(ctx, session); !errors.Is(err, spool.ErrNotFound) {
		return err
	}
	return nil
}

// view calls fn with the fold of a session that exists.
func (s *StateStore) view(ctx context.Context, session string, fn func(f *fold.Fold)) error {
	g, err := s.logs.Log(session)
	if err != nil {
		return err
	}
	err = g.View(ctx, func(f *fold.Fold) error { fn(f); return nil })
	if errors.Is(err, spool.ErrNotFound) {
		return nil
	}
	return err
}

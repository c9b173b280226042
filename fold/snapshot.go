package fold

import (
	"encoding/json"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// Snapshot is a session's state at one position of its log: exact, because both
// come from the same fold.
type Snapshot struct {
	SessionID string           `json:"sessionId"`
	Status    chunk.Status     `json:"status"` // active while a run is open or a command waits for one
	Reason    string           `json:"reason,omitempty"`
	Code      string           `json:"code,omitempty"` // which limit the last run has reached, or how it failed
	Error     *chunk.ErrorInfo `json:"error,omitempty"`
	State     json.RawMessage  `json:"state"` // null until something set it
	Messages  []chunk.Message  `json:"messages"`

	StreamSequence uint64 `json:"streamSequence"` // the position: resume after it
	StartSequence  uint64 `json:"startSequence"`  // the last sequence before the current turn
	Incarnation    uint64 `json:"incarnation"`

	// ExistingMessageID is the current turn's assistant message, "" before it
	// has one.
	ExistingMessageID string              `json:"existingMessageId,omitempty"`
	CheckpointID      *string             `json:"checkpointId"`
	Checkpoint        *SnapshotCheckpoint `json:"checkpoint,omitempty"`
	Usage             chunk.Usage         `json:"usage"`
	// Origin is where the session came from, if it is a branch.
	Origin *Origin `json:"origin,omitempty"`
}

// SnapshotCheckpoint is the latest checkpoint at or below the snapshot.
type SnapshotCheckpoint struct {
	ID             string `json:"id"`
	StepCount      int    `json:"stepCount"`
	StreamSequence uint64 `json:"streamSequence"`
}

// SnapshotOptions say what a snapshot holds.
type SnapshotOptions struct {
	// OmitLive leaves the assistant message of a live turn out, for clients that
	// get it replayed by the stream.
	OmitLive bool
}

// Snapshot returns the fold's state as a value that does not change with the fold.
func (f *Fold) Snapshot(o SnapshotOptions) Snapshot {
	s := Snapshot{
		SessionID:      f.Session,
		Status:         f.Status,
		Reason:         f.Reason,
		Error:          f.Error,
		State:          f.State,
		Messages:       []chunk.Message{},
		StreamSequence: f.Position(),
		Usage:          f.Usage,
		Origin:         f.Origin,
	}
	for _, m := range f.ShownMessages(o) {
		s.Messages = append(s.Messages, m.Clone())
	}
	if f.Live() && !f.Asks() {
		s.Status, s.Reason, s.Error = chunk.StatusActive, "", nil
	}
	turn := f.LastTurn()
	if turn != nil && (s.Status == chunk.StatusEnded || s.Status == chunk.StatusFailed) {
		s.Code = turn.LastRun().Code
	}
	switch {
	case len(f.Waiting) > 0 && f.open.run == nil && !f.Asks():
		s.StartSequence = f.Waiting[0].Seq - 1
	case turn != nil:
		s.StartSequence = turn.Start()
		if turn.Rolled == 0 || f.Message(turn.MessageID) != nil {
			s.ExistingMessageID = turn.MessageID
		}
	}
	if c := f.Checkpoint(f.CheckpointID); c != nil {
		s.CheckpointID = &c.ID
		s.Checkpoint = &SnapshotCheckpoint{c.ID, c.StepCount, c.Seq}
	}
	return s
}

// ShownMessages returns the messages that a snapshot holds. They belong to the fold.
func (f *Fold) ShownMessages(o SnapshotOptions) []*chunk.Message {
	messages, turn := make([]*chunk.Message, 0, len(f.Messages)+1), f.LastTurn()
	liveTurn, live := f.LiveAt(f.Seq) // the turn that a stream from this position replays
	streamed := o.OmitLive && live && turn != nil && liveTurn == turn.ID
	for _, m := range f.Messages {
		ofTurn := turn != nil && m.ID == turn.MessageID
		empty := f.open.run != nil && len(m.Parts) == 0
		if !ofTurn || !streamed && !empty {
			messages = append(messages, m)
		}
	}
	if w := f.Next(); w != nil && w.Held {
		messages = w.preview(messages) // the stream will show the answer to it
	}
	return messages
}

// Next returns the command whose run is the next to begin, or nil.
func (f *Fold) Next() *Command {
	if len(f.Waiting) == 0 || f.open.run != nil || f.Continue != nil || f.Asks() {
		return nil
	}
	return f.Waiting[0]
}

// preview returns the messages as they will be once a held command takes effect.
func (w *Command) preview(messages []*chunk.Message) []*chunk.Message {
	if w.Rewind != nil {
		keep := slices.IndexFunc(messages, func(m *chunk.Message) bool { return m.ID == *w.Rewind }) + 1
		if keep > 0 || *w.Rewind == "" {
			messages = messages[:keep]
		}
	}
	if w.Message != nil {
		messages = append(messages, w.Message)
	}
	return messages
}

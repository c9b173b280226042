package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

// Settled is the state of a session after a command.
type Settled struct {
	Session        string       `json:"sessionId"`
	Status         chunk.Status `json:"status"`
	Reason         string       `json:"reason"`
	RunID          string       `json:"runId"` // the run that the command concerns
	StreamSequence uint64       `json:"streamSequence"`
	Pending        bool         `json:"pending"` // it was taken, and has not taken effect yet
}

// Message is what a user says.
type Message struct {
	// ID is the message's id, and the key by which the server knows a repeat. "": a new id.
	ID    string
	Text  string
	Parts []aisdk.UIPart // instead of Text
	// Metadata is an object that is kept with the message.
	Metadata json.RawMessage
	// WhenBusy says what to do while a run is active. "": reject, which fails with
	// spool.ErrBusy.
	WhenBusy chunk.WhenBusy
	// Edits is the id of the user message that this one replaces, with all that follows
	// it; "" for a new message.
	Edits string
}

func (m *Message) ui() aisdk.UIMessage {
	parts := m.Parts
	if parts == nil {
		parts = []aisdk.UIPart{{Type: "text", Text: m.Text}}
	}
	return aisdk.UIMessage{ID: m.ID, Role: string(chunk.RoleUser), Metadata: m.Metadata, Parts: parts}
}

// turn is the body of a chat POST.
type turn struct {
	Message   *aisdk.UIMessage `json:"message,omitempty"`
	Trigger   wire.Trigger     `json:"trigger,omitempty"`
	MessageID string           `json:"messageId,omitempty"`
	WhenBusy  chunk.WhenBusy   `json:"whenBusy,omitempty"`
}

// Send sends a message and returns its id once the server has stored it. The session is
// created if it does not exist. The answer is on the session's streams.
//
// A message that the server may have taken is sent again under the same id, and makes
// one turn.
func (s *Session) Send(ctx context.Context, m Message) (id string, err error) {
	m.ID = s.c.keyed(m.ID)
	ui := m.ui()
	body := turn{Message: &ui, WhenBusy: m.WhenBusy}
	if m.Edits != "" {
		body.Trigger, body.MessageID = wire.TriggerSubmit, m.Edits
		m.ID = m.Edits
	}
	return m.ID, s.open(ctx, body, false)
}

// Regenerate answers the user message before an assistant message again; "" means the
// latest answer. It fails with [ErrUnknownOutcome] if the server may have taken it.
func (s *Session) Regenerate(ctx context.Context, messageID string, whenBusy chunk.WhenBusy) error {
	return s.open(ctx, turn{Trigger: wire.TriggerRegenerate, MessageID: messageID, WhenBusy: whenBusy}, true)
}

// open posts to the chat route. The head of the answer says that the server has stored
// the message; the stream that follows is not read.
func (s *Session) open(ctx context.Context, body turn, once bool) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return s.c.call(ctx, request{method: http.MethodPost, path: s.path(), body: data, session: s.id, once: once}, nil)
}

// StopOptions say what to stop or to interrupt, and why.
type StopOptions struct {
	// RunID is the run that is meant. "" means the one that is active when the request
	// comes. Such a request cannot be repeated, because the repeat could mean a later
	// run: if its outcome is unknown, it fails with [ErrUnknownOutcome].
	RunID  string `json:"runId,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Stop cancels the session's run, keeps what it has said, and returns when it has
// settled, or after ten seconds with Pending.
func (s *Session) Stop(ctx context.Context, o StopOptions) (*Settled, error) {
	return post[Settled](ctx, s, s.path("stop"), o, o.RunID == "")
}

// Interrupt lets the run reach its next step boundary and pauses it there.
func (s *Session) Interrupt(ctx context.Context, o StopOptions) (*Settled, error) {
	return post[Settled](ctx, s, s.path("interrupt"), o, o.RunID == "")
}

// ResumeOptions say how a session continues. The zero value continues an interrupted run.
type ResumeOptions struct {
	Mode         string // chunk.ModeContinue (also ""), ModeWithMessage, ModeRetry or ModeFromCheckpoint
	RunID        string // ModeContinue: the interrupted run; "" for the one that there is
	CheckpointID string // ModeFromCheckpoint
	Message      *Message
	CommandID    string // the key by which the server knows a repeat; "": a new id
}

// resume is the body of a resume and of a branch.
type resume struct {
	Mode         string           `json:"mode,omitempty"`
	RunID        string           `json:"runId,omitempty"`
	CheckpointID string           `json:"checkpointId,omitempty"`
	Message      *aisdk.UIMessage `json:"message,omitempty"`
	CommandID    string           `json:"commandId,omitempty"`
	SessionID    string           `json:"sessionId,omitempty"`
}

// Resume continues, retries or rewinds the session, and returns when its run has begun,
// or after two seconds with Pending.
func (s *Session) Resume(ctx context.Context, o ResumeOptions) (*Settled, error) {
	body := resume{Mode: o.Mode, RunID: o.RunID, CheckpointID: o.CheckpointID, CommandID: s.c.keyed(o.CommandID), Message: s.message(o.Message)}
	return post[Settled](ctx, s, s.path("resume"), body, false)
}

// BranchOptions say where a branch begins.
type BranchOptions struct {
	CheckpointID string
	Session      string   // the new session's id; "": one made from CommandID
	CommandID    string   // the key by which the server knows a repeat; "": a new id
	Message      *Message // opens a turn in the branch; nil: none
}

// Branched is the state of a branch, and where it came from.
type Branched struct {
	Settled
	Origin *fold.Origin `json:"origin"`
}

// Branch copies the session, as it was at a checkpoint, into a new one.
func (s *Session) Branch(ctx context.Context, o BranchOptions) (*Branched, error) {
	body := resume{Mode: "branch", CheckpointID: o.CheckpointID, SessionID: o.Session, CommandID: s.c.keyed(o.CommandID), Message: s.message(o.Message)}
	return post[Branched](ctx, s, s.path("resume"), body, false)
}

func (s *Session) message(m *Message) *aisdk.UIMessage {
	if m == nil {
		return nil
	}
	with := *m
	with.ID = s.c.keyed(m.ID)
	ui := with.ui()
	return &ui
}

// Decision is a human's decision on a call that waits for approval.
type Decision struct {
	Approved bool   `json:"approved"`
	Reason   string `json:"reason,omitempty"`
}

// Decide answers an approval. The first decision counts; another one is refused with the
// code already_answered.
func (s *Session) Decide(ctx context.Context, approvalID string, d Decision) (*Settled, error) {
	return post[Settled](ctx, s, s.path("approvals", approvalID), d, false)
}

// ToolResult is the outcome of a call that the client executes: an output, or an error.
type ToolResult struct {
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// SubmitResult gives the outcome of a call that the client executes. The first one counts.
func (s *Session) SubmitResult(ctx context.Context, callID string, r ToolResult) (*Settled, error) {
	return post[Settled](ctx, s, s.path("tools", callID), r, false)
}

package chunk

import "encoding/json"

// WhenBusy says what a command that opens a turn does while a run is active.
type WhenBusy string

const (
	BusyReject    WhenBusy = "reject" // the default
	BusyQueue     WhenBusy = "queue"
	BusyInterrupt WhenBusy = "interrupt"
	BusySteer     WhenBusy = "steer"
)

// UserMessage is a command: what the user says. It opens a turn.
type UserMessage struct {
	Base
	CommandID string   `json:"commandId"`
	Message   Message  `json:"message"`
	WhenBusy  WhenBusy `json:"whenBusy,omitempty"`
}

func (*UserMessage) ChunkType() Type     { return TypeUserMessage }
func (c *UserMessage) commandID() string { return c.CommandID }

// StopRequested is a command: cancel the run and keep the partial answer.
type StopRequested struct {
	Base
	CommandID string `json:"commandId"`
	Target    string `json:"target,omitempty"` // the run meant; "" for whichever is active
	Reason    string `json:"reason,omitempty"`
}

func (*StopRequested) ChunkType() Type     { return TypeStopRequested }
func (c *StopRequested) commandID() string { return c.CommandID }

// InterruptRequested is a command: let the run come to its next step boundary,
// and pause there.
type InterruptRequested struct {
	Base
	CommandID string `json:"commandId"`
	Target    string `json:"target,omitempty"` // the run meant; "" for whichever is active
	Reason    string `json:"reason,omitempty"`
}

func (*InterruptRequested) ChunkType() Type     { return TypeInterruptRequested }
func (c *InterruptRequested) commandID() string { return c.CommandID }

// ResumeRequested is a command. In mode continue an interrupted run goes on. In
// the others a turn opens: with the user_message that follows in the same append,
// if WithMessage says so, and otherwise with what the history ends in. With a
// CheckpointID it takes effect only right behind the last history_replaced of
// that checkpoint, in the same append.
type ResumeRequested struct {
	Base
	CommandID    string `json:"commandId"`
	Mode         string `json:"mode"` // continue, with_message, retry or from_checkpoint
	Target       string `json:"target,omitempty"`
	CheckpointID string `json:"checkpointId,omitempty"`
	WithMessage  bool   `json:"withMessage,omitempty"`
	NoRun        bool   `json:"noRun,omitempty"` // nothing is left to do there: only the history changes
}

func (*ResumeRequested) ChunkType() Type     { return TypeResumeRequested }
func (c *ResumeRequested) commandID() string { return c.CommandID }

// ToolApprovalResponse is a command: a decision on an approval request.
type ToolApprovalResponse struct {
	Base
	CommandID  string `json:"commandId"`
	ApprovalID string `json:"approvalId"`
	Approved   bool   `json:"approved"`
	Reason     string `json:"reason,omitempty"`
}

func (*ToolApprovalResponse) ChunkType() Type     { return TypeToolApprovalResponse }
func (c *ToolApprovalResponse) commandID() string { return c.CommandID }

// ToolResultSubmitted is a command: the outcome of a client-executed call.
type ToolResultSubmitted struct {
	Base
	CommandID  string          `json:"commandId"`
	ToolCallID string          `json:"toolCallId"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
}

func (*ToolResultSubmitted) ChunkType() Type     { return TypeToolResultSubmitted }
func (c *ToolResultSubmitted) commandID() string { return c.CommandID }

// HistoryRewound is a command: forget the messages after one. Followed in the
// same append by a user_message it is an edit; alone it is a regenerate, and
// opens a turn itself.
type HistoryRewound struct {
	Base
	CommandID      string   `json:"commandId"`
	AfterMessageID string   `json:"afterMessageId"` // the last message that stays; "" for none
	Trigger        string   `json:"trigger"`        // edit or regenerate
	WhenBusy       WhenBusy `json:"whenBusy,omitempty"`
}

func (*HistoryRewound) ChunkType() Type     { return TypeHistoryRewound }
func (c *HistoryRewound) commandID() string { return c.CommandID }

// HistoryReplaced is a command: other messages or state take the place
// of the session's. An absent member stays as it is. With More set, the next
// history_replaced of the same command goes on: its messages are appended, and a
// first one with the id of the last one so far goes on with that one's parts.
type HistoryReplaced struct {
	Base
	CommandID string          `json:"commandId"`
	Messages  *[]Message      `json:"messages,omitempty"`
	State     json.RawMessage `json:"state,omitempty"`
	More      bool            `json:"more,omitempty"`
	Index     int             `json:"index,omitempty"`  // place in the series, from 0
	GoesOn    bool            `json:"goesOn,omitempty"` // the first part goes on with the last one's text
	// CheckpointID says that this is the log's own content at a checkpoint, with
	// values as they are stored.
	CheckpointID string `json:"checkpointId,omitempty"`
}

func (*HistoryReplaced) ChunkType() Type     { return TypeHistoryReplaced }
func (c *HistoryReplaced) commandID() string { return c.CommandID }

package chunk

import "encoding/json"

// RunStarted opens a run and says which turn it belongs to and which commands
// it answers.
type RunStarted struct {
	Base
	TurnID    string          `json:"turnId"`    // id of the command that opened the turn
	MessageID string          `json:"messageId"` // the turn's assistant message
	Mode      string          `json:"mode"`      // start, continue, retry, external, …
	Commands  []string        `json:"commands,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"` // goes on the wires' start frames
}

func (*RunStarted) ChunkType() Type { return TypeRunStarted }

// StepStarted opens a step's model phase.
type StepStarted struct {
	Base
	StepID string `json:"stepId"`
}

func (*StepStarted) ChunkType() Type { return TypeStepStarted }

// AnswerStarted says that the provider works on the open step's answer and keeps
// it: the owner of the run can take it up again, should its process die. What of
// the answer is in the log are the chunks that follow. It is trace.
type AnswerStarted struct {
	Base
	StepID string `json:"stepId"`
	Cursor string `json:"cursor"` // the model's own, of the answer's beginning
}

func (*AnswerStarted) ChunkType() Type { return TypeAnswerStarted }

// AssistantMessage closes a model phase: all that the model said in this step.
// With More set, the next assistant_message goes on: its parts are appended, and
// a first part with the same First as the last one continues its text.
type AssistantMessage struct {
	Base
	MessageID    string `json:"messageId"`
	StepID       string `json:"stepId"`
	Parts        []Part `json:"parts"`
	FinishReason string `json:"finishReason,omitempty"` // stop, length, tool-calls, content-filter, error, other
	Usage        *Usage `json:"usage,omitempty"`
	Partial      bool   `json:"partial,omitempty"`    // cut short; settled from the trace
	Unfinished   bool   `json:"unfinished,omitempty"` // the provider has more to say: another step follows
	More         bool   `json:"more,omitempty"`
}

func (*AssistantMessage) ChunkType() Type { return TypeAssistantMessage }

// StepCommitted commits a step: its staged state becomes state and its data
// parts have their last values. Data is a part list of type "data".
type StepCommitted struct {
	Base
	StepID       string `json:"stepId"`
	CheckpointID string `json:"checkpointId,omitempty"`
	Data         []Part `json:"data,omitempty"`
	Partial      bool   `json:"partial,omitempty"` // settled, not finished: only patches of finished calls count
	More         bool   `json:"more,omitempty"`
}

func (*StepCommitted) ChunkType() Type { return TypeStepCommitted }

// StepDiscarded drops a model phase.
type StepDiscarded struct {
	Base
	StepID string `json:"stepId"`
	Reason string `json:"reason"`
}

func (*StepDiscarded) ChunkType() Type { return TypeStepDiscarded }

// CheckpointCreated names the fold at this sequence.
type CheckpointCreated struct {
	Base
	CheckpointID string `json:"checkpointId"`
	StepCount    int    `json:"stepCount"`
}

func (*CheckpointCreated) ChunkType() Type { return TypeCheckpointCreated }

// RunInterrupted says that an interrupt took effect.
type RunInterrupted struct {
	Base
	CheckpointID *string `json:"checkpointId"`
	Reason       string  `json:"reason,omitempty"`
}

func (*RunInterrupted) ChunkType() Type { return TypeRunInterrupted }

// RunPaused says that a run waits for a human.
type RunPaused struct {
	Base
	Reason            string `json:"reason"`
	PendingToolName   string `json:"pendingToolName,omitempty"`
	PendingToolCallID string `json:"pendingToolCallId,omitempty"`
}

func (*RunPaused) ChunkType() Type { return TypeRunPaused }

// What a suspended run waits for.
const (
	SuspendedInterrupted = "interrupted" // nothing: somebody resumes it, or says something else
	SuspendedApproval    = "awaiting_approval"
	SuspendedClientTool  = "awaiting_client_tool"
	SuspendedChildren    = "awaiting_children"
)

// RunSuspended closes a run that will go on later. Pausing is a commit: what the
// step's data parts hold is in Data.
type RunSuspended struct {
	Base
	Kind         string          `json:"kind"` // interrupted, awaiting_approval, awaiting_client_tool, awaiting_children
	ToolCallIDs  []string        `json:"toolCallIds,omitempty"`
	Children     []string        `json:"children,omitempty"`
	StepID       string          `json:"stepId,omitempty"`
	CheckpointID string          `json:"checkpointId,omitempty"`
	ExpiresAt    int64           `json:"expiresAt,omitempty"` // when it stops waiting, Unix milliseconds; 0: never
	Data         []Part          `json:"data,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
}

func (*RunSuspended) ChunkType() Type { return TypeRunSuspended }

// RunResumed says that a paused or interrupted run goes on.
type RunResumed struct {
	Base
	FromCheckpointID *string `json:"fromCheckpointId"`
	FromStepCount    int     `json:"fromStepCount"`
	Mode             string  `json:"mode"`
}

func (*RunResumed) ChunkType() Type { return TypeRunResumed }

// Outcome is how a run ended.
type Outcome string

const (
	OutcomeCompleted Outcome = "completed"
	OutcomeStopped   Outcome = "stopped"
	OutcomeSteered   Outcome = "steered"
	OutcomeLimit     Outcome = "limit"
	OutcomeFailed    Outcome = "failed"
)

// RunFinished ends a run. It is always the last record of its run.
type RunFinished struct {
	Base
	Outcome      Outcome         `json:"outcome"`
	FinishReason string          `json:"finishReason"` // stop, length, content-filter, tool-calls, error, other
	Error        string          `json:"error,omitempty"`
	Code         string          `json:"code,omitempty"`
	Recoverable  bool            `json:"recoverable,omitempty"`
	Usage        *Usage          `json:"usage,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"` // goes on the wires' finish frames
}

func (*RunFinished) ChunkType() Type { return TypeRunFinished }

// StreamResync tells readers that what they saw was rewound.
type StreamResync struct {
	Base
	CheckpointID string `json:"checkpointId"`
	StepCount    int    `json:"stepCount"`
	MessageCount int    `json:"messageCount"`
	FromSequence uint64 `json:"fromSequence"`
	Reason       string `json:"reason"` // crash_recovery, model_retry, rollback, branch

	// Of a branch: where it came from, and the command that made it.
	SourceSessionID string `json:"sourceSessionId,omitempty"`
	CommandID       string `json:"commandId,omitempty"`
}

func (*StreamResync) ChunkType() Type { return TypeStreamResync }

// ExecutorSuperseded is a new owner's first record when it found a run open.
type ExecutorSuperseded struct {
	Base
	Reason string `json:"reason,omitempty"` // [LeaseEnded], [OwnerForced] or [ManagerForced]
}

func (*ExecutorSuperseded) ChunkType() Type { return TypeExecutorSuperseded }

// ExecutorHandedOver is the last record of an owner that leaves its run, in good order,
// between two phases. The owner with the next epoch continues the run without an
// executor_superseded.
type ExecutorHandedOver struct {
	Base
	Epoch uint64 `json:"epoch"` // of the owner that leaves
}

func (*ExecutorHandedOver) ChunkType() Type { return TypeExecutorHandedOver }

// ToolApprovalRequest asks a human about a call.
type ToolApprovalRequest struct {
	Base
	ApprovalID string          `json:"approvalId"`
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Input      json.RawMessage `json:"input"`
}

func (*ToolApprovalRequest) ChunkType() Type { return TypeToolApprovalRequest }

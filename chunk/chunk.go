package chunk

import (
	"encoding/json"
	"strings"
)

// Type is a chunk's discriminator, the "type" of its JSON.
type Type string

// Chunk is one typed event of a session. Chunks are pointers to the structs of
// this package; what this version does not know is an [*Unknown], kept byte for
// byte.
type Chunk interface {
	// ChunkType returns the discriminator.
	ChunkType() Type
	// ChunkBase returns the fields that all chunks share, for reading and for
	// the writer that fills them in.
	ChunkBase() *Base
}

// Base holds the fields that every chunk carries.
type Base struct {
	AgentID   string `json:"agentId"`         // session id of the agent that produced it
	AgentType string `json:"agentType"`       // that agent's name
	Timestamp int64  `json:"timestamp"`       // Unix milliseconds
	Step      int    `json:"step"`            // of the run, from 1; 0 outside a step
	RunID     string `json:"runId,omitempty"` // on every chunk that a run writes
}

// ChunkBase returns b itself; embedding Base makes a struct half a [Chunk].
func (b *Base) ChunkBase() *Base { return b }

// The chunk types.
const (
	// What the model says. Trace: assistant_message holds the whole.
	TypeTextDelta          Type = "text_delta"
	TypeThinking           Type = "thinking"
	TypeToolArgStreamStart Type = "tool_arg_stream_start"
	TypeToolArgStreamDelta Type = "tool_arg_stream_delta"
	TypeToolArgStreamEnd   Type = "tool_arg_stream_end"

	// What the agent does.
	TypeToolStart       Type = "tool_start"
	TypeToolEnd         Type = "tool_end"
	TypeToolInputError  Type = "tool_input_error"
	TypeToolOutputError Type = "tool_output_error"
	TypeSubAgentStart   Type = "subagent_start"
	TypeSubAgentEnd     Type = "subagent_end"
	TypeCustom          Type = "custom"
	TypeProgress        Type = "progress"
	TypeStatePatch      Type = "state_patch"
	TypeCitation        Type = "citation"
	TypeFile            Type = "file"
	TypeUsage           Type = "usage"
	TypeError           Type = "error"
	TypeOutput          Type = "output"

	// The life of a run.
	TypeRunStarted          Type = "run_started"
	TypeStepStarted         Type = "step_started"
	TypeAnswerStarted       Type = "answer_started"
	TypeAssistantMessage    Type = "assistant_message"
	TypeStepCommitted       Type = "step_committed"
	TypeStepDiscarded       Type = "step_discarded"
	TypeCheckpointCreated   Type = "checkpoint_created"
	TypeRunInterrupted      Type = "run_interrupted"
	TypeRunPaused           Type = "run_paused"
	TypeRunSuspended        Type = "run_suspended"
	TypeRunResumed          Type = "run_resumed"
	TypeRunFinished         Type = "run_finished"
	TypeStreamResync        Type = "stream_resync"
	TypeExecutorSuperseded  Type = "executor_superseded"
	TypeToolApprovalRequest Type = "tool_approval_request"

	// Commands: anyone authorised may append them, without a lease.
	TypeUserMessage          Type = "user_message"
	TypeStopRequested        Type = "stop_requested"
	TypeInterruptRequested   Type = "interrupt_requested"
	TypeResumeRequested      Type = "resume_requested"
	TypeToolApprovalResponse Type = "tool_approval_response"
	TypeToolResultSubmitted  Type = "tool_result_submitted"
	TypeHistoryRewound       Type = "history_rewound"
	TypeHistoryReplaced      Type = "history_replaced"
)

// TypeTraceOmitted is the type of the records that stand in a branch for those
// of the source's trace that opened a part: they keep its parts in order, and
// say nothing.
const TypeTraceOmitted Type = "trace_omitted"

// TextDelta is a piece of answer text; concatenated, the pieces are the text.
type TextDelta struct {
	Base
	Delta  string `json:"delta"`
	PartID string `json:"partId,omitempty"` // separates adjacent text blocks
}

// Thinking is a piece of reasoning. The chunk with IsComplete set ends the block
// and may carry its whole text: see [CompleteThinking].
type Thinking struct {
	Base
	Content          string          `json:"content"`
	IsComplete       bool            `json:"isComplete"`
	PartID           string          `json:"partId,omitempty"`
	ProviderMetadata json.RawMessage `json:"providerMetadata,omitempty"` // signatures and the like, on the last
}

// CompleteThinking returns what a thinking chunk with IsComplete adds to the
// text that was streamed before it. Producers close a block with its whole text,
// with nothing, or with a last delta.
func CompleteThinking(streamed, content string) string {
	if rest, ok := strings.CutPrefix(content, streamed); ok {
		return rest
	}
	return content
}

// ToolArgStreamStart says that the model began to write a tool call.
type ToolArgStreamStart struct {
	Base
	ToolCallID       string `json:"toolCallId"`
	ToolName         string `json:"toolName"`
	ProviderExecuted bool   `json:"providerExecuted,omitempty"`
}

// ToolArgStreamDelta is a piece of a call's argument text.
type ToolArgStreamDelta struct {
	Base
	ToolCallID string `json:"toolCallId"`
	Delta      string `json:"delta"`
}

// ToolArgStreamEnd says that a call's arguments are complete. Arguments is
// absent when they are the concatenated deltas.
type ToolArgStreamEnd struct {
	Base
	ToolCallID       string          `json:"toolCallId"`
	ToolName         string          `json:"toolName,omitempty"`
	Arguments        json.RawMessage `json:"arguments,omitempty"`
	ProviderMetadata json.RawMessage `json:"providerMetadata,omitempty"` // what must go back to the provider with the call
}

// ToolStart is a dispatch, stored before the tool runs.
type ToolStart struct {
	Base
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Arguments  json.RawMessage `json:"arguments"`
	EffectID   string          `json:"effectId,omitempty"` // what the tool may use to do its work once
	Client     bool            `json:"client,omitempty"`   // the client executes it: whoever has the result submits it
}

// ToolEnd is a call's outcome. On reading, an absent success means that error
// is absent.
type ToolEnd struct {
	Base
	ToolCallID  string          `json:"toolCallId"`
	ToolName    string          `json:"toolName"`
	Result      json.RawMessage `json:"result"`
	Success     bool            `json:"success"`
	Error       string          `json:"error,omitempty"`
	Preliminary bool            `json:"preliminary,omitempty"` // a later tool_end replaces it
	Fatal       bool            `json:"fatal,omitempty"`       // the failure ends the run
}

// ToolInputError is the outcome of a call whose arguments the tool's schema (or
// JSON itself) refuses; the tool never ran.
type ToolInputError struct {
	Base
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Input      json.RawMessage `json:"input,omitempty"`
	Error      string          `json:"error"`
}

// ToolOutputError is a failed outcome reported as a chunk of its own, by
// producers that do not use a failed tool_end.
type ToolOutputError struct {
	Base
	ToolCallID string `json:"toolCallId"`
	ToolName   string `json:"toolName,omitempty"`
	Error      string `json:"error"`
}

// SubAgentStart says that a child agent began; the base is the parent's.
type SubAgentStart struct {
	Base
	SubAgentType string `json:"subAgentType"`
	SubSessionID string `json:"subSessionId"`
	CallID       string `json:"callId"`
	// Mode is "" of a sub-agent, which ends with its call, and blocking or
	// background of a child that outlives it.
	Mode string `json:"mode,omitempty"`
}

// SubAgentEnd says that a child agent ended.
type SubAgentEnd struct {
	Base
	SubAgentType string          `json:"subAgentType"`
	SubSessionID string          `json:"subSessionId"`
	CallID       string          `json:"callId"`
	Result       json.RawMessage `json:"result,omitempty"`
	Error        string          `json:"error,omitempty"`
}

// Custom is an event of the application. One with an ID replaces the data of
// the earlier ones with the same name and id; a transient one is shown and
// forgotten. Both are trace; any other is kept.
type Custom struct {
	Base
	EventName string          `json:"eventName"`
	Data      json.RawMessage `json:"data"`
	ID        string          `json:"id,omitempty"`
	Transient bool            `json:"transient,omitempty"`
	// ToolCallID is the call that emitted it, so that a call which is made again
	// after a crash does not say the same thing twice.
	ToolCallID string `json:"toolCallId,omitempty"`
}

// Progress is a step of work to show while it lasts. Entries with the same ID
// replace each other; Parent makes a tree.
type Progress struct {
	Base
	ID      string          `json:"id"`
	Parent  string          `json:"parent,omitempty"`
	Label   string          `json:"label,omitempty"`
	State   string          `json:"state,omitempty"` // pending, running, done, failed
	Percent *float64        `json:"percent,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// StatePatch changes the session's custom state by RFC 6902.
type StatePatch struct {
	Base
	Patches    []PatchOperation `json:"patches"`
	ToolCallID string           `json:"toolCallId,omitempty"` // the call that made it; discarded if the call is
}

// PatchOperation is one operation of RFC 6902.
type PatchOperation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Citation is a source of the answer.
type Citation struct {
	Base
	SourceID  string `json:"sourceId"`
	URL       string `json:"url,omitempty"`
	Title     string `json:"title,omitempty"`
	MediaType string `json:"mediaType,omitempty"` // set for documents
	Filename  string `json:"filename,omitempty"`
	CitedText string `json:"citedText,omitempty"`
}

// File is a file that belongs to the answer; URL may be a data URL.
type File struct {
	Base
	URL       string          `json:"url"`
	MediaType string          `json:"mediaType"`
	Filename  string          `json:"filename,omitempty"`
	Large     json.RawMessage `json:"large,omitempty"` // where the URL is, if it was too large: see [Part.Whole]
}

// UsageReport is what the run's model calls have used so far.
type UsageReport struct {
	Base
	Usage Usage `json:"usage"`
}

// Usage counts tokens.
type Usage struct {
	InputTokens       int64 `json:"inputTokens"`
	OutputTokens      int64 `json:"outputTokens"`
	ReasoningTokens   int64 `json:"reasoningTokens,omitempty"`
	CachedInputTokens int64 `json:"cachedInputTokens,omitempty"`
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens:       u.InputTokens + v.InputTokens,
		OutputTokens:      u.OutputTokens + v.OutputTokens,
		ReasoningTokens:   u.ReasoningTokens + v.ReasoningTokens,
		CachedInputTokens: u.CachedInputTokens + v.CachedInputTokens,
	}
}

// ErrorChunk reports an error. It ends nothing: run_finished does.
type ErrorChunk struct {
	Base
	Error       string `json:"error"`
	Code        string `json:"code,omitempty"`
	Recoverable bool   `json:"recoverable"` // trying again may help
}

// Output is the run's structured output, validated against the agent's schema.
type Output struct {
	Base
	Output json.RawMessage `json:"output"`
}

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

// StepStarted opens a step's model phase.
type StepStarted struct {
	Base
	StepID string `json:"stepId"`
}

// AnswerStarted says that the provider works on the open step's answer and keeps
// it: whoever owns the run can take it up again, should its process die. What of
// the answer is in the log are the chunks that follow. It is trace.
type AnswerStarted struct {
	Base
	StepID string `json:"stepId"`
	Cursor string `json:"cursor"` // the model's own, of the answer's beginning
}

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

// StepDiscarded drops a model phase.
type StepDiscarded struct {
	Base
	StepID string `json:"stepId"`
	Reason string `json:"reason"`
}

// CheckpointCreated names the fold at this sequence.
type CheckpointCreated struct {
	Base
	CheckpointID string `json:"checkpointId"`
	StepCount    int    `json:"stepCount"`
}

// RunInterrupted says that an interrupt took effect.
type RunInterrupted struct {
	Base
	CheckpointID *string `json:"checkpointId"`
	Reason       string  `json:"reason,omitempty"`
}

// RunPaused says that a run waits for a human.
type RunPaused struct {
	Base
	Reason            string `json:"reason"`
	PendingToolName   string `json:"pendingToolName,omitempty"`
	PendingToolCallID string `json:"pendingToolCallId,omitempty"`
}

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

// RunResumed says that a paused or interrupted run goes on.
type RunResumed struct {
	Base
	FromCheckpointID *string `json:"fromCheckpointId"`
	FromStepCount    int     `json:"fromStepCount"`
	Mode             string  `json:"mode"`
}

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

// ExecutorSuperseded is a new owner's first record when it found a run open.
type ExecutorSuperseded struct {
	Base
	Reason string `json:"reason,omitempty"`
}

// ToolApprovalRequest asks a human about a call.
type ToolApprovalRequest struct {
	Base
	ApprovalID string          `json:"approvalId"`
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Input      json.RawMessage `json:"input"`
}

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

// StopRequested is a command: cancel the run and keep the partial answer.
type StopRequested struct {
	Base
	CommandID string `json:"commandId"`
	Target    string `json:"target,omitempty"` // the run meant; "" for whichever is active
	Reason    string `json:"reason,omitempty"`
}

// InterruptRequested is a command: let the run come to its next step boundary,
// and pause there.
type InterruptRequested struct {
	Base
	CommandID string `json:"commandId"`
	Target    string `json:"target,omitempty"` // the run meant; "" for whichever is active
	Reason    string `json:"reason,omitempty"`
}

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

// ToolApprovalResponse is a command: a decision on an approval request.
type ToolApprovalResponse struct {
	Base
	CommandID  string `json:"commandId"`
	ApprovalID string `json:"approvalId"`
	Approved   bool   `json:"approved"`
	Reason     string `json:"reason,omitempty"`
}

// ToolResultSubmitted is a command: the outcome of a client-executed call.
type ToolResultSubmitted struct {
	Base
	CommandID  string          `json:"commandId"`
	ToolCallID string          `json:"toolCallId"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
}

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

// Unknown is a chunk of a type that this version does not know, or of a known
// type from a later version, kept as it came.
type Unknown struct {
	Base
	Type Type
	Raw  json.RawMessage
}

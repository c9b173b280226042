// Package chunk is the vocabulary of a session's log: the kinds of chunks, the
// messages and parts that they make, their JSON in both directions, what makes a
// chunk valid, JSON patches, ids and error codes.
//
// A kind of chunk is a struct with its type (chunk_content.go, chunk_run.go,
// chunk_command.go), a line in the table of kinds.go, and if its fields need
// checks, a method in validate_chunk.go. Everything else looks into the table.
package chunk

import "encoding/json"

// Type is a chunk's discriminator, the "type" of its JSON.
type Type string

// Chunk is one typed event of a session. Chunks are pointers to the structs of this
// package. A chunk that this version does not know is an [*Unknown], which keeps it
// byte for byte.
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

// ChunkBase returns b itself. It gives structs that embed Base this method of [Chunk].
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
	TypeExecutorHandedOver  Type = "executor_handed_over"
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

// TypeTraceOmitted is the type of what stands for trace that is not there. A reader that
// begins at the start of a log whose trace was trimmed is given one, first of all: its
// throughSequence is the last sequence up to which only kept records follow. It is not
// stored. Branches store records of this type, without throughSequence, in the place of
// trace records that opened a part, so that the parts keep their order; such a reader
// does not see them.
const TypeTraceOmitted Type = "trace_omitted"

// Unknown is a chunk of a type that this version does not know, or of a known
// type from a later version, kept as it came.
type Unknown struct {
	Base
	Type Type
	Raw  json.RawMessage
}

// ChunkType returns the type as it came.
func (u *Unknown) ChunkType() Type { return u.Type }

// As returns the chunk as the type asked for:
//
//	if text, ok := As[*TextDelta](c); ok {
func As[T Chunk](c Chunk) (T, bool) {
	t, ok := c.(T)
	return t, ok
}

// Is reports whether the chunk is of one of the types.
func Is(c Chunk, types ...Type) bool {
	if c == nil {
		return false
	}
	for _, t := range types {
		if c.ChunkType() == t {
			return true
		}
	}
	return false
}

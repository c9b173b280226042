package chunk

import (
	"maps"
	"slices"
)

// The type of each chunk, and the chunk of each type.

func (*TextDelta) ChunkType() Type            { return TypeTextDelta }
func (*Thinking) ChunkType() Type             { return TypeThinking }
func (*ToolArgStreamStart) ChunkType() Type   { return TypeToolArgStreamStart }
func (*ToolArgStreamDelta) ChunkType() Type   { return TypeToolArgStreamDelta }
func (*ToolArgStreamEnd) ChunkType() Type     { return TypeToolArgStreamEnd }
func (*ToolStart) ChunkType() Type            { return TypeToolStart }
func (*ToolEnd) ChunkType() Type              { return TypeToolEnd }
func (*ToolInputError) ChunkType() Type       { return TypeToolInputError }
func (*ToolOutputError) ChunkType() Type      { return TypeToolOutputError }
func (*SubAgentStart) ChunkType() Type        { return TypeSubAgentStart }
func (*SubAgentEnd) ChunkType() Type          { return TypeSubAgentEnd }
func (*Custom) ChunkType() Type               { return TypeCustom }
func (*Progress) ChunkType() Type             { return TypeProgress }
func (*StatePatch) ChunkType() Type           { return TypeStatePatch }
func (*Citation) ChunkType() Type             { return TypeCitation }
func (*File) ChunkType() Type                 { return TypeFile }
func (*UsageReport) ChunkType() Type          { return TypeUsage }
func (*ErrorChunk) ChunkType() Type           { return TypeError }
func (*Output) ChunkType() Type               { return TypeOutput }
func (*RunStarted) ChunkType() Type           { return TypeRunStarted }
func (*StepStarted) ChunkType() Type          { return TypeStepStarted }
func (*AnswerStarted) ChunkType() Type        { return TypeAnswerStarted }
func (*AssistantMessage) ChunkType() Type     { return TypeAssistantMessage }
func (*StepCommitted) ChunkType() Type        { return TypeStepCommitted }
func (*StepDiscarded) ChunkType() Type        { return TypeStepDiscarded }
func (*CheckpointCreated) ChunkType() Type    { return TypeCheckpointCreated }
func (*RunInterrupted) ChunkType() Type       { return TypeRunInterrupted }
func (*RunPaused) ChunkType() Type            { return TypeRunPaused }
func (*RunSuspended) ChunkType() Type         { return TypeRunSuspended }
func (*RunResumed) ChunkType() Type           { return TypeRunResumed }
func (*RunFinished) ChunkType() Type          { return TypeRunFinished }
func (*StreamResync) ChunkType() Type         { return TypeStreamResync }
func (*ExecutorSuperseded) ChunkType() Type   { return TypeExecutorSuperseded }
func (*ToolApprovalRequest) ChunkType() Type  { return TypeToolApprovalRequest }
func (*UserMessage) ChunkType() Type          { return TypeUserMessage }
func (*StopRequested) ChunkType() Type        { return TypeStopRequested }
func (*InterruptRequested) ChunkType() Type   { return TypeInterruptRequested }
func (*ResumeRequested) ChunkType() Type      { return TypeResumeRequested }
func (*ToolApprovalResponse) ChunkType() Type { return TypeToolApprovalResponse }
func (*ToolResultSubmitted) ChunkType() Type  { return TypeToolResultSubmitted }
func (*HistoryRewound) ChunkType() Type       { return TypeHistoryRewound }
func (*HistoryReplaced) ChunkType() Type      { return TypeHistoryReplaced }

// ChunkType returns the type as it came.
func (u *Unknown) ChunkType() Type { return u.Type }

var newChunk = map[Type]func() Chunk{
	TypeTextDelta:            func() Chunk { return new(TextDelta) },
	TypeThinking:             func() Chunk { return new(Thinking) },
	TypeToolArgStreamStart:   func() Chunk { return new(ToolArgStreamStart) },
	TypeToolArgStreamDelta:   func() Chunk { return new(ToolArgStreamDelta) },
	TypeToolArgStreamEnd:     func() Chunk { return new(ToolArgStreamEnd) },
	TypeToolStart:            func() Chunk { return new(ToolStart) },
	TypeToolEnd:              func() Chunk { return new(ToolEnd) },
	TypeToolInputError:       func() Chunk { return new(ToolInputError) },
	TypeToolOutputError:      func() Chunk { return new(ToolOutputError) },
	TypeSubAgentStart:        func() Chunk { return new(SubAgentStart) },
	TypeSubAgentEnd:          func() Chunk { return new(SubAgentEnd) },
	TypeCustom:               func() Chunk { return new(Custom) },
	TypeProgress:             func() Chunk { return new(Progress) },
	TypeStatePatch:           func() Chunk { return new(StatePatch) },
	TypeCitation:             func() Chunk { return new(Citation) },
	TypeFile:                 func() Chunk { return new(File) },
	TypeUsage:                func() Chunk { return new(UsageReport) },
	TypeError:                func() Chunk { return new(ErrorChunk) },
	TypeOutput:               func() Chunk { return new(Output) },
	TypeRunStarted:           func() Chunk { return new(RunStarted) },
	TypeStepStarted:          func() Chunk { return new(StepStarted) },
	TypeAnswerStarted:        func() Chunk { return new(AnswerStarted) },
	TypeAssistantMessage:     func() Chunk { return new(AssistantMessage) },
	TypeStepCommitted:        func() Chunk { return new(StepCommitted) },
	TypeStepDiscarded:        func() Chunk { return new(StepDiscarded) },
	TypeCheckpointCreated:    func() Chunk { return new(CheckpointCreated) },
	TypeRunInterrupted:       func() Chunk { return new(RunInterrupted) },
	TypeRunPaused:            func() Chunk { return new(RunPaused) },
	TypeRunSuspended:         func() Chunk { return new(RunSuspended) },
	TypeRunResumed:           func() Chunk { return new(RunResumed) },
	TypeRunFinished:          func() Chunk { return new(RunFinished) },
	TypeStreamResync:         func() Chunk { return new(StreamResync) },
	TypeExecutorSuperseded:   func() Chunk { return new(ExecutorSuperseded) },
	TypeToolApprovalRequest:  func() Chunk { return new(ToolApprovalRequest) },
	TypeUserMessage:          func() Chunk { return new(UserMessage) },
	TypeStopRequested:        func() Chunk { return new(StopRequested) },
	TypeInterruptRequested:   func() Chunk { return new(InterruptRequested) },
	TypeResumeRequested:      func() Chunk { return new(ResumeRequested) },
	TypeToolApprovalResponse: func() Chunk { return new(ToolApprovalResponse) },
	TypeToolResultSubmitted:  func() Chunk { return new(ToolResultSubmitted) },
	TypeHistoryRewound:       func() Chunk { return new(HistoryRewound) },
	TypeHistoryReplaced:      func() Chunk { return new(HistoryReplaced) },
}

// Types returns every chunk type that this version knows, sorted.
func Types() []Type {
	return slices.Sorted(maps.Keys(newChunk))
}

// ClassOf returns the class under which a chunk is stored. A chunk is trace only
// if the kept records rebuild every wire's message without it.
func ClassOf(c Chunk) Class {
	switch c := c.(type) {
	case *TextDelta, *Thinking, *ToolArgStreamStart, *ToolArgStreamDelta, *ToolArgStreamEnd, *Progress, *AnswerStarted:
		return Trace
	case *Custom:
		if c.Transient || c.ID != "" {
			return Trace
		}
	}
	return Kept
}

// IsCommand reports whether chunks of this type are commands: appended without a
// lease, by anyone authorised, and making their session due.
func IsCommand(t Type) bool {
	switch t {
	case TypeUserMessage, TypeStopRequested, TypeToolApprovalResponse, TypeToolResultSubmitted,
		TypeHistoryRewound, TypeHistoryReplaced, TypeInterruptRequested, TypeResumeRequested:
		return true
	}
	return false
}

// CommandID returns the command id of a chunk, or "" if it has none.
func CommandID(c Chunk) string {
	switch c := c.(type) {
	case *UserMessage:
		return c.CommandID
	case *StopRequested:
		return c.CommandID
	case *ToolApprovalResponse:
		return c.CommandID
	case *ToolResultSubmitted:
		return c.CommandID
	case *HistoryRewound:
		return c.CommandID
	case *HistoryReplaced:
		return c.CommandID
	case *InterruptRequested:
		return c.CommandID
	case *ResumeRequested:
		return c.CommandID
	}
	return ""
}

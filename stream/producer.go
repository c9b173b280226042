package stream

import (
	"errors"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// The errors of external producers.
var (
	// ErrProducerGap: chunks before these are missing (HTTP 409).
	ErrProducerGap = &chunk.Error{Code: "producer_gap", Message: "chunks before these are missing", Hint: "repeat the append from the number that the error names"}
	// ErrProducerFenced: the claim is over (HTTP 403).
	ErrProducerFenced = &chunk.Error{Code: "producer_fenced", Message: "this claim is over: the run ended, or another owner has the session", Hint: "claim again to begin a new run"}
	// ErrProducerStopped: a stop command ended the run (HTTP 409).
	ErrProducerStopped = &chunk.Error{Code: "producer_stopped", Message: "the run was stopped", Hint: "claim again to begin a new run"}
	// ErrProducerKind: a chunk that producers must not write (HTTP 422).
	ErrProducerKind = &chunk.Error{Code: "chunk_not_allowed", Message: "producers must not write this chunk", Hint: "the server writes run lifecycle chunks; send commands to their own routes"}
)

// The chunks that end a producer's run, beside the vocabulary of the log:
// {"type":"end","finishReason":…}, {"type":"fail","error":…,"code":…} and
// {"type":"pause"}. Each is the last of its append.
const (
	TypeEnd   chunk.Type = "end"
	TypeFail  chunk.Type = "fail"
	TypePause chunk.Type = "pause"
)

// kind says which place a producer's chunk has in its step.
type kind int

const (
	other    kind = iota
	words         // of the model phase
	acts          // of the tool phase
	either        // of both
	boundary      // between steps
	ends          // the run
)

func kindOf(t chunk.Type) kind {
	switch t {
	case chunk.TypeTextDelta, chunk.TypeThinking, chunk.TypeToolArgStreamStart, chunk.TypeToolArgStreamDelta,
		chunk.TypeToolArgStreamEnd, chunk.TypeCitation, chunk.TypeFile:
		return words
	case chunk.TypeToolStart, chunk.TypeToolEnd, chunk.TypeToolInputError, chunk.TypeToolOutputError,
		chunk.TypeToolApprovalRequest, chunk.TypeSubAgentStart:
		return acts
	case chunk.TypeCustom, chunk.TypeProgress, chunk.TypeStatePatch, chunk.TypeUsage, chunk.TypeError, chunk.TypeOutput:
		return either
	case chunk.TypeCheckpointCreated:
		return boundary
	case TypeEnd, TypeFail, TypePause:
		return ends
	}
	return other
}

// ownTypes are the types of the chunks that runs write by themselves.
var ownTypes = []chunk.Type{chunk.TypeRunStarted, chunk.TypeRunFinished, chunk.TypeRunSuspended, chunk.TypeAssistantMessage,
	chunk.TypeStepStarted, chunk.TypeStepCommitted, chunk.TypeStepDiscarded, chunk.TypeAnswerStarted, chunk.TypeExecutorHandedOver}

// reserved reports whether not even a program with a [Writer] may write chunks of a
// type: those that runs write by themselves, and commands, which are appended without
// a lease.
func reserved(t chunk.Type) bool { return slices.Contains(ownTypes, t) || chunk.IsCommand(t) }

// allowed reports whether a producer outside may write chunks of a type. Approvals and
// child agents need more than chunks.
func allowed(t chunk.Type) bool {
	k := kindOf(t)
	return k != other && k != boundary && t != chunk.TypeToolApprovalRequest && t != chunk.TypeSubAgentStart
}

// maxDelta keeps a chunk one record: the log would split a longer one, and chunks
// could no longer be counted.
const maxDelta = 64 << 10

// ParseProducerChunk reads one chunk as a producer sends it, strictly: a missing or
// wrong field would break frames at every client. Errors: [ErrProducerKind],
// [chunk.ErrInvalidChunk].
func ParseProducerChunk(data []byte) (chunk.Chunk, error) {
	c, wrong := chunk.Parse(data)
	if wrong == nil && allowed(c.ChunkType()) {
		if end, ok := c.(*chunk.ToolEnd); ok && !end.Success && end.Error == "" {
			end.Error = "the call failed" // in a chunk without an error it would be a success
		}
		return c, nil
	}
	// A wrong type is reported before other faults.
	c, err := chunk.Decode(data)
	switch {
	case err != nil:
		return nil, err
	case !allowed(c.ChunkType()):
		return nil, ErrProducerKind.Because("a producer must not write " + string(c.ChunkType()))
	case kindOf(c.ChunkType()) == ends:
		return c, nil
	}
	return nil, wrong
}

// check says whether a producer may append a chunk.
func check(c chunk.Chunk, last bool) *chunk.Error {
	t := c.ChunkType()
	k := kindOf(t)
	if !allowed(t) || k == ends && !last {
		return ErrProducerKind.Because("a producer must not write " + string(t) + " here")
	}
	size := 0
	switch c := c.(type) {
	case *chunk.TextDelta:
		size = len(c.Delta)
	case *chunk.Thinking:
		size = len(c.Content)
	case *chunk.ToolArgStreamDelta:
		size = len(c.Delta)
	case *chunk.Unknown:
		if k != ends {
			return chunk.ErrInvalidChunk.Because("a " + string(c.Type) + " must not have these fields")
		}
	}
	if size > maxDelta {
		return chunk.ErrTooLarge.Because("a delta has at most 64 KiB")
	}
	if k != ends {
		if invalid, ok := errors.AsType[*chunk.Error](chunk.Validate(c)); ok {
			return invalid
		}
	}
	return nil
}

package chunk

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"sync"
)

// table lists the kinds of chunks, with all that this package knows of each. A new
// kind is a struct with its type, and a line here. Only the kinds that make up nearly
// all of a log have more: an encoder of their own, and a case in [Append].
var table = []*kind{
	define(TypeTextDelta, spec[TextDelta]{class: Trace, validate: validator.textDelta, quick: quick.textDelta,
		lenient: lenientTextDelta, aliases: map[string]string{"delta": "content"}}),
	define(TypeThinking, spec[Thinking]{class: Trace, validate: validator.thinking, quick: quick.thinking}),
	define(TypeToolArgStreamStart, spec[ToolArgStreamStart]{class: Trace, validate: validator.toolArgStreamStart}),
	define(TypeToolArgStreamDelta, spec[ToolArgStreamDelta]{class: Trace, validate: validator.toolArgStreamDelta,
		quick: quick.toolArgStreamDelta}),
	define(TypeToolArgStreamEnd, spec[ToolArgStreamEnd]{class: Trace, validate: validator.toolArgStreamEnd}),

	define(TypeToolStart, spec[ToolStart]{validate: validator.toolStart}),
	define(TypeToolEnd, spec[ToolEnd]{validate: validator.toolEnd, lenient: lenientToolEnd, optional: []string{"toolName"}}),
	define(TypeToolInputError, spec[ToolInputError]{validate: validator.toolInputError}),
	define(TypeToolOutputError, spec[ToolOutputError]{validate: validator.toolOutputError}),
	define(TypeSubAgentStart, spec[SubAgentStart]{validate: validator.subAgentStart}),
	define(TypeSubAgentEnd, spec[SubAgentEnd]{validate: validator.subAgentEnd}),
	define(TypeCustom, spec[Custom]{classOf: (*Custom).class, validate: validator.custom}),
	define(TypeProgress, spec[Progress]{class: Trace, validate: validator.progress}),
	define(TypeStatePatch, spec[StatePatch]{validate: validator.statePatch}),
	define(TypeCitation, spec[Citation]{validate: validator.citation}),
	define(TypeFile, spec[File]{validate: validator.file}),
	define(TypeUsage, spec[UsageReport]{validate: validator.usageReport}),
	define(TypeError, spec[ErrorChunk]{validate: validator.errorChunk}),
	define(TypeOutput, spec[Output]{validate: validator.output}),

	define(TypeRunStarted, spec[RunStarted]{validate: validator.runStarted}),
	define(TypeStepStarted, spec[StepStarted]{validate: validator.stepStarted}),
	define(TypeAnswerStarted, spec[AnswerStarted]{class: Trace, validate: validator.answerStarted}),
	define(TypeAssistantMessage, spec[AssistantMessage]{validate: validator.assistantMessage}),
	define(TypeStepCommitted, spec[StepCommitted]{validate: validator.stepCommitted}),
	define(TypeStepDiscarded, spec[StepDiscarded]{validate: validator.stepDiscarded}),
	define(TypeCheckpointCreated, spec[CheckpointCreated]{validate: validator.checkpointCreated}),
	define(TypeRunInterrupted, spec[RunInterrupted]{validate: validator.runInterrupted}),
	define(TypeRunPaused, spec[RunPaused]{validate: validator.runPaused}),
	define(TypeRunSuspended, spec[RunSuspended]{validate: validator.runSuspended}),
	define(TypeRunResumed, spec[RunResumed]{validate: validator.runResumed}),
	define(TypeRunFinished, spec[RunFinished]{validate: validator.runFinished}),
	define(TypeStreamResync, spec[StreamResync]{validate: validator.streamResync}),
	define(TypeExecutorSuperseded, spec[ExecutorSuperseded]{}),
	define(TypeExecutorHandedOver, spec[ExecutorHandedOver]{}),
	define(TypeToolApprovalRequest, spec[ToolApprovalRequest]{validate: validator.toolApprovalRequest}),

	define(TypeUserMessage, spec[UserMessage]{commandID: (*UserMessage).commandID, validate: validator.userMessage}),
	define(TypeStopRequested, spec[StopRequested]{commandID: (*StopRequested).commandID, validate: validator.stopRequested}),
	define(TypeInterruptRequested, spec[InterruptRequested]{commandID: (*InterruptRequested).commandID, validate: validator.interruptRequested}),
	define(TypeResumeRequested, spec[ResumeRequested]{commandID: (*ResumeRequested).commandID, validate: validator.resumeRequested}),
	define(TypeToolApprovalResponse, spec[ToolApprovalResponse]{commandID: (*ToolApprovalResponse).commandID, validate: validator.toolApprovalResponse}),
	define(TypeToolResultSubmitted, spec[ToolResultSubmitted]{commandID: (*ToolResultSubmitted).commandID, validate: validator.toolResultSubmitted}),
	define(TypeHistoryRewound, spec[HistoryRewound]{commandID: (*HistoryRewound).commandID, validate: validator.historyRewound}),
	define(TypeHistoryReplaced, spec[HistoryReplaced]{commandID: (*HistoryReplaced).commandID, validate: validator.historyReplaced}),
}

// spec is what a line of the table says of the chunks of one struct. All of it
// may be absent.
type spec[T any] struct {
	class     Class                         // Kept by default
	classOf   func(*T) Class                // instead of class, if it depends on the chunk
	commandID func(*T) string               // makes the chunks commands
	validate  func(validator, *T) validator // checks the fields beside those of Base
	quick     func(quick) *T                // reads what Append has written without reflection; nil if it looks otherwise
	lenient   func([]byte, *T) error        // reads what other versions write
	optional  []string                      // fields that are always written, and that a producer may leave out
	aliases   map[string]string             // names under which required fields may come as well
}

// kind is a line of the table for chunks whose struct is not known.
type kind struct {
	typ       Type
	name      string // of the struct
	new       func() Chunk
	class     func(Chunk) Class
	commandID func(Chunk) string // nil if they are no commands
	validate  func(validator, Chunk) validator
	quick     func(quick) Chunk // nil if the general decoder does it
	unmarshal func([]byte, Chunk) error
	required  func() []string // the fields that a producer must write
	aliases   map[string]string
}

// chunkOf is a pointer to a chunk's struct.
type chunkOf[T any] interface {
	*T
	Chunk
}

// define makes a line of the table.
func define[T any, P chunkOf[T]](t Type, s spec[T]) *kind {
	structure := reflect.TypeFor[T]()
	k := &kind{
		typ:       t,
		name:      structure.Name(),
		new:       func() Chunk { return P(new(T)) },
		class:     func(Chunk) Class { return s.class },
		validate:  func(v validator, _ Chunk) validator { return v },
		unmarshal: func(data []byte, c Chunk) error { return json.Unmarshal(data, c) },
		required:  sync.OnceValue(func() []string { return requiredFields(structure, s.optional) }),
		aliases:   s.aliases,
	}
	if s.classOf != nil {
		k.class = func(c Chunk) Class { return s.classOf(c.(P)) }
	}
	if s.commandID != nil {
		k.commandID = func(c Chunk) string { return s.commandID(c.(P)) }
	}
	if s.validate != nil {
		k.validate = func(v validator, c Chunk) validator { return s.validate(v, c.(P)) }
	}
	if s.lenient != nil {
		k.unmarshal = func(data []byte, c Chunk) error { return s.lenient(data, c.(P)) }
	}
	if s.quick != nil {
		k.quick = func(d quick) Chunk {
			if c := s.quick(d); c != nil {
				return P(c)
			}
			return nil
		}
	}
	return k
}

// The kinds by their types, and by the Go types of their chunks.
var (
	kinds = func() map[Type]*kind {
		byType := make(map[Type]*kind, len(table))
		for _, k := range table {
			byType[k.typ] = k
		}
		return byType
	}()
	kindsByStruct = func() map[reflect.Type]*kind {
		byStruct := make(map[reflect.Type]*kind, len(table))
		for _, k := range table {
			byStruct[reflect.TypeOf(k.new())] = k
		}
		return byStruct
	}()
)

// kindOf returns the kind of a chunk; nil for an [*Unknown], and for chunks of
// other packages, whatever type they say they are.
func kindOf(c Chunk) *kind { return kindsByStruct[reflect.TypeOf(c)] }

// Types returns every chunk type that this version knows, sorted.
func Types() []Type { return slices.Sorted(maps.Keys(kinds)) }

// ClassOf returns the class under which a chunk is stored. A chunk is trace only
// if the kept records rebuild every wire's message without it.
func ClassOf(c Chunk) Class {
	if k := kindOf(c); k != nil {
		return k.class(c)
	}
	return Kept
}

// IsCommand reports whether chunks of this type are commands: appended without a
// lease, by anyone authorised, and making their session due.
func IsCommand(t Type) bool {
	k := kinds[t]
	return k != nil && k.commandID != nil
}

// CommandID returns the command id of a chunk, or "" if it has none.
func CommandID(c Chunk) string {
	if k := kindOf(c); k != nil && k.commandID != nil {
		return k.commandID(c)
	}
	return ""
}

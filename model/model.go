// Package model is the contract between an agent and a language model.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/spool-run/spool/chunk"
)

// Model answers a request with a stream of parts.
//
// The stream is complete if and only if it yields a [Finish] and then ends. A
// stream that ends without one was cut; implementations say so with an [*Error]
// of code [CodeTruncated]. An error ends the stream; what came before it counts.
// Cancelling ctx ends the provider's request.
type Model interface {
	Stream(ctx context.Context, r *Request) iter.Seq2[Part, error]
}

// Resumer is a [Model] whose answers outlive the connection, and the process, that
// asked for them.
type Resumer interface {
	Model
	// Resume yields the parts after a cursor that a [Position] gave, numbered and
	// named as the lost stream would have. A first part [Restart] says that the
	// provider has only the whole answer: it follows. An answer that cannot be had
	// any more is an [*Error] of code [CodeGone].
	Resume(ctx context.Context, cursor string) iter.Seq2[Part, error]
	// CancelAnswer ends the work on an answer at the provider. Cancelling the
	// context of a stream does not. It is harmless when the answer is complete.
	CancelAnswer(ctx context.Context, cursor string) error
}

// Request is one model call.
type Request struct {
	Instructions string          // the system prompt
	Messages     []chunk.Message // the conversation; an assistant message holds its tool calls and their outcomes, step by step
	Tools        []ToolSpec
	Output       json.RawMessage // JSON Schema that the final answer must satisfy; nil for free text
	MaxTokens    int             // 0: the provider's default
	Temperature  *float64

	Session string // for correlation and scripted models
	RunID   string
	Step    int // of the run, from 1
}

// ToolSpec tells the model about a tool.
type ToolSpec struct {
	Name        string
	Description string
	InputSchema json.RawMessage
}

// Part is one piece of a model's stream: a [TextDelta], [ReasoningDelta],
// [ReasoningEnd], [ToolCallStart], [ToolCallDelta], [ToolCallEnd], [ToolResult],
// [Source], [File], [UsageUpdate], [Position], [Restart] or [Finish].
type Part interface{ modelPart() }

// TextDelta is a piece of text. Another ID begins another block.
type TextDelta struct{ ID, Delta string }

// ReasoningDelta is a piece of reasoning. Another ID begins another block.
type ReasoningDelta struct{ ID, Delta string }

// ReasoningEnd closes a reasoning block. Text, if set, is the block's whole
// text; Metadata holds what must be sent back to the provider.
type ReasoningEnd struct {
	ID, Text string
	Metadata json.RawMessage
}

// ToolCallStart begins a call. IDs are the provider's and may repeat between
// steps.
type ToolCallStart struct {
	ID, Name         string
	ProviderExecuted bool
}

// ToolCallDelta is a piece of a call's argument text.
type ToolCallDelta struct{ ID, Delta string }

// ToolCallEnd completes a call. Arguments is its whole argument text, "" for
// none; Metadata holds what must be sent back to the provider with the call.
type ToolCallEnd struct {
	ID, Name, Arguments string
	Metadata            json.RawMessage
}

// ToolResult is the outcome of a call that the provider executed itself.
type ToolResult struct {
	ID     string
	Result json.RawMessage // as the provider wants it back
	Error  string          // not empty if the call failed
}

// Source is something that the answer cites.
type Source struct {
	ID, URL, Title, MediaType, Filename, CitedText string

	Document *int // index of the document among those of the request, if the provider gives it
}

// File is a file that the model made.
type File struct{ URL, MediaType, Filename string }

// UsageUpdate is the usage of this call so far; the last one counts.
type UsageUpdate struct{ Usage chunk.Usage }

// Position says how far the stream has come, in a form that [Resumer.Resume]
// takes. Only models that can resume yield it, and then first of all before the
// answer says anything: an agent keeps that one, and compares what Resume yields
// with what its log holds.
type Position struct{ Cursor string }

// Restart says that the provider began again in mid-stream: the answer so far is
// void, and what follows is the answer.
type Restart struct{}

// Finish says that the answer is complete.
type Finish struct {
	Reason string // stop, length, tool-calls, content-filter, other
	Raw    string // as the provider said it
	Paused bool   // the provider wants to be asked again, with this answer in the history, and will go on
}

func (TextDelta) modelPart()      {}
func (ReasoningDelta) modelPart() {}
func (ReasoningEnd) modelPart()   {}
func (ToolCallStart) modelPart()  {}
func (ToolCallDelta) modelPart()  {}
func (ToolCallEnd) modelPart()    {}
func (ToolResult) modelPart()     {}
func (Source) modelPart()         {}
func (File) modelPart()           {}
func (UsageUpdate) modelPart()    {}
func (Position) modelPart()       {}
func (Restart) modelPart()        {}
func (Finish) modelPart()         {}

// The codes of an [*Error].
const (
	CodeRateLimited    = "provider_rate_limited"
	CodeOverloaded     = "provider_overloaded"
	CodeUnavailable    = "provider_unavailable"
	CodeTimeout        = "provider_timeout"
	CodeTruncated      = "provider_truncated" // the stream ended before the answer did
	CodeInvalidRequest = "provider_invalid_request"
	CodeContextLength  = "provider_context_length" // the conversation is longer than the model takes
	CodeAuthentication = "provider_authentication"
	CodeContentFilter  = "provider_content_filter"
	CodeProtocol       = "provider_protocol"    // the answer breaks the protocol
	CodeGone           = "provider_answer_gone" // of a [Resumer]: the provider does not have the answer
	CodeUnknown        = "provider_error"
)

// Error is a failed model call. What a client of the log sees of it is its code,
// its message and whether it is retryable.
type Error struct {
	Code       string
	Message    string // for people; never holds a secret
	Retryable  bool
	StatusCode int           // HTTP, 0 if none
	RetryAfter time.Duration // 0 if the provider did not say
	Finish     string        // the finish reason that came before the error, as the provider said it
	Err        error         // the cause, for operators; may be nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("model: %s (%s)", e.Message, e.Code)
	if e.StatusCode != 0 {
		text = fmt.Sprintf("model: %s (%s, HTTP %d)", e.Message, e.Code, e.StatusCode)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

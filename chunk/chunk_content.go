package chunk

import (
	"encoding/json"
	"strings"
)

// TextDelta is a piece of answer text; concatenated, the pieces are the text.
type TextDelta struct {
	Base
	Delta  string `json:"delta"`
	PartID string `json:"partId,omitempty"` // separates adjacent text blocks
}

func (*TextDelta) ChunkType() Type { return TypeTextDelta }

// Thinking is a piece of reasoning. The chunk with IsComplete set ends the block
// and may carry its whole text: see [CompleteThinking].
type Thinking struct {
	Base
	Content          string          `json:"content"`
	IsComplete       bool            `json:"isComplete"`
	PartID           string          `json:"partId,omitempty"`
	ProviderMetadata json.RawMessage `json:"providerMetadata,omitempty"` // signatures and the like, on the last
}

func (*Thinking) ChunkType() Type { return TypeThinking }

// CompleteThinking returns what a thinking chunk with IsComplete adds to the
// text that was streamed before it. Producers close a block with its whole text,
// with nothing, or with a last delta.
func CompleteThinking(streamed, content string) string {
	if added, ok := strings.CutPrefix(content, streamed); ok {
		return added
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

func (*ToolArgStreamStart) ChunkType() Type { return TypeToolArgStreamStart }

// ToolArgStreamDelta is a piece of a call's argument text.
type ToolArgStreamDelta struct {
	Base
	ToolCallID string `json:"toolCallId"`
	Delta      string `json:"delta"`
}

func (*ToolArgStreamDelta) ChunkType() Type { return TypeToolArgStreamDelta }

// ToolArgStreamEnd says that a call's arguments are complete. Arguments is
// absent when they are the concatenated deltas.
type ToolArgStreamEnd struct {
	Base
	ToolCallID       string          `json:"toolCallId"`
	ToolName         string          `json:"toolName,omitempty"`
	Arguments        json.RawMessage `json:"arguments,omitempty"`
	ProviderMetadata json.RawMessage `json:"providerMetadata,omitempty"` // what must go back to the provider with the call
}

func (*ToolArgStreamEnd) ChunkType() Type { return TypeToolArgStreamEnd }

// ToolStart is a dispatch, stored before the tool runs.
type ToolStart struct {
	Base
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Arguments  json.RawMessage `json:"arguments"`
	EffectID   string          `json:"effectId,omitempty"` // what the tool may use to do its work once
	Client     bool            `json:"client,omitempty"`   // the client executes it and submits the result
}

func (*ToolStart) ChunkType() Type { return TypeToolStart }

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

func (*ToolEnd) ChunkType() Type { return TypeToolEnd }

// ToolInputError is the outcome of a call whose arguments the tool's schema (or
// JSON itself) refuses; the tool never ran.
type ToolInputError struct {
	Base
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Input      json.RawMessage `json:"input,omitempty"`
	Error      string          `json:"error"`
}

func (*ToolInputError) ChunkType() Type { return TypeToolInputError }

// ToolOutputError is a failed outcome reported as a chunk of its own, by
// producers that do not use a failed tool_end.
type ToolOutputError struct {
	Base
	ToolCallID string `json:"toolCallId"`
	ToolName   string `json:"toolName,omitempty"`
	Error      string `json:"error"`
}

func (*ToolOutputError) ChunkType() Type { return TypeToolOutputError }

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

func (*SubAgentStart) ChunkType() Type { return TypeSubAgentStart }

// SubAgentEnd says that a child agent ended.
type SubAgentEnd struct {
	Base
	SubAgentType string          `json:"subAgentType"`
	SubSessionID string          `json:"subSessionId"`
	CallID       string          `json:"callId"`
	Result       json.RawMessage `json:"result,omitempty"`
	Error        string          `json:"error,omitempty"`
}

func (*SubAgentEnd) ChunkType() Type { return TypeSubAgentEnd }

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

func (*Custom) ChunkType() Type { return TypeCustom }

func (c *Custom) class() Class {
	if c.Transient || c.ID != "" {
		return Trace
	}
	return Kept
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

func (*Progress) ChunkType() Type { return TypeProgress }

// StatePatch changes the session's custom state by RFC 6902.
type StatePatch struct {
	Base
	Patches    []PatchOperation `json:"patches"`
	ToolCallID string           `json:"toolCallId,omitempty"` // the call that made it; discarded if the call is
}

func (*StatePatch) ChunkType() Type { return TypeStatePatch }

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
	// DocumentIndex counts the documents of the request, from 0, if the provider says
	// which of them is cited.
	DocumentIndex *int `json:"documentIndex,omitempty"`
}

func (*Citation) ChunkType() Type { return TypeCitation }

// File is a file that belongs to the answer; URL may be a data URL.
type File struct {
	Base
	URL       string          `json:"url"`
	MediaType string          `json:"mediaType"`
	Filename  string          `json:"filename,omitempty"`
	Large     json.RawMessage `json:"large,omitempty"` // where the URL is, if it was too large: see [Part.Whole]
}

func (*File) ChunkType() Type { return TypeFile }

// UsageReport is what the run's model calls have used so far.
type UsageReport struct {
	Base
	Usage Usage `json:"usage"`
}

func (*UsageReport) ChunkType() Type { return TypeUsage }

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
	// Fatal: the run fails with this error. Its run_finished follows and repeats it, so
	// what shows that one leaves this one out. Producers do not set it.
	Fatal bool `json:"fatal,omitempty"`
}

func (*ErrorChunk) ChunkType() Type { return TypeError }

// Output is the run's structured output, validated against the agent's schema.
type Output struct {
	Base
	Output json.RawMessage `json:"output"`
}

func (*Output) ChunkType() Type { return TypeOutput }

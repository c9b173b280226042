package aisdk

import (
	"encoding/json"

	"github.com/spool-run/spool/chunk"
)

// CoreMessage is a message in a form that belongs to no framework.
type CoreMessage struct {
	ID       string          `json:"id"`
	Role     string          `json:"role"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Parts    []CorePart      `json:"parts"`
}

// CorePart is one part of a CoreMessage. Types are text, reasoning,
// tool-invocation, data, source, file and step.
type CorePart struct {
	Type       string          `json:"type"`
	Text       string          `json:"text,omitempty"`
	ToolCallID string          `json:"toolCallId,omitempty"`
	ToolName   string          `json:"toolName,omitempty"`
	State      string          `json:"state,omitempty"` // pending, executing, completed, error
	Input      json.RawMessage `json:"input,omitempty"`
	Output     json.RawMessage `json:"output,omitempty"`
	Error      string          `json:"error,omitempty"`
	Name       string          `json:"name,omitempty"`
	ID         string          `json:"id,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
	URL        string          `json:"url,omitempty"`
	Title      string          `json:"title,omitempty"`
	MediaType  string          `json:"mediaType,omitempty"`
	Filename   string          `json:"filename,omitempty"`
}

// The states of a tool-invocation part.
const (
	CorePending   = "pending"
	CoreExecuting = "executing"
	CoreCompleted = "completed"
	CoreError     = "error"
)

// ConvertToCoreMessages converts a history to the core format. Of the options
// only GenerateID, OmitReasoning, OmitToolResults and Resolve count.
func ConvertToCoreMessages(messages []chunk.Message, o *ConvertOptions) []CoreMessage {
	return coreFrom(messages, 0, o)
}

func coreFrom(messages []chunk.Message, offset int, o *ConvertOptions) []CoreMessage {
	if o == nil {
		o = &ConvertOptions{}
	}
	out := make([]CoreMessage, len(messages))
	for i := range messages {
		m := &messages[i]
		core := CoreMessage{ID: m.ID, Role: string(m.Role), Metadata: m.Metadata, Parts: []CorePart{}}
		if o.GenerateID != nil {
			core.ID = o.GenerateID(offset+i, m)
		}
		for j := range m.Parts {
			if part, ok := corePart(o.shape().whole(&m.Parts[j]), o); ok {
				core.Parts = append(core.Parts, part)
			}
		}
		out[i] = core
	}
	return out
}

func corePart(p *chunk.Part, o *ConvertOptions) (CorePart, bool) {
	resolve := o.shape().value
	switch p.Type {
	case chunk.PartText, chunk.PartReasoning:
		return CorePart{Type: string(p.Type), Text: p.Text}, p.Type == chunk.PartText || !o.OmitReasoning
	case chunk.PartTool:
		t := p.Tool
		part := CorePart{Type: "tool-invocation", ToolCallID: t.CallID, ToolName: t.Name, State: CorePending}
		if t.State != chunk.ToolStreaming {
			part.Input = resolve(inputOf(t))
		}
		switch {
		case o.OmitToolResults:
		case t.State == chunk.ToolExecuting:
			part.State = CoreExecuting
		case t.State == chunk.ToolCompleted:
			part.State, part.Output = CoreCompleted, resolve(t.Output)
		case t.State == chunk.ToolFailed:
			part.State, part.Error = CoreError, t.Error
		case t.State == chunk.ToolDenied:
			part.State, part.Error = CoreError, "denied"
			if t.Approval != nil && t.Approval.Reason != "" {
				part.Error += ": " + t.Approval.Reason
			}
		}
		return part, true
	case chunk.PartData:
		return CorePart{Type: "data", Name: p.Name, ID: p.ID, Data: resolve(p.Data)}, true
	case chunk.PartSource, chunk.PartFile:
		return CorePart{Type: string(p.Type), ID: p.ID, Text: p.Text, URL: p.URL, Title: p.Title, MediaType: p.MediaType, Filename: p.Filename}, true
	case chunk.PartStep:
		return CorePart{Type: "step", ID: p.ID}, true
	}
	return CorePart{}, false
}

package aisdk

import (
	"encoding/json"
)

// UIMessage is a message in the form that clients keep and send back.
type UIMessage struct {
	ID       string          `json:"id"`
	Role     string          `json:"role"` // system, user or assistant
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Parts    []UIPart        `json:"parts"`
}

// The states of a tool part.
const (
	StateInputStreaming    = "input-streaming"
	StateInputAvailable    = "input-available"
	StateApprovalRequested = "approval-requested"
	StateApprovalResponded = "approval-responded"
	StateOutputAvailable   = "output-available"
	StateOutputError       = "output-error"
	StateOutputDenied      = "output-denied"
)

// UIPart is one part of a UIMessage. Which fields are used depends on Type:
//
//	text                     Text, State (streaming or done), ProviderMetadata
//	reasoning                the same, and ID: that of its block in the stream
//	step-start               none
//	dynamic-tool             ToolName, and those of a tool part
//	tool-{name}              ToolCallID, State, Input, RawInput, Output, ErrorText, …
//	data-{name}              ID, Data
//	source-url               SourceID, URL, Title
//	source-document          SourceID, MediaType, Title, Filename
//	file                     MediaType, URL, Filename
type UIPart struct {
	Type             string          `json:"type"`
	ID               string          `json:"id,omitempty"`
	Text             string          `json:"text,omitempty"`
	State            string          `json:"state,omitempty"`
	ToolName         string          `json:"toolName,omitempty"`
	ToolCallID       string          `json:"toolCallId,omitempty"`
	Input            json.RawMessage `json:"input,omitempty"`
	RawInput         json.RawMessage `json:"rawInput,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	ErrorText        string          `json:"errorText,omitempty"`
	Preliminary      bool            `json:"preliminary,omitempty"`
	ProviderExecuted bool            `json:"providerExecuted,omitempty"`
	Approval         *UIApproval     `json:"approval,omitempty"`
	Data             json.RawMessage `json:"data,omitempty"`
	SourceID         string          `json:"sourceId,omitempty"`
	URL              string          `json:"url,omitempty"`
	MediaType        string          `json:"mediaType,omitempty"`
	Title            string          `json:"title,omitempty"`
	Filename         string          `json:"filename,omitempty"`
	ProviderMetadata json.RawMessage `json:"providerMetadata,omitempty"`
}

// UIApproval is the approval of a tool part.
type UIApproval struct {
	ID       string `json:"id"`
	Approved *bool  `json:"approved,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// IsTool reports whether the part is a tool call, of either naming.
func (p *UIPart) IsTool() bool {
	return p.Type == "dynamic-tool" || len(p.Type) > 5 && p.Type[:5] == "tool-"
}

// Tool returns the name of the part's tool.
func (p *UIPart) Tool() string {
	if p.Type == "dynamic-tool" || !p.IsTool() {
		return p.ToolName
	}
	return p.Type[5:]
}

// MarshalJSON writes the members that the part's type requires even where they
// are empty: clients read part.text and part.data without asking.
func (p UIPart) MarshalJSON() ([]byte, error) {
	type plain UIPart
	extra := struct {
		plain
		Text      *string          `json:"text,omitempty"`
		Data      *json.RawMessage `json:"data,omitempty"`
		Output    *json.RawMessage `json:"output,omitempty"`
		Input     *json.RawMessage `json:"input,omitempty"`
		ErrorText *string          `json:"errorText,omitempty"`
	}{plain: plain(p)}
	switch {
	case p.Type == "text" || p.Type == "reasoning":
		extra.Text = &p.Text
	case len(p.Type) > 5 && p.Type[:5] == "data-":
		extra.Data = &p.Data
	case p.IsTool():
		if p.Input != nil {
			extra.Input = &p.Input
		}
		switch p.State {
		case StateOutputAvailable:
			extra.Output = &p.Output
		case StateOutputError:
			extra.ErrorText = &p.ErrorText
		}
	}
	return json.Marshal(extra)
}

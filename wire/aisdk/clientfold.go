package aisdk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Client folds the stream as the npm clients do, and as strictly as the
// strictest of them: an unknown type or field, a delta without its start, an
// outcome for an unknown call is an error. It is for tests, and for Go programs
// that read this wire. One that begins with a Message from a snapshot, and with Started,
// continues that message.
type Client struct {
	// UI7 accepts what ai 7 clients do.
	UI7 bool

	Message      UIMessage
	Started      bool     // a start was seen
	FinishReason string   // of the latest finish
	Aborted      bool     // an abort was seen
	Errors       []string // texts of the error events
	Done         bool     // [DONE] was seen
	Transient    []UIPart // transient data, in order

	open    map[string]int // open text and reasoning parts, by "kind id"
	partial map[string]string
	events  int
}

// Write folds bytes of the stream: whole events.
func (c *Client) Write(data []byte) error {
	if bytes.IndexByte(data, '\r') >= 0 {
		return fmt.Errorf("aisdk: a carriage return in %q", data)
	}
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n\n")) {
		return fmt.Errorf("aisdk: an unfinished event in %q", data)
	}
	for event := range strings.SplitSeq(string(data), "\n\n") {
		var payload []string
		for line := range strings.SplitSeq(event, "\n") {
			switch {
			case line == "" || line[0] == ':' || strings.HasPrefix(line, "id: ") || strings.HasPrefix(line, "retry: "):
			case strings.HasPrefix(line, "data: "):
				payload = append(payload, line[len("data: "):])
			default:
				return fmt.Errorf("aisdk: a line that clients may not take: %q", line)
			}
		}
		if payload == nil {
			continue
		}
		if err := c.event(strings.Join(payload, "\n")); err != nil {
			return fmt.Errorf("aisdk: event %d %s: %w", c.events, payload, err)
		}
		c.events++
	}
	return nil
}

// fields are the members of each event: a * is required, a ! requires the key
// with any value, null included.
var fields = map[string]string{
	"start":                 "messageId messageMetadata?",
	"finish":                "finishReason messageMetadata?",
	"abort":                 "",
	"error":                 "errorText*",
	"message-metadata":      "messageMetadata!",
	"start-step":            "",
	"finish-step":           "",
	"text-start":            "id* providerMetadata?",
	"text-delta":            "id* delta* providerMetadata?",
	"text-end":              "id* providerMetadata?",
	"reasoning-start":       "id* providerMetadata?",
	"reasoning-delta":       "id* delta* providerMetadata?",
	"reasoning-end":         "id* providerMetadata?",
	"source-url":            "sourceId* url* title providerMetadata?",
	"source-document":       "sourceId* mediaType* title* filename providerMetadata?",
	"file":                  "url* mediaType* providerMetadata?",
	"data-":                 "id data! transient?",
	"tool-input-start":      "toolCallId* toolName* providerExecuted? dynamic? title",
	"tool-input-delta":      "toolCallId* inputTextDelta*",
	"tool-input-available":  "toolCallId* toolName* input! providerExecuted? providerMetadata? dynamic? title",
	"tool-input-error":      "toolCallId* toolName* input! errorText* providerExecuted? providerMetadata? dynamic? title",
	"tool-output-available": "toolCallId* output! providerExecuted? dynamic? preliminary?",
	"tool-output-error":     "toolCallId* errorText* providerExecuted? dynamic?",
	"tool-output-denied":    "toolCallId*",
	"tool-approval-request": "approvalId* toolCallId*",
}

// fields7 are the events that only ai 7 knows.
var fields7 = map[string]string{
	"reset-step":             "",
	"tool-approval-response": "approvalId* approved? reason providerExecuted? providerMetadata?",
}

// uiEvent is an event, decoded.
type uiEvent struct {
	Type             string          `json:"type"`
	ID               string          `json:"id"`
	Delta            string          `json:"delta"`
	MessageID        *string         `json:"messageId"`
	MessageMetadata  json.RawMessage `json:"messageMetadata"`
	FinishReason     string          `json:"finishReason"`
	ErrorText        string          `json:"errorText"`
	ToolCallID       string          `json:"toolCallId"`
	ToolName         string          `json:"toolName"`
	InputTextDelta   string          `json:"inputTextDelta"`
	Input            json.RawMessage `json:"input"`
	Output           json.RawMessage `json:"output"`
	Data             json.RawMessage `json:"data"`
	Dynamic          bool            `json:"dynamic"`
	Preliminary      bool            `json:"preliminary"`
	ProviderExecuted bool            `json:"providerExecuted"`
	Transient        bool            `json:"transient"`
	ApprovalID       string          `json:"approvalId"`
	Approved         *bool           `json:"approved"`
	Reason           string          `json:"reason"`
	SourceID         string          `json:"sourceId"`
	URL              string          `json:"url"`
	Title            string          `json:"title"`
	MediaType        string          `json:"mediaType"`
	Filename         string          `json:"filename"`
	ProviderMetadata json.RawMessage `json:"providerMetadata"`
}

func (c *Client) event(payload string) error {
	if payload == "[DONE]" {
		if c.Done {
			return fmt.Errorf("a second [DONE]")
		}
		c.Done = true
		return nil
	}
	if c.Done {
		return fmt.Errorf("an event after [DONE]")
	}
	e, err := c.decode(payload)
	if err != nil {
		return err
	}
	if !c.Started && e.Type != "start" {
		return fmt.Errorf("it comes before start")
	}
	if c.open == nil {
		c.open, c.partial, c.Message.Role = map[string]int{}, map[string]string{}, "assistant"
		if c.Message.Parts == nil {
			c.Message.Parts = []UIPart{}
		}
	}
	return c.fold(e)
}

// decode checks an event against its type's fields.
func (c *Client) decode(payload string) (*uiEvent, error) {
	if hasPrototypes(json.RawMessage(payload)) {
		return nil, fmt.Errorf("it has a member that sets a prototype")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(payload), &members); err != nil {
		return nil, err
	}
	e := &uiEvent{}
	if err := json.Unmarshal([]byte(payload), e); err != nil {
		return nil, err
	}
	kind := e.Type
	if strings.HasPrefix(kind, "data-") {
		kind = "data-"
	}
	spec, known := fields[kind]
	if !known && c.UI7 {
		spec, known = fields7[kind]
	}
	if !known {
		return nil, fmt.Errorf("unknown type %q", e.Type)
	}
	delete(members, "type")
	for name := range strings.FieldsSeq(spec) {
		bare := strings.TrimRight(name, "*!?")
		value, present := members[bare]
		delete(members, bare)
		switch name[len(name)-1] {
		case '!':
			if !present {
				return nil, fmt.Errorf("%s is missing", bare)
			}
			continue
		case '*':
			if !present {
				return nil, fmt.Errorf("%s is missing", bare)
			}
			fallthrough
		default:
			if present && string(value) == "null" {
				return nil, fmt.Errorf("%s is null", bare)
			}
		}
		if bare == "providerMetadata" && present && providerMetadata(value) == nil {
			return nil, fmt.Errorf("providerMetadata is no object of objects")
		}
	}
	for name := range members {
		return nil, fmt.Errorf("unknown field %q", name)
	}
	return e, nil
}

func (c *Client) fold(e *uiEvent) error {
	parts := &c.Message.Parts
	switch e.Type {
	case "start":
		if e.MessageID != nil {
			if c.Started && c.Message.ID != *e.MessageID {
				return fmt.Errorf("the message's id changed from %q", c.Message.ID)
			}
			c.Message.ID = *e.MessageID
		}
		c.Started = true
		c.mergeMetadata(e.MessageMetadata)
	case "finish":
		if !validReason(e.FinishReason) {
			return fmt.Errorf("unknown finish reason %q", e.FinishReason)
		}
		c.FinishReason = e.FinishReason
		c.mergeMetadata(e.MessageMetadata)
	case "message-metadata":
		c.mergeMetadata(e.MessageMetadata)
	case "abort":
		c.Aborted = true
	case "error":
		c.Errors = append(c.Errors, e.ErrorText)
	case "start-step":
		*parts = append(*parts, UIPart{Type: "step-start"})
	case "finish-step":
		if len(c.open) > 0 {
			return fmt.Errorf("parts are open: %v", c.open)
		}
	case "reset-step":
		*parts = (*parts)[:c.stepStart()]
		clear(c.open)
		clear(c.partial)
	case "source-url":
		*parts = append(*parts, UIPart{Type: e.Type, SourceID: e.SourceID, URL: e.URL, Title: e.Title, ProviderMetadata: e.ProviderMetadata})
	case "source-document":
		*parts = append(*parts, UIPart{Type: e.Type, SourceID: e.SourceID, MediaType: e.MediaType, Title: e.Title, Filename: e.Filename, ProviderMetadata: e.ProviderMetadata})
	case "file":
		*parts = append(*parts, UIPart{Type: e.Type, URL: e.URL, MediaType: e.MediaType})
	case "text-start", "text-delta", "text-end", "reasoning-start", "reasoning-delta", "reasoning-end":
		return c.foldBlock(e)
	default:
		if strings.HasPrefix(e.Type, "data-") {
			c.foldData(e)
			return nil
		}
		return c.foldTool(e)
	}
	return nil
}

func (c *Client) foldBlock(e *uiEvent) error {
	kind, what, _ := strings.Cut(e.Type, "-")
	key := kind + " " + e.ID
	i, open := c.open[key]
	if what == "start" {
		if open {
			return fmt.Errorf("%s is open already", key)
		}
		c.open[key] = len(c.Message.Parts)
		part := UIPart{Type: kind, State: "streaming", ProviderMetadata: e.ProviderMetadata}
		if kind == "reasoning" {
			part.ID = e.ID
		}
		c.Message.Parts = append(c.Message.Parts, part)
		return nil
	}
	if !open {
		return fmt.Errorf("%s is not open", key)
	}
	p := &c.Message.Parts[i]
	p.Text += e.Delta
	if e.ProviderMetadata != nil {
		p.ProviderMetadata = e.ProviderMetadata
	}
	if what == "end" {
		p.State = "done"
		delete(c.open, key)
	}
	return nil
}

func (c *Client) foldData(e *uiEvent) {
	part := UIPart{Type: e.Type, ID: e.ID, Data: e.Data}
	if e.Transient {
		c.Transient = append(c.Transient, part)
		return
	}
	if e.ID != "" {
		i := slices.IndexFunc(c.Message.Parts, func(p UIPart) bool { return p.Type == e.Type && p.ID == e.ID })
		if i >= 0 {
			c.Message.Parts[i].Data = e.Data
			return
		}
	}
	c.Message.Parts = append(c.Message.Parts, part)
}

// stepStart returns the index after the latest step-start.
func (c *Client) stepStart() int {
	for i := len(c.Message.Parts) - 1; i >= 0; i-- {
		if c.Message.Parts[i].Type == "step-start" {
			return i + 1
		}
	}
	return 0
}

// tool returns the call's part in the current step, or any step, or nil.
func (c *Client) tool(id string, currentStep bool) *UIPart {
	from := 0
	if currentStep {
		from = c.stepStart()
	}
	for i := len(c.Message.Parts) - 1; i >= from; i-- {
		if p := &c.Message.Parts[i]; p.IsTool() && p.ToolCallID == id {
			return p
		}
	}
	return nil
}

func (c *Client) foldTool(e *uiEvent) error {
	if strings.HasPrefix(e.Type, "tool-input-") {
		return c.foldInput(e)
	}
	p := c.tool(e.ToolCallID, false)
	if e.Type == "tool-approval-response" {
		for i := range c.Message.Parts {
			if a := c.Message.Parts[i].Approval; a != nil && a.ID == e.ApprovalID {
				p = &c.Message.Parts[i]
			}
		}
	}
	if p == nil {
		return fmt.Errorf("there is no call %q", e.ToolCallID)
	}
	p.ProviderExecuted = p.ProviderExecuted || e.ProviderExecuted
	switch e.Type {
	case "tool-approval-request":
		p.State, p.Approval = StateApprovalRequested, &UIApproval{ID: e.ApprovalID}
	case "tool-approval-response":
		p.State, p.Approval = StateApprovalResponded, &UIApproval{ID: e.ApprovalID, Approved: e.Approved, Reason: e.Reason}
	case "tool-output-denied":
		p.State = StateOutputDenied
	case "tool-output-available":
		p.State, p.Output, p.Preliminary, p.ErrorText = StateOutputAvailable, e.Output, e.Preliminary, ""
	case "tool-output-error":
		p.State, p.Output, p.Preliminary, p.ErrorText = StateOutputError, nil, false, e.ErrorText
	}
	return nil
}

func (c *Client) foldInput(e *uiEvent) error {
	p := c.tool(e.ToolCallID, true)
	if e.Type == "tool-input-delta" {
		text, started := c.partial[e.ToolCallID]
		if !started || p == nil {
			return fmt.Errorf("call %q was not started in this step", e.ToolCallID)
		}
		text += e.InputTextDelta
		c.partial[e.ToolCallID] = text
		p.State, p.Input, p.Output, p.ErrorText = StateInputStreaming, nil, nil, ""
		if json.Valid([]byte(text)) && !hasPrototypes(json.RawMessage(text)) {
			p.Input = json.RawMessage(text)
		}
		return nil
	}
	if p == nil {
		part := UIPart{Type: "tool-" + e.ToolName, ToolCallID: e.ToolCallID}
		if e.Dynamic {
			part.Type, part.ToolName = "dynamic-tool", e.ToolName
		}
		c.Message.Parts = append(c.Message.Parts, part)
		p = &c.Message.Parts[len(c.Message.Parts)-1]
	}
	if p.Tool() != e.ToolName {
		return fmt.Errorf("call %q changed its tool from %q", e.ToolCallID, p.Tool())
	}
	p.ProviderExecuted = p.ProviderExecuted || e.ProviderExecuted
	p.Input, p.RawInput, p.Output, p.ErrorText, p.Preliminary = e.Input, nil, nil, "", false
	switch e.Type {
	case "tool-input-start":
		p.State, p.Input = StateInputStreaming, nil
		c.partial[e.ToolCallID] = ""
	case "tool-input-available":
		p.State = StateInputAvailable
	case "tool-input-error":
		p.State, p.ErrorText = StateOutputError, e.ErrorText
		if p.Type != "dynamic-tool" && !c.UI7 {
			p.RawInput, p.Input = p.Input, nil
		}
	}
	return nil
}

func (c *Client) mergeMetadata(metadata json.RawMessage) {
	if isNull(metadata) {
		return
	}
	var into, from any
	_ = json.Unmarshal(c.Message.Metadata, &into)
	_ = json.Unmarshal(metadata, &from)
	merged, _ := json.Marshal(mergeValues(into, from))
	c.Message.Metadata = merged
}

// mergeValues merges as clients do: objects merge, all else is replaced.
func mergeValues(into, from any) any {
	x, ok := into.(map[string]any)
	y, also := from.(map[string]any)
	if !ok || !also {
		return from
	}
	for k, v := range y {
		x[k] = mergeValues(x[k], v)
	}
	return x
}

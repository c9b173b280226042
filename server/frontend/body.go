package frontend

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
)

type rawBody struct {
	ID        string            `json:"id"`
	SessionID string            `json:"sessionId"`
	Message   json.RawMessage   `json:"message"`
	Messages  []json.RawMessage `json:"messages"`
	State     json.RawMessage   `json:"state"`
	Trigger   chat.Trigger      `json:"trigger"`
	MessageID string            `json:"messageId"`
	WhenBusy  chunk.WhenBusy    `json:"whenBusy"`
	CommandID string            `json:"commandId"`
	Metadata  json.RawMessage   `json:"metadata"` // of the user's message, unless that has its own
}

type rawMessage struct {
	ID       string          `json:"id"`
	Role     chunk.Role      `json:"role"`
	Content  json.RawMessage `json:"content"`
	Parts    []rawPart       `json:"parts"`
	Metadata json.RawMessage `json:"metadata"`
}

type rawPart struct {
	Type             string          `json:"type"`
	ID               string          `json:"id"`
	Text             string          `json:"text"`
	Data             json.RawMessage `json:"data"`
	URL              string          `json:"url"`
	MediaType        string          `json:"mediaType"`
	Filename         string          `json:"filename"`
	Title            string          `json:"title"`
	SourceID         string          `json:"sourceId"`
	ProviderMetadata json.RawMessage `json:"providerMetadata"`
	ToolCallID       string          `json:"toolCallId"`
	ToolName         string          `json:"toolName"`
	State            string          `json:"state"`
	Input            json.RawMessage `json:"input"`
	Output           json.RawMessage `json:"output"`
	Preliminary      bool            `json:"preliminary"` // not the client's
	ErrorText        string          `json:"errorText"`
	Approval         *struct {
		ID       string `json:"id"`
		Approved *bool  `json:"approved"`
		Reason   string `json:"reason"`
	} `json:"approval"`
}

// ParseBody reads a chat POST. Members that it does not know are ignored.
// Errors: [chat.ErrMalformed].
func ParseBody(data []byte) (*chat.Body, error) {
	var raw rawBody
	if err := decodeOne(data, &raw); err != nil {
		return nil, err
	}
	b, err := raw.body()
	if err == nil && b.Message != nil && b.Message.Metadata == nil && len(raw.Metadata) > 0 && raw.Metadata[0] == '{' {
		b.Message.Metadata = raw.Metadata
	}
	return b, err
}

func (raw *rawBody) body() (*chat.Body, error) {
	b := &chat.Body{
		Session:   raw.SessionID,
		Trigger:   raw.Trigger,
		MessageID: raw.MessageID,
		WhenBusy:  raw.WhenBusy,
		CommandID: raw.CommandID,
	}
	if b.Session == "" {
		b.Session = raw.ID
	}
	if !isNull(raw.State) {
		b.State = raw.State
	}
	switch b.WhenBusy {
	case "", chunk.BusyReject, chunk.BusyQueue, chunk.BusyInterrupt, chunk.BusySteer:
	default:
		return nil, chat.ErrMalformed.Because("whenBusy is one of reject, queue, interrupt and steer")
	}
	switch b.Trigger {
	case "", chat.TriggerSubmit, chat.TriggerRegenerate:
	default:
		return nil, chat.ErrMalformed.Because("trigger is submit-message or regenerate-message")
	}
	if !isNull(raw.Message) {
		m, err := parseMessage(raw.Message, chunk.RoleUser)
		if err != nil {
			return nil, err
		}
		if m.msg.Role == chunk.RoleUser {
			b.Message = &m.msg
		}
		b.Answers = m.answers
		if raw.Messages != nil {
			list := make([]chunk.Message, 0, len(raw.Messages))
			for _, data := range raw.Messages {
				m, err := parseMessage(data, "")
				if err != nil {
					return nil, err
				}
				if m.msg.Role != chunk.RoleSystem {
					list = append(list, m.msg)
				}
			}
			b.Replace = &list
		}
		return b, nil
	}
	if n := len(raw.Messages); n > 0 {
		m, err := parseMessage(raw.Messages[n-1], "")
		if err != nil {
			return nil, err
		}
		switch m.msg.Role {
		case chunk.RoleUser:
			b.Message = &m.msg
		case chunk.RoleAssistant:
			b.Answers = m.answers
			if b.MessageID == "" {
				b.MessageID = m.msg.ID
			}
		}
	}
	return b, nil
}

type parsedMessage struct {
	msg     chunk.Message
	answers []chat.Answer
}

// parseMessage reads a UI message, {role, content}, or a bare string.
func parseMessage(data json.RawMessage, role chunk.Role) (parsedMessage, error) {
	var p parsedMessage
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return p, chat.ErrMalformed.With("", err)
		}
		if role == "" {
			return p, chat.ErrMalformed.Because("a message in messages is an object with a role")
		}
		p.msg = chunk.Message{Role: role, Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}
		return p, nil
	}
	var raw rawMessage
	if err := decodeOne(data, &raw); err != nil {
		return p, err
	}
	if raw.Role == "" {
		raw.Role = role
	}
	switch raw.Role {
	case chunk.RoleUser, chunk.RoleAssistant, chunk.RoleSystem:
	default:
		return p, chat.ErrMalformed.Because("a message's role is user, assistant or system")
	}
	p.msg = chunk.Message{ID: raw.ID, Role: raw.Role}
	if !isNull(raw.Metadata) {
		p.msg.Metadata = raw.Metadata
	}
	for i := range raw.Parts {
		if part, ok := raw.Parts[i].part(); ok {
			p.msg.Parts = append(p.msg.Parts, part)
		}
		if a, ok := raw.Parts[i].answer(); ok {
			p.answers = append(p.answers, a)
		}
	}
	if raw.Parts == nil && !isNull(raw.Content) {
		if err := p.content(raw.Content); err != nil {
			return p, err
		}
	}
	return p, nil
}

// content reads the member that older clients and plain callers use: a string,
// or a list of parts.
func (p *parsedMessage) content(data json.RawMessage) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		p.msg.Parts = []chunk.Part{{Type: chunk.PartText, Text: text}}
		return nil
	}
	var parts []rawPart
	if err := json.Unmarshal(data, &parts); err != nil {
		return chat.ErrMalformed.Because("a message's content is a string or a list of parts")
	}
	for i := range parts {
		if part, ok := parts[i].part(); ok {
			p.msg.Parts = append(p.msg.Parts, part)
		}
	}
	return nil
}

func (r *rawPart) part() (chunk.Part, bool) {
	switch {
	case r.Type == "text":
		return chunk.Part{Type: chunk.PartText, Text: r.Text}, true
	case r.Type == "reasoning":
		return chunk.Part{Type: chunk.PartReasoning, Text: r.Text, ProviderMetadata: r.ProviderMetadata}, true
	case r.Type == "step-start":
		return chunk.Part{Type: chunk.PartStep}, true
	case r.Type == "file":
		return chunk.Part{Type: chunk.PartFile, URL: r.URL, MediaType: r.MediaType, Filename: r.Filename}, true
	case r.Type == "source-url", r.Type == "source-document":
		return chunk.Part{Type: chunk.PartSource, ID: r.SourceID, URL: r.URL, Title: r.Title, MediaType: r.MediaType, Filename: r.Filename}, true
	case strings.HasPrefix(r.Type, "data-"):
		return chunk.Part{Type: chunk.PartData, Name: strings.TrimPrefix(r.Type, "data-"), ID: r.ID, Data: r.Data}, true
	case r.isTool():
		t := &chunk.ToolPart{CallID: r.ToolCallID, Name: r.toolName(), Input: r.Input, Output: r.Output, Error: r.ErrorText, State: chunk.ToolPending}
		switch r.State {
		case "output-available":
			t.State = chunk.ToolCompleted
		case "output-error":
			t.State = chunk.ToolFailed
		case "output-denied":
			t.State = chunk.ToolDenied
		}
		return chunk.Part{Type: chunk.PartTool, Tool: t}, true
	}
	return chunk.Part{}, false
}

func (r *rawPart) isTool() bool {
	return r.ToolCallID != "" && (r.Type == "dynamic-tool" || strings.HasPrefix(r.Type, "tool-"))
}

func (r *rawPart) toolName() string {
	if r.ToolName != "" {
		return r.ToolName
	}
	return strings.TrimPrefix(r.Type, "tool-")
}

// answer reads what the client added to a call. Name and input are the
// session's own business: only ids and the answer count.
func (r *rawPart) answer() (chat.Answer, bool) {
	if !r.isTool() {
		return chat.Answer{}, false
	}
	a := chat.Answer{CallID: r.ToolCallID}
	switch r.State {
	case "output-available":
		if r.Preliminary {
			return chat.Answer{}, false
		}
		a.Output = r.Output
		if len(a.Output) == 0 {
			a.Output = json.RawMessage("null")
		}
	case "output-error":
		if a.Error = r.ErrorText; a.Error == "" {
			a.Error = "the tool failed"
		}
	case "approval-responded":
		if r.Approval == nil || r.Approval.Approved == nil || r.Approval.ID == "" {
			return chat.Answer{}, false
		}
		a.ApprovalID, a.Approved, a.Reason = r.Approval.ID, *r.Approval.Approved, r.Approval.Reason
	default:
		return chat.Answer{}, false
	}
	return a, true
}

// decodeOne decodes exactly one JSON object.
func decodeOne(data []byte, v any) error {
	if t := bytes.TrimSpace(data); len(t) == 0 || t[0] != '{' {
		return chat.ErrMalformed.Because("the body is not a JSON object")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return chat.ErrMalformed.With("", err)
	}
	return nil
}

func isNull(data json.RawMessage) bool {
	return len(data) == 0 || string(data) == "null"
}

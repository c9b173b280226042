package aisdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
	"github.com/spool-run/spool/wire"
)

// rawBody is a body as it is sent.
type rawBody struct {
	ID        string          `json:"id"`
	SessionID string          `json:"sessionId"`
	Message   json.RawMessage `json:"message"`
	Messages  history         `json:"messages"`
	State     json.RawMessage `json:"state"`
	Trigger   wire.Trigger    `json:"trigger"`
	MessageID string          `json:"messageId"`
	WhenBusy  chunk.WhenBusy  `json:"whenBusy"`
	CommandID string          `json:"commandId"`
	Metadata  json.RawMessage `json:"metadata"` // of the user's message, unless that has its own
}

// Limits on the lists in one body. They hold while it is decoded: what is beyond them
// takes no memory.
const (
	MaxParts    = 10_000 // parts of its messages together
	MaxMessages = 10_000 // messages of a history that replaces the session's
)

// ParseBody reads what a client posts. Members that it does not know are ignored.
// It fails with [wire.ErrMalformed], or [chunk.ErrTooLarge] for more messages or parts
// than allowed.
func ParseBody(data []byte) (*wire.Body, error) {
	var raw rawBody
	if err := wire.DecodeBody(data, &raw); err != nil {
		return nil, err
	}
	b := &wire.Body{
		Session:   orElse(raw.SessionID, raw.ID),
		Trigger:   raw.Trigger,
		MessageID: raw.MessageID,
		WhenBusy:  raw.WhenBusy,
		CommandID: raw.CommandID,
	}
	if !isNull(raw.State) {
		b.State = raw.State
	}
	switch b.WhenBusy {
	case "", chunk.BusyReject, chunk.BusyQueue, chunk.BusyInterrupt, chunk.BusySteer:
	default:
		return nil, wire.ErrMalformed.Because("whenBusy must be reject, queue, interrupt or steer")
	}
	switch b.Trigger {
	case "", wire.TriggerSubmit, wire.TriggerRegenerate:
	default:
		return nil, wire.ErrMalformed.Because("trigger must be submit-message or regenerate-message")
	}
	var err error
	if !isNull(raw.Message) {
		err = takeMessage(b, raw.Message, raw.Messages)
	} else if last := raw.Messages.last(); last != nil {
		err = takeLast(b, last)
	}
	if err != nil {
		return nil, err
	}
	if b.Message != nil && b.Message.Metadata == nil && len(raw.Metadata) > 0 && raw.Metadata[0] == '{' {
		b.Message.Metadata = raw.Metadata
	}
	return b, nil
}

// takeMessage takes the member message and, if there is one, the history beside it.
func takeMessage(b *wire.Body, message json.RawMessage, history history) error {
	m, answers, err := ParseMessage(message, chunk.RoleUser)
	if err != nil {
		return err
	}
	if m.Role == chunk.RoleUser {
		b.Message = &m
	}
	b.Answers = answers
	if history == nil {
		return nil
	}
	list, err := takeHistory(history, len(m.Parts))
	if err != nil {
		return err
	}
	b.Replace = &list
	return nil
}

// takeLast takes the last message of a history.
func takeLast(b *wire.Body, data json.RawMessage) error {
	m, answers, err := ParseMessage(data, "")
	if err != nil {
		return err
	}
	switch m.Role {
	case chunk.RoleUser:
		b.Message = &m
	case chunk.RoleAssistant:
		b.Answers = answers
		b.MessageID = orElse(b.MessageID, m.ID)
	}
	return nil
}

// ParseMessage reads a message that a client sent, and what it says about calls: a
// [UIMessage], {role, content} whose content is a string or a list of parts, or a
// bare string. An assistant's {role, content} may have toolCalls, a list of
// {id, name, arguments}. Messages without a role get role; if that is empty, too, they are refused.
// Parts of unknown kinds are left out. It fails with [wire.ErrMalformed], or
// [chunk.ErrTooLarge] for more than [MaxParts] parts.
// [ConvertToUIMessage] is the inverse.
func ParseMessage(data []byte, role chunk.Role) (chunk.Message, []wire.Answer, error) {
	var m chunk.Message
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return m, nil, wire.Malformed(err)
		}
		if role == "" {
			return m, nil, wire.ErrMalformed.Because("each message in messages must be an object with a role")
		}
		return chunk.Message{Role: role, Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}, nil, nil
	}
	var raw struct {
		UIMessage
		Parts   sentParts       `json:"parts"`
		Content json.RawMessage `json:"content"`
		Calls   sentCalls       `json:"toolCalls"` // beside content
	}
	if err := wire.DecodeBody(data, &raw); err != nil {
		return m, nil, err
	}
	m = chunk.Message{ID: raw.ID, Role: chunk.Role(orElse(raw.Role, string(role)))}
	switch m.Role {
	case chunk.RoleUser, chunk.RoleAssistant, chunk.RoleSystem:
	default:
		return m, nil, wire.ErrMalformed.Because("a message's role must be user, assistant or system")
	}
	if !isNull(raw.Metadata) {
		m.Metadata = raw.Metadata
	}
	if raw.Parts == nil && (!isNull(raw.Content) || raw.Calls != nil) {
		var err error
		if !isNull(raw.Content) {
			m.Parts, err = parseContent(raw.Content)
		}
		if err == nil && m.Role == chunk.RoleAssistant {
			var calls []chunk.Part
			calls, err = callParts(raw.Calls)
			m.Parts = append(m.Parts, calls...)
		}
		return m, nil, err
	}
	var answers []wire.Answer
	m.Parts = partsOf(raw.Parts)
	for i := range raw.Parts {
		if a, ok := raw.Parts[i].answer(); ok {
			answers = append(answers, a)
		}
	}
	return m, answers, nil
}

// parseContent reads the member that older clients and plain callers use.
func parseContent(data json.RawMessage) ([]chunk.Part, error) {
	var text string
	if json.Unmarshal(data, &text) == nil {
		return []chunk.Part{{Type: chunk.PartText, Text: text}}, nil
	}
	var parts sentParts
	if err := json.Unmarshal(data, &parts); errors.Is(err, chunk.ErrTooLarge) {
		return nil, err
	} else if err != nil {
		return nil, wire.ErrMalformed.Because("a message's content must be a string or a list of parts")
	}
	return partsOf(parts), nil
}

// sentPart is a part as a client sends it: what is not the client's to say is not
// read.
type sentPart struct {
	UIPart
	ProviderExecuted json.RawMessage `json:"providerExecuted"`
}

// bounded decodes an array element by element, up to [MaxParts].
type bounded[T any] []T

type (
	sentParts = bounded[sentPart]
	sentCalls = bounded[sentCall]
)

var errManyParts = chunk.ErrTooLarge.Because("the body has more than " + strconv.Itoa(MaxParts) + " parts")

func (s *bounded[T]) UnmarshalJSON(data []byte) error {
	*s = nil
	if err := checkArray(data, s); err != nil || isNull(data) {
		return err
	}
	*s = bounded[T]{}
	for one := range jsonenc.Elements(data) {
		if len(*s) == MaxParts {
			return errManyParts
		}
		var element T
		if err := json.Unmarshal(one, &element); err != nil {
			return err
		}
		*s = append(*s, element)
	}
	return nil
}

// checkArray fails as encoding/json does if a value is neither an array nor null.
func checkArray(data []byte, into any) error {
	kind := map[byte]string{'{': "object", '"': "string", 't': "bool", 'f': "bool", '[': "", 'n': ""}
	if kind, known := kind[data[0]]; kind != "" || !known {
		return &json.UnmarshalTypeError{Value: orElse(kind, "number"), Type: reflect.TypeOf(into).Elem()}
	}
	return nil
}

func partsOf(sent []sentPart) (parts []chunk.Part) {
	for i := range sent {
		if part, ok := sent[i].part(); ok {
			parts = append(parts, part)
		}
	}
	return parts
}

// part returns what the part is in a message.
func (p *UIPart) part() (chunk.Part, bool) {
	switch {
	case p.Type == "text":
		return chunk.Part{Type: chunk.PartText, Text: p.Text}, true
	case p.Type == "reasoning":
		return chunk.Part{Type: chunk.PartReasoning, Text: p.Text, ProviderMetadata: p.ProviderMetadata}, true
	case p.Type == "step-start":
		return chunk.Part{Type: chunk.PartStep}, true
	case p.Type == "file":
		return chunk.Part{Type: chunk.PartFile, URL: p.URL, MediaType: p.MediaType, Filename: p.Filename}, true
	case p.Type == "source-url", p.Type == "source-document":
		return chunk.Part{Type: chunk.PartSource, ID: p.SourceID, URL: p.URL, Title: p.Title, MediaType: p.MediaType, Filename: p.Filename}, true
	case strings.HasPrefix(p.Type, "data-"):
		return chunk.Part{Type: chunk.PartData, Name: strings.TrimPrefix(p.Type, "data-"), ID: p.ID, Data: p.Data}, true
	case p.isCall():
		t := &chunk.ToolPart{CallID: p.ToolCallID, Name: orElse(p.ToolName, strings.TrimPrefix(p.Type, "tool-")), Input: p.Input,
			Output: p.Output, Error: p.ErrorText, State: chunk.ToolPending}
		switch p.State {
		case StateOutputAvailable:
			t.State = chunk.ToolCompleted
		case StateOutputError:
			t.State = chunk.ToolFailed
		case StateOutputDenied:
			t.State = chunk.ToolDenied
		}
		return chunk.Part{Type: chunk.PartTool, Tool: t}, true
	}
	return chunk.Part{}, false
}

// isCall reports whether the part is of a call that has an id.
func (p *UIPart) isCall() bool {
	return p.ToolCallID != "" && (p.Type == "dynamic-tool" || strings.HasPrefix(p.Type, "tool-"))
}

// answer reads what the client added to a call. Name and input are the session's
// own business: only ids and the answer count.
func (p *UIPart) answer() (wire.Answer, bool) {
	if !p.isCall() {
		return wire.Answer{}, false
	}
	a := wire.Answer{CallID: p.ToolCallID}
	switch p.State {
	case StateOutputAvailable:
		if p.Preliminary { // not the client's
			return wire.Answer{}, false
		}
		if a.Output = p.Output; len(a.Output) == 0 {
			a.Output = json.RawMessage("null")
		}
	case StateOutputError:
		a.Error = orElse(p.ErrorText, "the tool failed")
	case StateApprovalResponded:
		if p.Approval == nil || p.Approval.Approved == nil || p.Approval.ID == "" {
			return wire.Answer{}, false
		}
		a.ApprovalID, a.Approved, a.Reason = p.Approval.ID, *p.Approval.Approved, p.Approval.Reason
	default:
		return wire.Answer{}, false
	}
	return a, true
}

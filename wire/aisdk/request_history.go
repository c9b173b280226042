package aisdk

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
	"github.com/spool-run/spool/wire"
)

// This file has the histories that callers give: the messages of another store, in the
// form of UI messages or as {role, content} with calls and their results.

// takeHistory reads a history that replaces the session's. parts is how many parts the
// body has besides.
func takeHistory(h history, parts int) ([]chunk.Message, error) {
	list, messages := []chunk.Message{}, 0
	calls := map[string]*chunk.ToolPart{}
	for data := range jsonenc.Elements(h) {
		if messages++; messages > MaxMessages {
			return nil, chunk.ErrTooLarge.Because("the body has more than " + strconv.Itoa(MaxMessages) + " messages")
		}
		if result, err := parseToolMessage(data); err != nil {
			return nil, err
		} else if result != nil {
			if err := result.settle(calls); err != nil {
				return nil, err
			}
			continue
		}
		m, _, err := ParseMessage(data, "")
		if err != nil {
			return nil, err
		}
		if parts += len(m.Parts); parts > MaxParts {
			return nil, errManyParts
		}
		if m.Role == chunk.RoleSystem {
			continue
		}
		for _, p := range m.Parts {
			if p.Tool != nil {
				calls[p.Tool.CallID] = p.Tool
			}
		}
		list = append(list, m)
	}
	return list, nil
}

// toolMessage is the result of a call as a message of its own.
type toolMessage struct {
	Role       string          `json:"role"`
	ToolCallID string          `json:"toolCallId"`
	Content    json.RawMessage `json:"content"`
}

// parseToolMessage reads a message of the role tool. It returns nil for others.
func parseToolMessage(data []byte) (*toolMessage, error) {
	if !bytes.Contains(data, []byte(`"tool"`)) {
		return nil, nil
	}
	var m toolMessage
	if err := wire.DecodeBody(data, &m); err != nil || m.Role != "tool" {
		return nil, nil // whoever reads it as another message says what is wrong with it
	}
	if m.ToolCallID == "" {
		return nil, wire.ErrMalformed.Because("a message of the role tool needs a toolCallId")
	}
	return &m, nil
}

// settle makes the result the output of its call. Content is what the tool returned:
// JSON, or a string that contains it.
func (m *toolMessage) settle(calls map[string]*chunk.ToolPart) error {
	t := calls[m.ToolCallID]
	if t == nil {
		return wire.ErrMalformed.Because("a message of the role tool names a call that no message before it makes")
	}
	t.State, t.Output = chunk.ToolCompleted, jsonIn(m.Content)
	if isNull(t.Output) {
		t.Output = json.RawMessage("null")
	}
	return nil
}

// jsonIn returns the JSON that a string contains, or else the value itself.
func jsonIn(value json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(value, &text) == nil && jsonenc.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return value
}

// sentCall is a call as an assistant message beside its content names it.
type sentCall struct {
	ID         string          `json:"id"`
	ToolCallID string          `json:"toolCallId"`
	Name       string          `json:"name"`
	ToolName   string          `json:"toolName"`
	Arguments  json.RawMessage `json:"arguments"`
	Args       json.RawMessage `json:"args"`
	Input      json.RawMessage `json:"input"`
}

// callParts returns the parts of an assistant message's calls.
func callParts(calls []sentCall) ([]chunk.Part, error) {
	var parts []chunk.Part
	for i := range calls {
		c := &calls[i]
		t := &chunk.ToolPart{CallID: orElse(c.ToolCallID, c.ID), Name: orElse(c.ToolName, c.Name), State: chunk.ToolPending}
		if t.CallID == "" || t.Name == "" {
			return nil, wire.ErrMalformed.Because("each of a message's toolCalls must have an id and a name")
		}
		for _, input := range []json.RawMessage{c.Arguments, c.Args, c.Input} {
			if !isNull(input) {
				t.Input = jsonIn(input)
				break
			}
		}
		parts = append(parts, chunk.Part{Type: chunk.PartTool, Tool: t})
	}
	return parts, nil
}

// history is an array of messages that are not decoded yet; nil if there is none.
type history []byte

func (h *history) UnmarshalJSON(data []byte) error {
	*h = nil
	if err := checkArray(data, h); err != nil || isNull(data) {
		return err
	}
	*h = bytes.Clone(data)
	return nil
}

func (h history) last() (last []byte) {
	for data := range jsonenc.Elements(h) {
		last = data
	}
	return last
}

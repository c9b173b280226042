package aisdk

import (
	"encoding/json"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// ParseUIMessage reads a message that a client sent. Besides parts it takes the
// older form whose content is a string. It is lenient where clients differ:
// parts it does not know are kept with the fields that they share.
func ParseUIMessage(data []byte) (UIMessage, error) {
	var m struct {
		UIMessage
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return UIMessage{}, chunk.ErrInvalid.Because("the message is not a UIMessage").With("", err)
	}
	switch m.Role {
	case "user", "assistant", "system":
	default:
		return UIMessage{}, chunk.ErrInvalid.Because("the message's role must be user, assistant or system")
	}
	var content string
	if m.Parts == nil && len(m.Content) > 0 {
		if json.Unmarshal(m.Content, &content) != nil {
			return UIMessage{}, chunk.ErrInvalid.Because("the message's content must be a string")
		}
		m.Parts = []UIPart{{Type: "text", Text: content}}
	}
	if m.Parts == nil {
		m.Parts = []UIPart{}
	}
	return m.UIMessage, nil
}

// UserMessage returns what the user says: the message's text, files and data.
// It fails with [chunk.ErrInvalid] if that is nothing.
func UserMessage(m UIMessage) (chunk.Message, error) {
	out := chunk.Message{ID: m.ID, Role: chunk.RoleUser, Metadata: m.Metadata, Parts: []chunk.Part{}}
	if m.Role != "user" {
		return out, chunk.ErrInvalid.Because("the message is not the user's")
	}
	for _, p := range m.Parts {
		switch {
		case p.Type == "text" && p.Text != "":
			out.Parts = append(out.Parts, chunk.Part{Type: chunk.PartText, Text: p.Text})
		case p.Type == "file" && p.URL != "":
			out.Parts = append(out.Parts, chunk.Part{Type: chunk.PartFile, URL: p.URL, MediaType: p.MediaType, Filename: p.Filename})
		case strings.HasPrefix(p.Type, "data-"):
			out.Parts = append(out.Parts, chunk.Part{Type: chunk.PartData, Name: p.Type[len("data-"):], ID: p.ID, Data: p.Data})
		}
	}
	if len(out.Parts) == 0 {
		return out, chunk.ErrInvalid.Because("the message says nothing")
	}
	return out, nil
}

// Answer is what a client's copy of an assistant message says about a call: its
// outcome, or a decision on it. Whether anyone waits for it is not the client's
// to say.
type Answer struct {
	ToolCallID string
	Output     json.RawMessage // of a call that the client ran
	Error      string          // of one that failed
	ApprovalID string          // a decision; Output and Error are empty
	Approved   bool
	Reason     string
}

// Answers returns the outcomes and decisions in an assistant message, in order.
func Answers(m UIMessage) []Answer {
	if m.Role != "assistant" {
		return nil
	}
	var answers []Answer
	for _, p := range m.Parts {
		if !p.IsTool() {
			continue
		}
		if p.Approval != nil && p.Approval.Approved != nil {
			answers = append(answers, Answer{ToolCallID: p.ToolCallID, ApprovalID: p.Approval.ID, Approved: *p.Approval.Approved, Reason: p.Approval.Reason})
		}
		switch p.State {
		case StateOutputAvailable:
			if p.Preliminary {
				continue
			}
			output := p.Output
			if output == nil {
				output = json.RawMessage("null")
			}
			answers = append(answers, Answer{ToolCallID: p.ToolCallID, Output: output})
		case StateOutputError:
			answers = append(answers, Answer{ToolCallID: p.ToolCallID, Error: orElse(p.ErrorText, "the tool failed")})
		}
	}
	return answers
}

// MuteOutputs returns the frames without the outcomes of the given calls: the
// client that supplied them has them.
func MuteOutputs(frames []spool.Frame, calls map[string]bool) []spool.Frame {
	if len(calls) == 0 {
		return frames
	}
	var kept []spool.Frame
	for _, f := range frames {
		if !mutes(f.Data, calls) {
			kept = append(kept, f)
		}
	}
	return kept
}

func mutes(data []byte, calls map[string]bool) bool {
	const head = `data: {"type":"tool-output-`
	if !strings.HasPrefix(string(data[:min(len(data), len(head))]), head) {
		return false
	}
	var e struct {
		ToolCallID string `json:"toolCallId"`
	}
	return json.Unmarshal(data[len("data: "):], &e) == nil && calls[e.ToolCallID]
}

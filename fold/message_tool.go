package fold

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/blobref"
	"github.com/spool-run/spool/internal/jsonenc"
)

// This file has what happens to a message's calls.

func (m *MessageFold) toolArgStreamStart(seq uint64, c *chunk.ToolArgStreamStart) {
	m.closeBlock()
	t := m.streamedTool(c.ToolCallID, c.ToolName, seq)
	if t == nil {
		return
	}
	t.State, t.InputText, t.ProviderExecuted = chunk.ToolStreaming, "", c.ProviderExecuted
	m.args[c.ToolCallID] = new(strings.Builder)
}

func (m *MessageFold) toolArgStreamDelta(seq uint64, c *chunk.ToolArgStreamDelta) {
	t := m.streamedTool(c.ToolCallID, "", seq)
	if t == nil {
		return
	}
	text := m.args[c.ToolCallID]
	if text == nil {
		text = new(strings.Builder)
		m.args[c.ToolCallID] = text
	}
	text.WriteString(c.Delta)
	t.State, t.InputText = chunk.ToolStreaming, text.String()
}

func (m *MessageFold) toolArgStreamEnd(seq uint64, c *chunk.ToolArgStreamEnd) {
	t := m.streamedTool(c.ToolCallID, c.ToolName, seq)
	if t == nil {
		return
	}
	t.State = chunk.ToolPending
	setInput(t, c.Arguments)
	if c.ProviderMetadata != nil {
		m.message.Parts[m.findTool(c.ToolCallID)].ProviderMetadata = c.ProviderMetadata
	}
	delete(m.args, c.ToolCallID)
}

func (m *MessageFold) toolStart(seq uint64, c *chunk.ToolStart) {
	m.closeBlock()
	t := m.tool(c.ToolCallID, c.ToolName, seq)
	t.State, t.EffectID, t.Client = chunk.ToolExecuting, c.EffectID, c.Client
	setInput(t, c.Arguments)
}

func (m *MessageFold) toolEnd(seq uint64, c *chunk.ToolEnd) {
	m.closeBlock()
	t := m.tool(c.ToolCallID, c.ToolName, seq)
	if t.State.Done() {
		return
	}
	t.Output, t.Preliminary = c.Result, c.Preliminary
	switch {
	case c.Preliminary:
		t.State = chunk.ToolExecuting
	case c.Success:
		t.State = chunk.ToolCompleted
	default:
		fail(t, c.Error)
	}
}

func (m *MessageFold) toolInputError(seq uint64, c *chunk.ToolInputError) {
	m.closeBlock()
	t := m.tool(c.ToolCallID, c.ToolName, seq)
	if c.Input != nil {
		setInput(t, c.Input)
	}
	t.InputInvalid = true
	fail(t, c.Error)
}

func (m *MessageFold) toolOutputError(seq uint64, c *chunk.ToolOutputError) {
	m.closeBlock()
	fail(m.tool(c.ToolCallID, c.ToolName, seq), c.Error)
}

func (m *MessageFold) toolApprovalRequest(seq uint64, c *chunk.ToolApprovalRequest) {
	m.closeBlock()
	t := m.tool(c.ToolCallID, c.ToolName, seq)
	t.Approval = &chunk.Approval{ID: c.ApprovalID}
	if t.State == chunk.ToolExecuting {
		t.State = chunk.ToolPending // its outcome was lost, and a human decides whether it runs again
	}
	if t.Input == nil || len(c.Input) > 0 {
		setInput(t, c.Input) // a hook may have changed it
	}
}

func (m *MessageFold) toolApprovalResponse(_ uint64, c *chunk.ToolApprovalResponse) {
	for _, p := range m.message.Parts {
		if p.Tool != nil && p.Tool.Approval != nil && p.Tool.Approval.ID == c.ApprovalID && p.Tool.Approval.Approved == nil {
			approved := c.Approved
			p.Tool.Approval.Approved, p.Tool.Approval.Reason = &approved, c.Reason
			if !approved {
				p.Tool.State = chunk.ToolDenied
			}
		}
	}
}

func (m *MessageFold) toolResultSubmitted(_ uint64, c *chunk.ToolResultSubmitted) {
	if i := m.findTool(c.ToolCallID); i >= 0 && !m.message.Parts[i].Tool.State.Done() {
		t := m.message.Parts[i].Tool
		if c.Error != "" {
			fail(t, c.Error)
		} else {
			t.Output, t.State = c.Result, chunk.ToolCompleted
		}
	}
}

// tool returns a call, and opens a part for it if the turn has none.
func (m *MessageFold) tool(callID, name string, seq uint64) *chunk.ToolPart {
	return m.toolAt(m.findTool(callID), callID, name, seq, false)
}

// toolAt is tool for a call whose index is known.
func (m *MessageFold) toolAt(i int, callID, name string, seq uint64, streamed bool) *chunk.ToolPart {
	if i >= 0 {
		t := m.message.Parts[i].Tool
		if t.Name == "" {
			t.Name = name
		}
		return t
	}
	t := &chunk.ToolPart{CallID: callID, Name: name, State: chunk.ToolPending}
	m.insert(chunk.Part{Type: chunk.PartTool, First: seq, Tool: t}, streamed)
	return t
}

// streamedTool returns a call whose arguments the model streams, as tool does. It
// returns nil for a call that kept records hold already: a producer that uses its id
// again must not change what they say.
func (m *MessageFold) streamedTool(callID, name string, seq uint64) *chunk.ToolPart {
	i := m.findTool(callID)
	if i >= 0 && !m.streamed[i] {
		return nil
	}
	return m.toolAt(i, callID, name, seq, true)
}

// findTool returns the index of a call's part, or -1.
func (m *MessageFold) findTool(callID string) int {
	return slices.IndexFunc(m.message.Parts, func(p chunk.Part) bool { return p.Tool != nil && p.Tool.CallID == callID })
}

// setInput sets a call's arguments to those given, or else to the streamed text.
// Streamed text that is not JSON stays text.
func setInput(t *chunk.ToolPart, arguments json.RawMessage) {
	switch {
	case len(arguments) > 0:
		t.Input, t.InputText = arguments, ""
	case strings.TrimSpace(t.InputText) == "":
		t.Input, t.InputText = json.RawMessage("{}"), ""
	case jsonenc.Valid([]byte(t.InputText)):
		// A fold has values in their stored form, with an escape for what looks like a
		// blob reference. Deltas are plain text.
		t.Input, t.InputText = blobref.Escape(json.RawMessage(t.InputText)), ""
	}
}

// fail gives a call a failed outcome.
func fail(t *chunk.ToolPart, text string) {
	t.State, t.Error, t.Preliminary = chunk.ToolFailed, text, false
}

// keepsPatch reports whether a patch stays when a step is committed before all its
// calls are done. Patches of completed calls stay, and patches that belong to no call.
func (m *MessageFold) keepsPatch(p chunk.StatePatch) bool {
	if p.ToolCallID == "" {
		return true
	}
	i := m.findTool(p.ToolCallID) // a hook's id is not a call's
	return i < 0 || m.message.Parts[i].Tool.State == chunk.ToolCompleted
}

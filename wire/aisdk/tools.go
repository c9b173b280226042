package aisdk

import (
	"encoding/json"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// sentTool is what a client has been sent of one tool call.
type sentTool struct {
	step      int    // the step in which it was opened, as an ordinal
	started   bool   // tool-input-start
	text      string // argument text so far
	nesting   jsonenc.Nesting
	tooDeep   bool // the text is nested too deep for clients: they were told an error instead
	available bool // the input, whole
	input     json.RawMessage
	approval  string // id of the request
	decided   bool
	outcome   outcome
	output    json.RawMessage
	err       string
}

type outcome uint8

const (
	outcomeNone outcome = iota
	outcomePreliminary
	outcomeOutput
	outcomeError
	outcomeDenied
)

func outcomeOf(t *chunk.ToolPart) outcome {
	switch {
	case t.State == chunk.ToolCompleted:
		return outcomeOutput
	case t.State == chunk.ToolFailed:
		return outcomeError
	case t.State == chunk.ToolDenied:
		return outcomeDenied
	case t.Preliminary:
		return outcomePreliminary
	}
	return outcomeNone
}

// inputOf returns a call's input; text that is no JSON is given as a string.
func inputOf(t *chunk.ToolPart) json.RawMessage {
	switch {
	case len(t.Input) > 0:
		return t.Input
	case t.InputText != "":
		return jsonenc.AppendString(nil, t.InputText)
	}
	return json.RawMessage("{}")
}

// syncTool writes what the client lacks of a call.
func (v *view) syncTool(p *Projector, part *chunk.Part) {
	t := part.Tool
	s := v.tools[t.CallID]
	if s == nil {
		v.opening(p, part)
		s = &sentTool{step: v.steps}
		v.tools[t.CallID] = s
	}
	want := outcomeOf(t)
	if unfinished(t) {
		v.syncArguments(p, t, s)
		return
	}
	if s.tooDeep && s.step == v.steps { // what became of the call takes the place of the error
		s.tooDeep, s.available, s.outcome, s.err = false, false, outcomeNone, ""
	}
	if t.InputInvalid && want == outcomeError && s.step == v.steps {
		if s.outcome != outcomeError || s.err != t.Error {
			s.available, s.input = true, inputOf(t)
			p.toolEvent("tool-input-error", t).raw("input", p.o.value(s.input)).str("errorText", t.Error)
			p.dynamic(t).close()
			s.outcome, s.err = want, t.Error
		}
		return
	}
	v.syncInput(p, t, s, want)
	v.syncApproval(p, t, s, want)
	v.syncOutcome(p, t, s, want)
}

// syncArguments writes argument text while the model writes it. What a sub-agent
// writes when a later step of the message has begun waits until it is whole:
// clients would open a second part for the rest.
func (v *view) syncArguments(p *Projector, t *chunk.ToolPart, s *sentTool) {
	if s.available || s.started && s.step != v.steps {
		return
	}
	if !s.started || !strings.HasPrefix(t.InputText, s.text) {
		p.inputStart(t)
		s.started, s.text, s.nesting = true, "", jsonenc.Nesting{}
	}
	s.grow(p, t, t.CallID)
}

// grow writes the rest of a call's argument text, given the id under which the client
// has the call. Clients parse the text with each delta, and fail on what is nested too
// deep: there it ends with an error, as it will for the agent.
func (s *sentTool) grow(p *Projector, t *chunk.ToolPart, id string) {
	more := t.InputText[len(s.text):]
	fits := s.nesting.Fit(more)
	p.w.text("tool-input-delta", "toolCallId", id, "inputTextDelta", more[:fits])
	if fits == len(more) {
		s.text = t.InputText
		return
	}
	s.tooDeep, s.available, s.outcome, s.err = true, true, outcomeError, tooDeep
	s.input = jsonenc.AppendString(nil, s.text+more[:fits])
	p.w.open("tool-input-error").str("toolCallId", id).str("toolName", t.Name).raw("input", s.input).str("errorText", tooDeep)
	p.dynamic(t).close()
}

// unfinished reports whether a call's arguments are still written, or are text that is no
// JSON and that nobody has answered yet.
func unfinished(t *chunk.ToolPart) bool {
	return t.State == chunk.ToolStreaming || len(t.Input) == 0 && t.InputText != "" && outcomeOf(t) == outcomeNone && t.Approval == nil
}

const tooDeep = "the arguments are nested deeper than 256 levels"

// fitting returns as much of a call's argument text as clients can parse.
func fitting(text string) string {
	var n jsonenc.Nesting
	return text[:n.Fit(text)]
}

// growArguments is sync for a delta of a call's arguments, given the parts of its
// agent and the id under which the client has the call.
func (v *view) growArguments(p *Projector, parts []chunk.Part, callID, id string) bool {
	s := v.tools[id]
	if s == nil || !s.started || s.available || s.step != v.steps {
		return false
	}
	for i := len(parts) - 1; i >= 0; i-- {
		if t := parts[i].Tool; t != nil && t.CallID == callID {
			if t.State != chunk.ToolStreaming || len(t.InputText) < len(s.text) {
				return false
			}
			s.grow(p, t, id)
			return true
		}
	}
	return false
}

// syncInput writes the call's input, once, and again if it changed before the
// call had an outcome. In a plan a call that has its output gets its input as
// one delta: the same part, but it does not make the client call the tool.
func (v *view) syncInput(p *Projector, t *chunk.ToolPart, s *sentTool, want outcome) {
	input := inputOf(t)
	switch {
	case s.available && (s.outcome != outcomeNone || s.step != v.steps || sameJSON(s.input, input)):
		return
	case !s.available && s.started && s.step != v.steps:
		// A later step has begun: clients would open a second part.
	case v.compact && (want == outcomeOutput || want == outcomePreliminary):
		p.inputStart(t)
		p.w.text("tool-input-delta", "toolCallId", t.CallID, "inputTextDelta", string(appendRaw(nil, p.o.value(input))))
	default:
		p.toolEvent("tool-input-available", t).raw("input", p.o.value(input))
		p.dynamic(t).close()
	}
	s.available, s.input = true, input
}

func (v *view) syncApproval(p *Projector, t *chunk.ToolPart, s *sentTool, want outcome) {
	if t.Approval == nil || s.outcome != outcomeNone {
		return
	}
	if s.approval != t.Approval.ID {
		p.w.open("tool-approval-request").str("approvalId", t.Approval.ID).str("toolCallId", t.CallID).close()
		s.approval = t.Approval.ID
	}
	if decision := t.Approval.Approved; p.o.UI7 && decision != nil && !s.decided {
		p.w.open("tool-approval-response").str("approvalId", t.Approval.ID)
		p.w.key("approved")
		if *decision {
			p.w.buf = append(p.w.buf, "true"...)
		} else {
			p.w.buf = append(p.w.buf, "false"...)
		}
		p.w.opt("reason", t.Approval.Reason).close()
		s.decided = true
	}
}

func (v *view) syncOutcome(p *Projector, t *chunk.ToolPart, s *sentTool, want outcome) {
	switch want {
	case outcomeNone:
		return
	case outcomePreliminary, outcomeOutput:
		if s.outcome == want && sameJSON(s.output, t.Output) || want == outcomePreliminary && s.outcome > want {
			return
		}
		p.w.open("tool-output-available").ofCall(t.CallID).raw("output", p.o.value(t.Output))
		p.dynamic(t).flag("preliminary", want == outcomePreliminary).close()
	case outcomeError:
		if s.outcome == want && s.err == t.Error {
			return
		}
		p.w.open("tool-output-error").ofCall(t.CallID).str("errorText", t.Error)
		p.dynamic(t).close()
	case outcomeDenied:
		if s.outcome == want {
			return
		}
		p.w.open("tool-output-denied").ofCall(t.CallID).close()
	}
	s.outcome, s.output, s.err = want, t.Output, t.Error
}

func (p *Projector) inputStart(t *chunk.ToolPart) {
	p.toolEvent("tool-input-start", t)
	p.dynamic(t).close()
}

func (p *Projector) toolEvent(kind string, t *chunk.ToolPart) *frameWriter {
	return p.w.open(kind).str("toolCallId", t.CallID).str("toolName", t.Name)
}

// dynamic adds the flags that all but the deltas, requests and denials of calls
// may carry.
func (p *Projector) dynamic(t *chunk.ToolPart) *frameWriter {
	return p.w.flag("providerExecuted", t.ProviderExecuted).flag("dynamic", !p.o.StaticTools)
}

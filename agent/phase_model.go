package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/jsonenc"
	"github.com/spool-run/spool/model"
)

// call is one tool call of a step.
type call struct {
	id               string // unique in the session
	name             string
	args             string // argument text, once it is complete
	streamed         []byte // and while it is not
	ended            bool   // the arguments are complete
	providerExecuted bool
	effectID         string
	client           bool            // the client executes it
	child            string          // session of the agent that it began
	childMode        string          // how that is related to the call
	waitsFor         string          // the child that waits for an answer, and the call with it
	part             *chunk.ToolPart // as the log has it, of a call that another process or run has begun
}

// transcript turns one model stream into chunks.
type transcript struct {
	step    *step
	ids     map[string]*call // by the provider's id
	visible bool             // something was appended
	bytes   int              // of the answer's words so far
	cursor  string           // with which the answer can be taken up again; "" for none
	before  *said            // what the log has of it already; nil: nothing

	block     string          // key of the reasoning block that is open; "" for none
	blockID   string          // and its id
	reasoning strings.Builder // its text
}

func (t *transcript) stream(ctx context.Context, parts iter.Seq2[model.Part, error]) error {
	for part, err := range parts {
		if err != nil {
			return foreign(err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if f, ok := part.(model.Finish); ok {
			t.step.finish, t.step.paused = finishReason(f.Reason), f.Paused
			if err := t.end(ctx); err != nil || t.before == nil {
				return err
			}
			return t.before.end()
		}
		if err := t.apply(ctx, part); err != nil {
			return err
		}
	}
	return &model.Error{Code: model.CodeTruncated, Message: "the answer was cut off before its end", Retryable: true}
}

// append writes chunks of the answer, but not what the log has of it already. It fails
// with [LimitAnswer] if they make the answer too long.
func (t *transcript) append(ctx context.Context, chunks ...chunk.Chunk) error {
	for _, c := range chunks {
		t.bytes += wordsOf(c)
	}
	if t.bytes > t.step.agent.maxAnswer() {
		return LimitAnswer
	}
	if t.before != nil {
		lacking := chunks[:0]
		for _, c := range chunks {
			lacks, err := t.before.lacks(c)
			if err != nil {
				return err
			}
			if lacks {
				lacking = append(lacking, c)
			}
		}
		if chunks = lacking; len(chunks) == 0 {
			return nil
		}
	}
	t.visible = true
	return t.step.append(ctx, chunks...)
}

// wordsOf is how many bytes a chunk adds to the words of an answer.
func wordsOf(c chunk.Chunk) int {
	switch c := c.(type) {
	case *chunk.TextDelta:
		return len(c.Delta)
	case *chunk.Thinking:
		return len(c.Content)
	case *chunk.ToolArgStreamDelta:
		return len(c.Delta)
	case *chunk.ToolArgStreamEnd:
		return len(c.Arguments)
	}
	return 0
}

// apply takes one part of the stream.
func (t *transcript) apply(ctx context.Context, part model.Part) error {
	switch p := part.(type) {
	case model.TextDelta:
		return t.text(ctx, p)
	case model.ReasoningDelta:
		return t.reason(ctx, p)
	case model.ReasoningEnd:
		return t.endReasoning(ctx, p)
	case model.ToolCallStart:
		if err := t.closeReasoning(ctx); err != nil {
			return err
		}
		_, err := t.startCall(ctx, p.ID, p.Name, p.ProviderExecuted)
		return err
	case model.ToolCallDelta:
		return t.arguments(ctx, p)
	case model.ToolCallEnd:
		return t.callEnded(ctx, p)
	case model.ToolResult:
		return t.result(ctx, p)
	case model.Restart:
		return t.restart(ctx)
	case model.Source:
		return t.cite(ctx, p)
	case model.File:
		return t.append(ctx, &chunk.File{URL: p.URL, MediaType: p.MediaType, Filename: p.Filename})
	case model.UsageUpdate:
		t.step.usage = p.Usage
	case model.Position:
		return t.position(ctx, p)
	}
	return nil
}

func (t *transcript) text(ctx context.Context, p model.TextDelta) error {
	if p.Delta == "" {
		return nil
	}
	if err := t.closeReasoning(ctx); err != nil {
		return err
	}
	t.step.text.WriteString(p.Delta)
	return t.append(ctx, &chunk.TextDelta{Delta: p.Delta, PartID: p.ID})
}

// reason takes a piece of reasoning; another id opens another block.
func (t *transcript) reason(ctx context.Context, p model.ReasoningDelta) error {
	if p.Delta == "" {
		return nil
	}
	if key := "r" + p.ID; t.block != key {
		if err := t.closeReasoning(ctx); err != nil {
			return err
		}
		t.block, t.blockID = key, p.ID
		t.reasoning.Reset()
	}
	t.reasoning.WriteString(p.Delta)
	return t.append(ctx, &chunk.Thinking{Content: p.Delta, PartID: p.ID})
}

// closeReasoning ends a block that the model left open when it went on to
// something else.
func (t *transcript) closeReasoning(ctx context.Context) error {
	if t.block == "" {
		return nil
	}
	id := t.blockID
	t.block = ""
	return t.append(ctx, &chunk.Thinking{IsComplete: true, PartID: id})
}

func (t *transcript) endReasoning(ctx context.Context, p model.ReasoningEnd) error {
	end := &chunk.Thinking{IsComplete: true, PartID: p.ID, ProviderMetadata: p.Metadata}
	if t.block == "r"+p.ID {
		// What was streamed needs no repeating.
		if unsaid, ok := strings.CutPrefix(p.Text, t.reasoning.String()); ok {
			end.Content = unsaid
		}
		t.block = ""
	} else {
		if err := t.closeReasoning(ctx); err != nil {
			return err
		}
		if p.Text == "" && p.Metadata == nil {
			return nil
		}
		end.Content = p.Text
	}
	return t.append(ctx, end)
}

func (t *transcript) startCall(ctx context.Context, providerID, name string, executed bool) (*call, error) {
	if !loggable(name) {
		name = "unknown" // no tool is called so; the model is told
	}
	c := &call{id: t.step.uniqueCallID(providerID), name: name, providerExecuted: executed}
	t.ids[providerID] = c
	t.step.calls = append(t.step.calls, c)
	return c, t.append(ctx, &chunk.ToolArgStreamStart{ToolCallID: c.id, ToolName: name, ProviderExecuted: executed})
}

// loggable reports whether the log takes a tool's name.
func loggable(name string) bool {
	return name != "" && len(name) <= chunk.MaxNameBytes && utf8.ValidString(name) && strings.IndexFunc(name, unicode.IsControl) < 0
}

// uniqueCallID makes a provider's call id unique in the session: some providers use
// the same ids in every answer.
func (s *step) uniqueCallID(id string) string {
	used := s.run.callIDs
	if len(id) > chunk.MaxIDBytes-64 || chunk.CheckID(id) != nil {
		id = "call"
	}
	id += callSuffix(s.run.Info.Session)
	unique := id
	for n := 1; used[unique]; n++ {
		if unique = fmt.Sprintf("%s-s%d", id, s.number); n > 1 {
			unique = fmt.Sprintf("%s-s%d-%d", id, s.number, n)
		}
	}
	used[unique] = true
	return unique
}

// arguments takes a piece of a call's arguments.
func (t *transcript) arguments(ctx context.Context, p model.ToolCallDelta) error {
	if p.Delta == "" {
		return nil
	}
	c := t.ids[p.ID]
	if c == nil {
		return protocolError("arguments for a call that did not begin")
	}
	c.streamed = append(c.streamed, p.Delta...)
	return t.append(ctx, &chunk.ToolArgStreamDelta{ToolCallID: c.id, Delta: p.Delta})
}

// callEnded completes a call. One that did not begin, or is complete, begins here.
func (t *transcript) callEnded(ctx context.Context, p model.ToolCallEnd) error {
	c := t.ids[p.ID]
	if c == nil || c.ended {
		var err error
		if c, err = t.startCall(ctx, p.ID, p.Name, false); err != nil {
			return err
		}
	}
	return t.endCall(ctx, c, p)
}

// endCall completes a call. The arguments of p, if not empty, are the whole text.
// The log takes them as the streamed deltas when they are the same, else as one
// more delta when that is all that lacks, else as a value.
func (t *transcript) endCall(ctx context.Context, c *call, p model.ToolCallEnd) error {
	c.ended = true
	c.args, c.streamed = string(c.streamed), nil
	if c.name == "" {
		c.name = p.Name
	}
	end := &chunk.ToolArgStreamEnd{ToolCallID: c.id, ToolName: c.name, ProviderMetadata: p.Metadata}
	if args := p.Arguments; args != "" && args != c.args {
		if unsaid, ok := strings.CutPrefix(args, c.args); ok {
			if err := t.append(ctx, &chunk.ToolArgStreamDelta{ToolCallID: c.id, Delta: unsaid}); err != nil {
				return err
			}
			c.args = args
		} else if jsonenc.Valid([]byte(args)) {
			end.Arguments = json.RawMessage(args)
			c.args = args
		}
	}
	return t.append(ctx, end)
}

// result keeps the outcome of a call that the provider executed. The call may be
// one of an earlier step, which the provider had paused.
func (t *transcript) result(ctx context.Context, p model.ToolResult) error {
	end := &chunk.ToolEnd{ToolCallID: p.ID, Result: p.Result, Success: p.Error == "", Error: p.Error}
	if c := t.ids[p.ID]; c != nil {
		if !c.ended {
			if err := t.endCall(ctx, c, model.ToolCallEnd{Name: c.name}); err != nil {
				return err
			}
		}
		end.ToolCallID, end.ToolName = c.id, c.name
		return t.append(ctx, end)
	}
	err := t.step.run.Log.View(ctx, func(f *fold.Fold) error {
		for _, m := range f.Messages {
			for i := range m.Parts {
				if call := m.Parts[i].Tool; call != nil && call.CallID == p.ID {
					end.ToolName = call.Name
				}
			}
		}
		return nil
	})
	if err != nil || end.ToolName == "" {
		return err
	}
	return t.append(ctx, end)
}

// restart drops what the model said so far, and what hooks did before it.
func (t *transcript) restart(ctx context.Context) error {
	t.forget()
	if t.before != nil && !t.visible {
		t.before.again() // what the log has may be what is said now
		return nil
	}
	t.before, t.cursor, t.visible = nil, "", false
	s := t.step
	s.run.stepDiscarded(s.number, "provider_restarted")
	err := s.append(ctx, &chunk.StepDiscarded{StepID: s.id, Reason: "provider_restarted"}, &chunk.StepStarted{StepID: s.id})
	if err != nil {
		return err
	}
	return s.hookAgain(ctx)
}

// forget drops what the model has said, as if it had said nothing.
func (t *transcript) forget() {
	t.step.forget()
	clear(t.ids)
	t.block, t.bytes = "", 0
}

// end closes what the model left open.
func (t *transcript) end(ctx context.Context) error {
	if err := t.closeReasoning(ctx); err != nil {
		return err
	}
	for _, c := range t.step.calls {
		if !c.ended {
			if err := t.endCall(ctx, c, model.ToolCallEnd{Name: c.name}); err != nil {
				return err
			}
		}
	}
	return nil
}

func finishReason(reason string) string {
	switch reason {
	case "stop", "length", "tool-calls", "content-filter":
		return reason
	}
	return "other"
}

func protocolError(text string) error {
	return &model.Error{Code: model.CodeProtocol, Message: text}
}

package fold

import (
	"encoding/json"
	"slices"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// Settle returns the settling list of the open run: what [Owed.Unsettled] returns, then
// the error of a run that fails, and last the run's end.
func (o Owed) Settle(end *chunk.RunFinished) []chunk.Chunk {
	why := end.Error
	switch {
	case why != "":
	case end.Outcome == chunk.OutcomeLimit:
		why = "the run reached its limit"
	default:
		why = "the run was " + string(end.Outcome)
	}
	return append(append(o.Unsettled(why), o.failure(end, why)...), end)
}

// failure returns the error with which a run fails, unless an owner before has written
// it.
func (o Owed) failure(end *chunk.RunFinished, why string) []chunk.Chunk {
	if end.Outcome != chunk.OutcomeFailed || o.open.failure != nil {
		return nil
	}
	return []chunk.Chunk{&chunk.ErrorChunk{Base: o.base(), Error: why, Code: end.Code, Recoverable: end.Recoverable, Fatal: true}}
}

// Lost returns the end of an open run whose owner or producer was lost: the failure that
// the log has already, a stop if the run was asked to stop, or else a failure with this
// text and code.
func (o Owed) Lost(text, code string) *chunk.RunFinished {
	run, failure := o.open.run, o.open.failure
	end := &chunk.RunFinished{Base: chunk.Base{AgentType: run.AgentType}, Outcome: chunk.OutcomeFailed, FinishReason: "error"}
	switch {
	case failure != nil:
		end.Error, end.Code, end.Recoverable = failure.Error, failure.Code, failure.Recoverable
	case o.f.Stop != nil || run.Mode == chunk.ModeStop || run.Mode == chunk.ModeSuperseded:
		end.Outcome, end.FinishReason = chunk.OutcomeStopped, "other"
	default:
		end.Error, end.Code, end.Recoverable = text, code, true
	}
	return end
}

// Unsettled returns what the open run lacks before its run_finished, in order.
// Children are stopped, deepest first. What was shown becomes kept. Calls without an
// outcome fail with errText. An owner appends it before it ends a run early, and so
// does a new owner who finds a run open. After a crash in between, the next list is
// shorter.
func (o Owed) Unsettled(errText string) []chunk.Chunk {
	if o.open.run == nil {
		return nil
	}
	return append(o.UnsettledChildren(errText), o.unsettled(errText)...)
}

// UnsettledChildren returns what ends all children and their runs, deepest first.
func (o Owed) UnsettledChildren(errText string) []chunk.Chunk {
	var chunks []chunk.Chunk
	for _, c := range o.f.Children {
		chunks = append(chunks, o.windUp(c, errText)...)
	}
	return chunks
}

// unsettled is Unsettled without the children.
func (o Owed) unsettled(errText string) []chunk.Chunk {
	var chunks []chunk.Chunk
	if o.f.Streamed() {
		chunks = o.closeModelPhase(chunk.AssistantMessage{FinishReason: "other", Partial: true})
	}
	calls := 0
	for _, p := range o.f.current.message.Parts {
		if p.Tool == nil || p.Tool.State.Done() || p.Tool.ProviderExecuted {
			continue
		}
		calls++
		if p.Tool.State == chunk.ToolStreaming || (p.Tool.Input == nil && p.Tool.InputText != "") {
			chunks = append(chunks, &chunk.ToolInputError{Base: o.base(), ToolCallID: p.Tool.CallID, ToolName: p.Tool.Name,
				Input: inputOf(p.Tool), Error: errText})
		} else {
			chunks = append(chunks, &chunk.ToolEnd{Base: o.base(), ToolCallID: p.Tool.CallID, ToolName: p.Tool.Name,
				Result: json.RawMessage("null"), Error: errText})
		}
	}
	if o.open.stepID != "" || len(chunks) > 0 || calls > 0 || len(o.f.staging.patches) > 0 || len(o.f.current.uncommitted()) > 0 {
		chunks = append(chunks, o.closeStep(chunk.StepCommitted{Partial: true})...)
	}
	return chunks
}

// EndChild returns what ends a child of the open run's agent permanently, whatever the
// child does. It returns nothing for a child that is unknown or has ended. callID is
// the call that ends it.
func (o Owed) EndChild(session, callID, why string) []chunk.Chunk {
	i := slices.IndexFunc(o.f.Children, func(c *Fold) bool { return c.Session == session })
	if i < 0 || o.open.run == nil || o.f.Children[i].Ended > 0 {
		return nil
	}
	c := o.f.Children[i]
	chunks := o.windUp(c, why)
	if c.Mode != "" {
		chunks = append(chunks, &chunk.SubAgentEnd{Base: o.base(), SubAgentType: c.AgentType, SubSessionID: session, CallID: callID, Error: why})
	}
	return chunks
}

// windUp returns what ends whatever a child still does, deepest first. It ends the
// child's open run, or else its pause with a run that only ends it. Then it ends what
// the child was told and has not begun.
func (o Owed) windUp(c *Fold, why string) []chunk.Chunk {
	var chunks []chunk.Chunk
	runs := 0
	begin := func(turnID, messageID string, commands []string) *Run {
		run := &Run{ID: c.runAfter(o.open.run.ID, runs), AgentType: c.AgentType}
		runs++
		chunks = append(chunks, &chunk.RunStarted{Base: chunk.Base{AgentID: c.Session, AgentType: c.AgentType, RunID: run.ID},
			TurnID: turnID, MessageID: messageID, Mode: chunk.ModeStop, Commands: commands})
		return run
	}
	end := func(run *Run) {
		chunks = append(chunks, &chunk.RunFinished{Base: chunk.Base{AgentID: c.Session, AgentType: c.AgentType, RunID: run.ID},
			Outcome: chunk.OutcomeStopped, FinishReason: "other"})
	}
	own := c.Owed()
	if waits := c.waits(); own.open.run == nil && waits != nil {
		own.open.run = begin(c.LastTurn().ID, c.LastTurn().MessageID, c.Answers)
		own.open.step, own.open.stepID = waits.Step, waits.StepID
	}
	if own.open.run != nil {
		chunks = append(chunks, own.Unsettled(why)...)
		end(own.open.run)
	} else {
		own.open.run = o.open.run // the child has no run, so its parent's ends what is below
		chunks = append(chunks, own.UnsettledChildren(why)...)
	}
	for _, w := range c.Waiting {
		end(begin(w.ID, c.runAfter(o.open.run.ID, runs)+"-m", []string{w.ID}))
	}
	if c.Ended == 0 && c.Mode == "" {
		chunks = append(chunks, &chunk.SubAgentEnd{Base: o.base(), SubAgentType: c.AgentType, SubSessionID: c.Session, CallID: c.CallID, Error: why})
	}
	return chunks
}

// waits returns the run in which the last turn is paused, or nil.
func (f *Fold) waits() *Run {
	if run := f.awaiting(); run != nil {
		return run
	}
	return f.Break()
}

// inputOf returns a call's input as JSON. Text that is not JSON becomes a string.
func inputOf(t *chunk.ToolPart) json.RawMessage {
	if t.Input != nil || t.InputText == "" {
		return t.Input
	}
	return jsonenc.Must(t.InputText)
}

package fold

import "github.com/spool-run/spool/chunk"

// Owed computes the chunks to append next. Mostly they are what the owner of a run owes
// the log: what closes a phase, commits a step, pauses the run or settles it. The
// chunks follow from the fold alone, so that a new owner computes what the old one has
// not appended. An Owed is valid until the next record is folded. It copies no text, so
// it may be used inside a view; [Split] makes chunks that fit into records of its
// chunks, outside.
type Owed struct {
	f    *Fold
	open openRun // the fold's, or what it will be after the chunks before
}

// Owed returns what computes the chunks to append next.
func (f *Fold) Owed() Owed { return Owed{f, f.open} }

// base returns the base of a chunk of the open run.
func (o Owed) base() chunk.Base {
	return chunk.Base{AgentID: o.f.Session, AgentType: o.open.run.AgentType, Step: o.open.step, RunID: o.open.run.ID}
}

// First returns what comes before all else in the open run: the checkpoint that its
// last commit has named, if it was not created, and what ends the companions that the
// history has forgotten. The owner that begins a run or takes one over appends it.
func (o Owed) First() []chunk.Chunk {
	if o.open.run == nil {
		return nil
	}
	var chunks []chunk.Chunk
	if o.open.owed != "" {
		chunks = append(chunks, &chunk.CheckpointCreated{Base: o.base(), CheckpointID: o.open.owed, StepCount: o.open.step})
	}
	for _, c := range o.f.Children {
		if c.Forgotten {
			chunks = append(chunks, o.EndChild(c.Session, c.CallID, "the session went back to before it began")...)
		}
	}
	return chunks
}

// CloseModelPhase returns the assistant_message that closes the open step's model
// phase with what was streamed. Every streamed record must have been folded.
func (o Owed) CloseModelPhase(finishReason string, usage *chunk.Usage) []chunk.Chunk {
	return o.closeModelPhase(chunk.AssistantMessage{FinishReason: finishReason, Usage: usage})
}

// CloseStep returns the chunk that commits the open step.
func (o Owed) CloseStep(checkpointID string) []chunk.Chunk {
	return o.closeStep(chunk.StepCommitted{CheckpointID: checkpointID})
}

// Discard returns the chunks that drop the open model phase and tell readers so.
func (o Owed) Discard(reason string) []chunk.Chunk {
	resync := &chunk.StreamResync{Base: o.base(), StepCount: max(o.open.step-1, 0), MessageCount: len(o.f.Messages),
		FromSequence: o.open.began - 1, Reason: reason}
	resync.CheckpointID = o.f.CheckpointID
	return []chunk.Chunk{&chunk.StepDiscarded{Base: o.base(), StepID: o.open.stepID, Reason: reason}, resync}
}

// Interrupt returns the chunks that pause the open run at a step boundary. A step that
// has begun there and has said nothing is dropped.
func (o Owed) Interrupt() []chunk.Chunk {
	var chunks []chunk.Chunk
	base, step := o.base(), o.open.step
	if o.open.phase == PhaseModel {
		chunks = append(chunks, &chunk.StepDiscarded{Base: base, StepID: o.open.stepID, Reason: chunk.SuspendedInterrupted})
		step--
	}
	base.Step = max(step, 0)
	said := &chunk.RunInterrupted{Base: base}
	suspended := &chunk.RunSuspended{Base: base, Kind: chunk.SuspendedInterrupted, Data: o.f.current.uncommitted()}
	if o.f.Interrupt != nil {
		said.Reason = o.f.Interrupt.Reason
	}
	if c := o.f.TurnCheckpoint(o.f.Turn(o.open.run.TurnID)); c != nil {
		said.CheckpointID, suspended.CheckpointID = &c.ID, c.ID
	}
	return append(chunks, said, suspended)
}

// Suspend returns the chunks that pause the open run, with what the open step's data
// parts hold. calls are the agent's own calls that wait for answers. children are the
// children that wait, for the kind awaiting_children.
func (o Owed) Suspend(kind string, calls []string, expires int64, children ...string) []chunk.Chunk {
	return []chunk.Chunk{&chunk.RunSuspended{Base: o.base(), Kind: kind, ToolCallIDs: calls, Children: children, StepID: o.open.stepID,
		ExpiresAt: expires, Data: o.f.current.uncommitted()}}
}

// closeModelPhase completes the assistant_message that closes the model phase.
func (o Owed) closeModelPhase(c chunk.AssistantMessage) []chunk.Chunk {
	parts := []chunk.Part{}
	for i, p := range o.f.current.message.Parts {
		if !o.f.current.streamed[i] {
			continue
		}
		p.Open = false
		if p.Tool != nil {
			p.Tool = &chunk.ToolPart{CallID: p.Tool.CallID, Name: p.Tool.Name, Input: p.Tool.Input, InputText: p.Tool.InputText,
				State: p.Tool.State, ProviderExecuted: p.Tool.ProviderExecuted, EffectID: o.open.run.ID + ":" + p.Tool.CallID}
			if p.Tool.State == chunk.ToolPending {
				p.Tool.State = ""
			}
		}
		parts = append(parts, p)
	}
	c.Base, c.MessageID, c.StepID, c.Parts = o.base(), o.f.current.message.ID, o.open.stepID, parts
	return []chunk.Chunk{&c}
}

// closeStep completes the step_committed that commits the step.
func (o Owed) closeStep(c chunk.StepCommitted) []chunk.Chunk {
	c.Base, c.StepID, c.Data = o.base(), o.open.stepID, o.f.current.uncommitted()
	return []chunk.Chunk{&c}
}

package fold

import (
	"encoding/json"
	"slices"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// settleBytes bounds the parts of one record of a series; the rest of
// [chunk.MaxRecordBytes] is for the envelope and for escapes.
const settleBytes = 128 << 10

// CloseModelPhase returns the chunks that close the open step's model phase:
// what was streamed, as assistant_message records. Every streamed record must
// have been folded. Usually it is one chunk; long texts need several.
func (f *Fold) CloseModelPhase(finishReason string, usage *chunk.Usage) []chunk.Chunk {
	return f.closeModelPhase(chunk.AssistantMessage{FinishReason: finishReason, Usage: usage})
}

// CloseStep returns the chunks that commit the open step.
func (f *Fold) CloseStep(checkpointID string) []chunk.Chunk {
	return f.closeStep(chunk.StepCommitted{CheckpointID: checkpointID})
}

// Settle returns the chunks that end the open run: what it lacks, and its end.
func (f *Fold) Settle(end *chunk.RunFinished) []chunk.Chunk {
	why := end.Error
	switch {
	case why != "":
	case end.Outcome == chunk.OutcomeLimit:
		why = "the run reached its limit"
	default:
		why = "the run was " + string(end.Outcome)
	}
	return append(f.Unsettled(why), end)
}

// Unsettled returns what the open run lacks before its run_finished, in order:
// children are stopped, deepest first; what was shown becomes kept, calls without
// an outcome fail with errText. An
// owner calls it before it ends a run early, and so does a new owner who finds
// one open; a crash in between leaves a shorter list to the next.
func (f *Fold) Unsettled(errText string) []chunk.Chunk {
	if f.run == nil {
		return nil
	}
	return append(f.UnsettledChildren(errText), f.unsettled(errText)...)
}

// UnsettledChildren returns what the open runs of all children lack, and their
// ends, deepest first.
func (f *Fold) UnsettledChildren(errText string) []chunk.Chunk {
	var chunks []chunk.Chunk
	for _, c := range f.Children {
		chunks = append(chunks, c.windUp(f, errText)...)
	}
	return chunks
}

// unsettled is Unsettled without the children.
func (f *Fold) unsettled(errText string) []chunk.Chunk {
	var chunks []chunk.Chunk
	if f.Streamed() {
		chunks = f.closeModelPhase(chunk.AssistantMessage{FinishReason: "other", Partial: true})
	}
	calls := 0
	for _, p := range f.current.message.Parts {
		if p.Tool == nil || p.Tool.State.Settled() || p.Tool.ProviderExecuted {
			continue
		}
		calls++
		if p.Tool.State == chunk.ToolStreaming || (p.Tool.Input == nil && p.Tool.InputText != "") {
			chunks = append(chunks, &chunk.ToolInputError{Base: f.base(), ToolCallID: p.Tool.CallID, ToolName: p.Tool.Name,
				Input: inputOf(p.Tool), Error: errText})
		} else {
			chunks = append(chunks, &chunk.ToolEnd{Base: f.base(), ToolCallID: p.Tool.CallID, ToolName: p.Tool.Name,
				Result: json.RawMessage("null"), Error: errText})
		}
	}
	if f.stepID != "" || len(chunks) > 0 || calls > 0 || len(f.staged) > 0 || len(f.current.uncommitted()) > 0 {
		chunks = append(chunks, f.closeStep(chunk.StepCommitted{Partial: true})...)
	}
	return chunks
}

// Streamed reports whether the open run has streamed something that no
// assistant_message holds.
func (f *Fold) Streamed() bool {
	return slices.Contains(f.current.streamed, true)
}

// Suspend returns the chunks that pause the open run, with what the open step's
// data parts hold. Calls are the agent's own that wait for answers; children, of
// kind awaiting_children, are those that wait below.
func (f *Fold) Suspend(kind string, calls []string, expires int64, children ...string) []chunk.Chunk {
	return []chunk.Chunk{&chunk.RunSuspended{Base: f.base(), Kind: kind, ToolCallIDs: calls, Children: children, StepID: f.stepID,
		ExpiresAt: expires, Data: f.current.uncommitted()}}
}

func (f *Fold) base() chunk.Base {
	return chunk.Base{AgentID: f.Session, AgentType: f.run.AgentType, Step: f.step, RunID: f.run.ID}
}

func (f *Fold) closeModelPhase(last chunk.AssistantMessage) []chunk.Chunk {
	var parts []chunk.Part
	for i, p := range f.current.message.Parts {
		if !f.current.streamed[i] {
			continue
		}
		p.Open = false
		if p.Tool != nil {
			p.Tool = &chunk.ToolPart{CallID: p.Tool.CallID, Name: p.Tool.Name, Input: p.Tool.Input, InputText: p.Tool.InputText,
				State: p.Tool.State, ProviderExecuted: p.Tool.ProviderExecuted, EffectID: f.run.ID + ":" + p.Tool.CallID}
			if p.Tool.State == chunk.ToolPending {
				p.Tool.State = ""
			}
		}
		parts = append(parts, p)
	}
	last.Base, last.MessageID, last.StepID = f.base(), f.current.message.ID, f.stepID
	series := splitParts(parts)
	chunks := make([]chunk.Chunk, len(series))
	for i, parts := range series {
		c := &chunk.AssistantMessage{Base: last.Base, MessageID: last.MessageID, StepID: last.StepID, Parts: parts, More: true}
		if i == len(series)-1 {
			c = &last
			c.Parts = parts
		}
		chunks[i] = c
	}
	return chunks
}

func (f *Fold) closeStep(last chunk.StepCommitted) []chunk.Chunk {
	last.Base, last.StepID = f.base(), f.stepID
	series := splitParts(f.current.uncommitted())
	chunks := make([]chunk.Chunk, len(series))
	for i, parts := range series {
		c := &chunk.StepCommitted{Base: last.Base, StepID: last.StepID, Data: parts, More: true}
		if i == len(series)-1 {
			c = &last
			c.Data = parts
		}
		chunks[i] = c
	}
	return chunks
}

// splitParts splits parts into lists that each fit a record. There is at least
// one list. A long text goes on in the next list, in a part of the same First.
func splitParts(parts []chunk.Part) [][]chunk.Part {
	series, _ := splitSeries(parts)
	return series
}

// splitSeries is splitParts that says of each list whether its first part goes on
// with the text of the last part of the list before.
func splitSeries(parts []chunk.Part) (series [][]chunk.Part, goesOn []bool) {
	series, goesOn = [][]chunk.Part{{}}, []bool{false}
	room := settleBytes
	add := func(p chunk.Part, size int) {
		if size > room && len(series[len(series)-1]) > 0 {
			series, goesOn = append(series, nil), append(goesOn, false)
			room = settleBytes
		}
		last := len(series) - 1
		series[last] = append(series[last], p)
		room -= size
	}
	for _, p := range parts {
		for len(jsonenc.Must(p.Text)) > settleBytes/2 {
			head := p
			n := jsonenc.Fit(p.Text, settleBytes/2)
			head.Text, p.Text = p.Text[:n], p.Text[n:]
			head.ProviderMetadata = nil
			add(head, len(head.Text))
			series, goesOn, room = append(series, nil), append(goesOn, true), settleBytes
		}
		add(p, partBytes(p))
	}
	return series, goesOn
}

// partBytes estimates a part's encoded size; large values will be blobs.
func partBytes(p chunk.Part) int {
	size := len(jsonenc.Must(p.Text)) + 256 + blobbed(p.Data) + blobbed(p.ProviderMetadata)
	if p.Tool != nil {
		size += blobbed(p.Tool.Input) + blobbed(p.Tool.Output) + len(jsonenc.Must(p.Tool.InputText)) + len(p.Tool.Error)
	}
	return size
}

func blobbed(v json.RawMessage) int {
	if len(v) > chunk.MaxInlineBytes {
		return 128
	}
	return len(v)
}

// inputOf returns a call's input as JSON: what it is, or its text as a string.
func inputOf(t *chunk.ToolPart) json.RawMessage {
	if t.Input != nil || t.InputText == "" {
		return t.Input
	}
	return jsonenc.Must(t.InputText)
}

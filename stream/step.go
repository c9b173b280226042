package stream

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// This file has what a run writes between its producer's chunks: steps and their
// phases.

// place is where a run stands among its steps.
type place struct {
	number int  // of the open step, or of the last one
	open   bool // a step is open
	tools  bool // its model phase is closed
}

func placeOf(f *fold.Fold) place {
	s := f.Step()
	return place{number: s.Number, open: s.ID != "", tools: f.Phase() == fold.PhaseTools}
}

// move is what happens to a run's steps before a chunk.
type move struct {
	ends   bool // the open step is committed
	begins bool // a step begins
	closes bool // the open step's model phase is closed, which acts need
}

// moveFor returns what happens before a chunk of this kind. Words after acts begin the
// next step, and so does a chunk whose producer gives it a higher step number than that
// of the open step.
func (p place) moveFor(k kind, number int) move {
	inStep := k == words || k == acts || k == either
	var m move
	m.ends = p.open && (k == boundary || k == words && p.tools || inStep && number > p.number)
	m.begins = inStep && (m.ends || !p.open)
	m.closes = k == acts && (m.begins || !p.tools)
	return m
}

// lead returns the chunks that belong before c. All earlier chunks must be stored,
// except acts.
func (r *run) lead(ctx context.Context, c chunk.Chunk) (chunks []chunk.Chunk, err error) {
	k, number := kindOf(c.ChunkType()), c.ChunkBase().Step
	m := r.in.moveFor(k, number)
	if m == (move{}) {
		return nil, nil
	}
	checkpoint := ""
	if named, ok := c.(*chunk.CheckpointCreated); ok {
		checkpoint = named.CheckpointID
	}
	chunks, err = r.ask(ctx, func(f *fold.Fold) (chunks []chunk.Chunk) {
		if (m.ends || m.begins) && !(r.in.open && r.in.tools) {
			chunks = closeWords(f, "stop") // in the open step, or of a run that an earlier version wrote without steps
		}
		if m.ends {
			chunks = append(chunks, closeStep(f, checkpoint)...)
		}
		if m.closes && !m.begins {
			chunks = closeWords(f, "tool-calls")
		}
		return chunks
	})
	if err != nil {
		return nil, err
	}
	r.in.open = r.in.open && !m.ends
	if m.begins {
		r.in = place{number: max(number, r.in.number+1), open: true}
		chunks = append(chunks, r.beginStep())
	}
	if m.closes {
		r.in.tools = true
	}
	if m.closes && m.begins { // the new step has no words
		silent := &chunk.AssistantMessage{MessageID: r.messageID, StepID: stepID(r.info.ID, r.in.number), Parts: []chunk.Part{}, FinishReason: "tool-calls"}
		silent.Step = r.in.number
		chunks = append(chunks, silent)
	}
	return chunks, nil
}

func (r *run) beginStep() *chunk.StepStarted {
	step := &chunk.StepStarted{StepID: stepID(r.info.ID, r.in.number)}
	step.Step = r.in.number
	return step
}

// closeWords closes the open model phase, if one is open or words were streamed outside
// any step.
func closeWords(f *fold.Fold, finishReason string) []chunk.Chunk {
	if f.OpenRun() != nil && (f.Phase() == fold.PhaseModel || f.Streamed()) {
		return f.Owed().CloseModelPhase(finishReason, nil)
	}
	return nil
}

// closeStep commits the open step, unless an earlier process has done so.
func closeStep(f *fold.Fold, checkpointID string) []chunk.Chunk {
	if f.Step().ID == "" {
		return nil
	}
	return f.Owed().CloseStep(checkpointID)
}

// complete closes what a producer leaves open when it ends its run or pauses. Calls
// that wait for an outcome keep their step open, unless the run's chunks are counted.
func (r *run) complete(ctx context.Context, finishReason string) error {
	chunks, err := r.ask(ctx, func(f *fold.Fold) []chunk.Chunk {
		chunks := closeWords(f, finishReason)
		if r.counted {
			chunks = append(chunks, closeStep(f, "")...)
		}
		return chunks
	})
	if err != nil || len(chunks) == 0 {
		return err
	}
	r.in.tools = true
	return r.append(ctx, spool.Entry{Base: r.base(0), Chunks: chunks})
}

package modeltest

import (
	"errors"
	"fmt"

	"github.com/spool-run/spool/model"
)

// Fold joins a stream's parts. Its error says how they break the contract of
// [model.Model].
func Fold(parts []model.Part, failure error) (Answer, error) {
	f := &folding{answer: Answer{Blocks: []Block{}}, at: map[string]int{}, open: map[string]bool{}}
	for i, p := range parts {
		if f.answer.Finish != "" {
			f.wrong("part %d, %T, comes after the finish", i, p)
		}
		f.part(i, p)
	}
	f.end(failure)
	return f.answer, f.err
}

// folding is an answer while its parts are joined.
type folding struct {
	answer Answer
	at     map[string]int  // indexes of the blocks, by kind and id
	open   map[string]bool // the blocks that have begun and must end
	err    error           // the first mistake
}

func (f *folding) wrong(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

// block returns the block of a kind and id, a new one if there is none yet.
func (f *folding) block(kind, id string) *Block {
	key := kind + " " + id
	i, ok := f.at[key]
	if !ok {
		i = len(f.answer.Blocks)
		f.at[key] = i
		f.answer.Blocks = append(f.answer.Blocks, Block{Type: kind, ID: id})
	}
	return &f.answer.Blocks[i]
}

// part takes the part with the index i.
func (f *folding) part(i int, p model.Part) {
	switch p := p.(type) {
	case model.TextDelta:
		f.text(i, "text", p.ID, p.Delta)
	case model.ReasoningDelta:
		f.text(i, "reasoning", p.ID, p.Delta)
		f.open["reasoning "+p.ID] = true
	case model.ReasoningEnd:
		f.reasoningEnd(p)
	case model.ToolCallStart:
		f.callStart(p)
	case model.ToolCallDelta:
		f.callDelta(i, p)
	case model.ToolCallEnd:
		f.callEnd(p)
	case model.ToolResult:
		f.result(i, p)
	case model.Source:
		f.source(p)
	case model.File:
		f.answer.Blocks = append(f.answer.Blocks, Block{Type: "file", Name: p.MediaType, Text: p.URL})
	case model.Position:
	case model.Restart:
		f.answer.Blocks = f.answer.Blocks[:0]
		clear(f.at)
		clear(f.open)
	case model.UsageUpdate:
		f.answer.Usage = &p.Usage
	case model.Finish:
		if p.Reason == "" {
			f.wrong("the finish has no reason")
		}
		f.answer.Finish, f.answer.Raw = p.Reason, p.Raw
	default:
		f.wrong("part %d is a %T", i, p)
	}
}

func (f *folding) text(i int, kind, id, delta string) {
	if delta == "" {
		f.wrong("part %d is an empty delta", i)
	}
	f.block(kind, id).Text += delta
}

func (f *folding) reasoningEnd(p model.ReasoningEnd) {
	b := f.block("reasoning", p.ID)
	if p.Text != "" && p.Text != b.Text {
		f.wrong("reasoning %s ends as %q, but was %q", p.ID, p.Text, b.Text)
	}
	b.Metadata = p.Metadata
	delete(f.open, "reasoning "+p.ID)
}

func (f *folding) callStart(p model.ToolCallStart) {
	if _, ok := f.at["tool "+p.ID]; ok {
		f.wrong("call %s starts twice", p.ID)
	}
	b := f.block("tool", p.ID)
	b.Name, b.ProviderExecuted = p.Name, p.ProviderExecuted
	f.open["tool "+p.ID] = true
}

func (f *folding) callDelta(i int, p model.ToolCallDelta) {
	if !f.open["tool "+p.ID] || p.Delta == "" {
		f.wrong("part %d: an empty delta, or its call %s is not open", i, p.ID)
	}
	f.block("tool", p.ID).Text += p.Delta
}

func (f *folding) callEnd(p model.ToolCallEnd) {
	b := f.block("tool", p.ID)
	if !f.open["tool "+p.ID] || b.Name != p.Name || b.Text != p.Arguments {
		f.wrong("call %+v ends, but was %+v", p, *b)
	}
	b.Metadata = p.Metadata
	delete(f.open, "tool "+p.ID)
}

// result takes an outcome. Its call may be one of an earlier answer.
func (f *folding) result(i int, p model.ToolResult) {
	b := f.block("tool", p.ID)
	if f.open["tool "+p.ID] || b.Result != nil {
		f.wrong("part %d is an outcome, but call %s is open or has one", i, p.ID)
	}
	b.Result = p.Result
	if p.Error != "" {
		b.Error = p.Error
	}
}

func (f *folding) source(p model.Source) {
	b := f.block("source", p.ID)
	b.Name, b.Text = p.Title, p.URL
	if b.Quote = p.CitedText; p.URL == "" {
		b.Text, b.Quote = p.CitedText, "" // a document
	}
}

// end checks that the stream ended as it must: with a finish and nothing open, or
// with an error and no finish.
func (f *folding) end(failure error) {
	switch {
	case failure != nil:
		f.answer.Error = &Failure{Message: failure.Error()}
		if e, ok := errors.AsType[*model.Error](failure); ok {
			f.answer.Error = &Failure{e.Code, e.Message, e.Retryable, e.Finish}
		}
		if f.answer.Finish != "" {
			f.wrong("an error comes after the finish: %v", failure)
		}
	case f.answer.Finish == "":
		f.wrong("the stream ends with neither a finish nor an error")
	case len(f.open) > 0:
		f.wrong("the answer is complete, but %v open", f.open)
	}
}

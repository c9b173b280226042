package aisdk

import (
	"strings"

	"github.com/spool-run/spool/chunk"
)

// What the model said is in the log twice: as deltas, and in the assistant_message that
// closes its phase, whose parts name the records that opened them. A transformer whose
// chunks begin in the middle has seen the end of a part, and nothing of those before it.

// since takes from a model's message what came before the transformer's first chunk.
func (t *Transformer) since(c *chunk.AssistantMessage) {
	seen := t.streamed()
	if !c.More {
		t.sealed = t.seq
	}
	if len(seen) > 0 && !c.More && !matches(c.Parts, seen[0].First) {
		align(c, seen)
	}
	if t.from == 0 {
		return
	}
	kept := c.Parts[:0]
	for _, p := range c.Parts {
		if p.First == 0 || p.First >= t.from || p.Tool != nil {
			kept = append(kept, p)
		}
	}
	c.Parts = kept
}

// streamed returns the texts and reasonings that deltas have opened since the latest
// assistant_message.
func (t *Transformer) streamed() (seen []chunk.Part) {
	for _, p := range t.p.parts() {
		if isWords(&p) && p.First > t.sealed {
			seen = append(seen, p)
		}
	}
	return seen
}

func isWords(p *chunk.Part) bool { return p.Type == chunk.PartText || p.Type == chunk.PartReasoning }

// matches reports whether a part was opened by the record of that sequence.
func matches(parts []chunk.Part, first uint64) bool {
	for i := range parts {
		if isWords(&parts[i]) && parts[i].First == first {
			return true
		}
	}
	return false
}

// align makes the last texts of a message the ones that were streamed, of the first of
// which the transformer may have seen only the end, and drops those before. It changes
// nothing if the message says something else.
func align(c *chunk.AssistantMessage, seen []chunk.Part) {
	at := make([]int, len(seen))
	n := len(seen) - 1
	for i := len(c.Parts) - 1; i >= 0 && n >= 0; i-- {
		p := &c.Parts[i]
		if !isWords(p) {
			continue
		}
		whole := p.Text == seen[n].Text || n == 0 && strings.HasSuffix(p.Text, seen[n].Text)
		if p.Type != seen[n].Type || !whole {
			return
		}
		at[n] = i
		n--
	}
	if n >= 0 {
		return
	}
	for n, i := range at {
		c.Parts[i].First, c.Parts[i].Text = seen[n].First, seen[n].Text
	}
	kept := c.Parts[:0]
	for i, p := range c.Parts {
		if i >= at[0] || !isWords(&p) {
			kept = append(kept, p)
		}
	}
	c.Parts = kept
}

// knows reports whether the transformer has seen a call.
func (t *Transformer) knows(callID string) bool {
	for _, p := range t.p.parts() {
		if p.Tool != nil && p.Tool.CallID == callID {
			return true
		}
	}
	return false
}

// rest takes from the whole text that closes a reasoning what came before the
// transformer's first chunk.
func (t *Transformer) rest(c *chunk.Thinking) {
	if t.from <= 1 || t.begun || !c.IsComplete {
		return
	}
	seen := t.streamed()
	if len(seen) == 1 && seen[0].Open && seen[0].Type == chunk.PartReasoning && strings.HasSuffix(c.Content, seen[0].Text) {
		c.Content = seen[0].Text
	}
}

package fold

import (
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool/chunk"
)

// maxDeltas bounds the text of a chunk of several deltas, in bytes. JSON encodes a byte as
// six at most, so that the chunk fits into a record.
const maxDeltas = 16 << 10

// Deltas are neighbouring deltas of one block, which become one chunk: one that a fold
// and the wires take as they would take the deltas one by one.
type Deltas struct {
	of    block
	time  int64
	first string
	texts strings.Builder // all of them, if there is more than one
}

// block is what the deltas of one Deltas have in common.
type block struct {
	kind chunk.Type
	base chunk.Base // without the time
	id   string     // of the part or the call
}

// NewDeltas returns the deltas that begin with a chunk, or nil if the chunk cannot be
// merged with others: it is no delta, empty, too long, or ends in the middle of a character.
func NewDeltas(c chunk.Chunk) *Deltas {
	of, text, ok := deltaOf(c)
	if !ok {
		return nil
	}
	return &Deltas{of: of, time: c.ChunkBase().Timestamp, first: text}
}

// Add adds a chunk to the deltas. It returns false, and does nothing, if the chunk is not
// one more delta of their block, or if they are long enough.
func (d *Deltas) Add(c chunk.Chunk) bool {
	of, text, ok := deltaOf(c)
	if !ok || of != d.of || d.Len()+len(text) > maxDeltas {
		return false
	}
	if d.texts.Len() == 0 {
		d.texts.WriteString(d.first)
	}
	d.texts.WriteString(text)
	return true
}

// Len returns the length of the deltas' text in bytes.
func (d *Deltas) Len() int { return max(len(d.first), d.texts.Len()) }

// Chunk returns the deltas as one chunk, with the time of the first.
func (d *Deltas) Chunk() chunk.Chunk {
	text, base := d.first, d.of.base
	if d.texts.Len() > 0 {
		text = d.texts.String()
	}
	base.Timestamp = d.time
	switch d.of.kind {
	case chunk.TypeThinking:
		return &chunk.Thinking{Base: base, Content: text, PartID: d.of.id}
	case chunk.TypeToolArgStreamDelta:
		return &chunk.ToolArgStreamDelta{Base: base, ToolCallID: d.of.id, Delta: text}
	}
	return &chunk.TextDelta{Base: base, Delta: text, PartID: d.of.id}
}

// deltaOf takes a delta apart. Text that is not valid UTF-8 is stored with replacements,
// which would be others if it were merged.
func deltaOf(c chunk.Chunk) (of block, text string, ok bool) {
	switch c := c.(type) {
	case *chunk.TextDelta:
		of, text, ok = block{base: c.Base, id: c.PartID}, c.Delta, true
	case *chunk.Thinking:
		of, text, ok = block{base: c.Base, id: c.PartID}, c.Content, !c.IsComplete && c.ProviderMetadata == nil
	case *chunk.ToolArgStreamDelta:
		of, text, ok = block{base: c.Base, id: c.ToolCallID}, c.Delta, true
	}
	if !ok || text == "" || len(text) > maxDeltas || !utf8.ValidString(text) {
		return block{}, "", false
	}
	of.kind, of.base.Timestamp = c.ChunkType(), 0
	return of, text, true
}

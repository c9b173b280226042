package fold

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// seriesBytes bounds the parts of one record of a series. What [chunk.MaxRecordBytes]
// has beyond it is for the other fields and for escapes.
const seriesBytes = 128 << 10

// Content returns the history_replaced series that brings a session back to a
// checkpoint. The fold must be that of the checkpoint: its messages and state are the
// content. The series takes effect with its last record, and a resume_requested must
// follow it in the same append.
func (o Owed) Content(commandID, checkpointID string) []*chunk.HistoryReplaced {
	var series []*chunk.HistoryReplaced
	room := 0
	record := func() *chunk.HistoryReplaced {
		c := &chunk.HistoryReplaced{CommandID: commandID, CheckpointID: checkpointID, Index: len(series), Messages: &[]chunk.Message{}, More: true}
		series, room = append(series, c), seriesBytes
		return c
	}
	c := record()
	for _, m := range o.f.Messages {
		head := m.Clone()
		lists, goesOn := splitSeries(head.Parts)
		for i, parts := range lists {
			size := messageBytes + len(jsonenc.Must(m.Metadata))
			for _, p := range parts {
				size += partBytes(p)
			}
			if i > 0 || size > room && len(*c.Messages) > 0 {
				c = record()
			}
			piece := chunk.Message{ID: m.ID, Role: m.Role, Parts: parts}
			if i == 0 {
				piece.TurnID, piece.Time, piece.Metadata = m.TurnID, m.Time, m.Metadata
			} else {
				c.GoesOn = goesOn[i]
			}
			*c.Messages = append(*c.Messages, piece)
			room -= size
		}
	}
	if len(o.f.State) > room && len(o.f.State) > seriesBytes/2 {
		c = record()
	}
	c.State, c.More = o.f.State, false
	return series
}

// messageBytes estimates the size of a message without its parts.
const messageBytes = 1 << 10

// Goes reports whether a run that began with the history as it stands would call a
// model. It would if the history ends in a user message, or in calls whose outcomes the
// model has not seen.
func (o Owed) Goes() bool {
	if len(o.f.Messages) == 0 {
		return false
	}
	m := o.f.Messages[len(o.f.Messages)-1]
	if m.Role == chunk.RoleUser || o.open.more {
		return true
	}
	for i := len(m.Parts) - 1; i >= 0 && m.Parts[i].Type != chunk.PartStep; i-- {
		if t := m.Parts[i].Tool; t != nil && !t.ProviderExecuted {
			return true
		}
	}
	return false
}

// Split cuts the chunks of a list that are too large for one record: an
// assistant_message or a step_committed becomes a series of several. The process that appends
// what an [Owed] has returned splits it first. It is linear in the chunks' size.
func Split(chunks []chunk.Chunk) []chunk.Chunk {
	var out []chunk.Chunk
	for i, c := range chunks {
		series := seriesOf(c)
		if len(series) > 1 && out == nil {
			out = slices.Clone(chunks[:i])
		}
		switch {
		case len(series) > 1:
			out = append(out, series...)
		case out != nil:
			out = append(out, c)
		}
	}
	if out == nil {
		return chunks
	}
	return out
}

// seriesOf returns the series that a chunk becomes, or nil if it stays as it is.
func seriesOf(c chunk.Chunk) []chunk.Chunk {
	var parts []chunk.Part
	var piece func(parts []chunk.Part, last bool) chunk.Chunk
	switch c := c.(type) {
	case *chunk.AssistantMessage:
		parts, piece = c.Parts, func(parts []chunk.Part, last bool) chunk.Chunk {
			p := &chunk.AssistantMessage{Base: c.Base, MessageID: c.MessageID, StepID: c.StepID, More: true}
			if last {
				*p = *c
			}
			p.Parts = parts
			return p
		}
	case *chunk.StepCommitted:
		parts, piece = c.Data, func(parts []chunk.Part, last bool) chunk.Chunk {
			p := &chunk.StepCommitted{Base: c.Base, StepID: c.StepID, More: true}
			if last {
				*p = *c
			}
			p.Data = parts
			return p
		}
	default:
		return nil
	}
	lists, _ := splitSeries(parts)
	if len(lists) == 1 {
		return nil
	}
	series := make([]chunk.Chunk, len(lists))
	for i, parts := range lists {
		series[i] = piece(parts, i == len(lists)-1)
	}
	return series
}

// splitSeries splits parts into lists that each fit a record. There is at least one
// list. A long text continues in the next list, in a part with the same First; goesOn
// says of each list whether its first part continues the text of the list before.
func splitSeries(parts []chunk.Part) (series [][]chunk.Part, goesOn []bool) {
	series, goesOn = [][]chunk.Part{{}}, []bool{false}
	room := seriesBytes
	add := func(p chunk.Part, size int) {
		if size > room && len(series[len(series)-1]) > 0 {
			series, goesOn = append(series, nil), append(goesOn, false)
			room = seriesBytes
		}
		last := len(series) - 1
		series[last] = append(series[last], p)
		room -= size
	}
	for _, p := range parts {
		for {
			n := jsonenc.Fit(p.Text, seriesBytes/2)
			if n == len(p.Text) {
				break
			}
			head := p
			head.Text, p.Text = p.Text[:n], p.Text[n:]
			head.ProviderMetadata = nil
			add(head, len(head.Text))
			series, goesOn, room = append(series, nil), append(goesOn, true), seriesBytes
		}
		add(p, partBytes(p))
	}
	return series, goesOn
}

// joined is what the records of a series hold so far. A long text is joined in a
// builder, so that each of its bytes is copied a bounded number of times.
type joined struct {
	parts []chunk.Part
	text  *strings.Builder // of the last part, once it has gone on
}

// add appends the parts of the next record. goesOn says whether the first of them
// continues the text of the last part.
func (j *joined) add(more []chunk.Part, goesOn bool) {
	if n := len(j.parts); goesOn && n > 0 && len(more) > 0 {
		last, next := &j.parts[n-1], more[0]
		if j.text == nil {
			j.text = new(strings.Builder)
			j.text.WriteString(last.Text)
		}
		j.text.WriteString(next.Text)
		last.Text = j.text.String()
		if next.ProviderMetadata != nil {
			last.ProviderMetadata = next.ProviderMetadata
		}
		more = more[1:]
	}
	if len(more) > 0 {
		j.text = nil
		j.parts = append(j.parts, more...)
	}
}

// partBytes estimates a part's encoded size.
func partBytes(p chunk.Part) int {
	size := jsonenc.Size(p.Text) + 256 + blobbed(p.Data) + blobbed(p.ProviderMetadata)
	if p.Tool != nil {
		size += blobbed(p.Tool.Input) + blobbed(p.Tool.Output) + jsonenc.Size(p.Tool.InputText) + len(p.Tool.Error)
	}
	return size
}

// blobbed returns the size of a value in a record. Large values are stored as blobs.
func blobbed(v json.RawMessage) int {
	if len(v) > chunk.MaxInlineBytes {
		return 128
	}
	return len(v)
}

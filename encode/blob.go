package encode

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/blobref"
	"github.com/spool-run/spool/internal/jsonenc"
)

// spill returns a copy of the chunk in which large values are replaced by references to
// blobs. The blobs are stored when it returns.
func (e *Encoder) spill(ctx context.Context, c chunk.Chunk) (chunk.Chunk, error) {
	s := &spiller{ctx: ctx, e: e, foreign: true}
	switch c := c.(type) {
	case *chunk.ToolStart:
		return spillOne(s, c, &c.Arguments, func(d *chunk.ToolStart) *json.RawMessage { return &d.Arguments })
	case *chunk.ToolEnd:
		return spillOne(s, c, &c.Result, func(d *chunk.ToolEnd) *json.RawMessage { return &d.Result })
	case *chunk.ToolArgStreamEnd:
		return spillOne(s, c, &c.Arguments, func(d *chunk.ToolArgStreamEnd) *json.RawMessage { return &d.Arguments })
	case *chunk.ToolInputError:
		return spillOne(s, c, &c.Input, func(d *chunk.ToolInputError) *json.RawMessage { return &d.Input })
	case *chunk.ToolApprovalRequest:
		return spillOne(s, c, &c.Input, func(d *chunk.ToolApprovalRequest) *json.RawMessage { return &d.Input })
	case *chunk.SubAgentEnd:
		return spillOne(s, c, &c.Result, func(d *chunk.SubAgentEnd) *json.RawMessage { return &d.Result })
	case *chunk.Custom:
		return spillOne(s, c, &c.Data, func(d *chunk.Custom) *json.RawMessage { return &d.Data })
	case *chunk.Output:
		return spillOne(s, c, &c.Output, func(d *chunk.Output) *json.RawMessage { return &d.Output })
	case *chunk.ToolResultSubmitted:
		return spillOne(s, c, &c.Result, func(d *chunk.ToolResultSubmitted) *json.RawMessage { return &d.Result })
	case *chunk.File:
		d := *c
		d.URL, d.Large = s.text(c.URL)
		return &d, s.err
	}
	return s.message(c)
}

// message moves the large values of chunks that hold messages or parts of them.
func (s *spiller) message(c chunk.Chunk) (chunk.Chunk, error) {
	switch c := c.(type) {
	case *chunk.UserMessage:
		d := *c
		d.Message.Parts = s.parts(c.Message.Parts)
		return &d, s.err
	case *chunk.HistoryReplaced:
		d := *c
		if s.foreign = c.CheckpointID == ""; s.foreign {
			d.State = s.value(c.State)
		}
		if c.Messages != nil {
			messages := slices.Clone(*c.Messages)
			for i := range messages {
				messages[i].Parts = s.parts(messages[i].Parts)
			}
			d.Messages = &messages
		}
		return &d, s.err
	case *chunk.AssistantMessage:
		s.foreign = false
		d := *c
		d.Parts = s.parts(c.Parts)
		return &d, s.err
	case *chunk.StepCommitted:
		s.foreign = false
		d := *c
		d.Data = s.parts(c.Data)
		return &d, s.err
	case *chunk.RunSuspended:
		s.foreign = false
		d := *c
		d.Data = s.parts(c.Data)
		return &d, s.err
	}
	return c, nil
}

// spiller moves values into blobs, until the first error.
type spiller struct {
	ctx context.Context
	e   *Encoder
	// foreign values come from users, models, tools and producers: what looks like a
	// reference there is not one. Other values come from the fold, in their stored
	// form.
	foreign bool
	err     error
}

func spillOne[C any, P interface {
	*C
	chunk.Chunk
}](s *spiller, c P, v *json.RawMessage, field func(P) *json.RawMessage) (chunk.Chunk, error) {
	stored := s.value(*v)
	if s.err != nil || len(stored) == len(*v) {
		return c, s.err // every change of a value changes its length
	}
	d := *c
	*field(&d) = stored
	return P(&d), nil
}

// value returns the stored form of a JSON value.
func (s *spiller) value(v json.RawMessage) json.RawMessage {
	if s.err != nil || len(v) < len(`{"$blob":0}`) {
		return v
	}
	if len(v) > chunk.MaxInlineBytes {
		return s.blob(v)
	}
	if s.foreign {
		return blobref.Escape(v)
	}
	return blobref.EscapeUnlessRef(v)
}

// text returns the stored form of a foreign text: the text, or a reference to it.
func (s *spiller) text(text string) (string, json.RawMessage) {
	if len(text) <= chunk.MaxInlineBytes || s.err != nil {
		return text, nil
	}
	return "", s.blob(jsonenc.Must(text))
}

func (s *spiller) blob(v json.RawMessage) json.RawMessage {
	if s.e.Put == nil {
		s.err = chunk.ErrTooLarge.Because("the store does not support values above 64 KiB").With(s.e.Session, nil)
		return v
	}
	if !jsonenc.Valid(v) {
		s.err = chunk.ErrInvalidChunk.Because("a value is not JSON, or is nested deeper than 256 levels").With(s.e.Session, nil)
		return v
	}
	ref := blobref.Ref{Blob: blobref.Hash(v), Size: len(v), MediaType: "application/json"}
	if s.err = s.e.Put(s.ctx, ref.Blob, v); s.err != nil {
		return v
	}
	out, err := json.Marshal(ref)
	s.err = err
	return out
}

// parts returns the stored form of parts. It copies the slice before it changes it.
func (s *spiller) parts(parts []chunk.Part) []chunk.Part {
	var out []chunk.Part
	for i := range parts {
		p := parts[i]
		data := s.value(p.Data)
		changed := len(data) != len(p.Data)
		p.Data = data
		if s.foreign {
			text, url := p.Text, p.URL
			if p.Text, p.Large = s.text(text); p.Large == nil {
				p.URL, p.Large = s.text(url)
			}
			changed = changed || p.Large != nil
		}
		if p.Tool != nil {
			input, output := s.value(p.Tool.Input), s.value(p.Tool.Output)
			if len(input) != len(p.Tool.Input) || len(output) != len(p.Tool.Output) {
				tool := *p.Tool
				tool.Input, tool.Output = input, output
				p.Tool, changed = &tool, true
			}
		}
		if changed {
			if out == nil {
				out = slices.Clone(parts)
			}
			out[i] = p
		}
	}
	if out == nil {
		return parts
	}
	return out
}

// Package encode turns chunks into records: base fields, large values beside the log, and
// the limits of records.
package encode

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// splitBytes is the length of the pieces of a text that is too large for one record.
// JSON encodes a byte as six at most, so that a piece always fits.
const splitBytes = 32 << 10

// Encoder encodes the chunks of one session, in order.
type Encoder struct {
	Session string
	Base    chunk.Base // the defaults of chunks' base fields
	Now     func() time.Time
	// Put stores a large value under its hash. nil: large values are refused.
	Put func(ctx context.Context, hash string, data []byte) error

	last int64  // the latest timestamp given out
	buf  []byte // used by Encode
}

// encodeBuffers hold buffers in which chunks are encoded before their size is known.
var encodeBuffers = sync.Pool{New: func() any { return &[]byte{} }}

// Encode fills in the chunks' base fields (in place), moves large values into blobs,
// and returns the records, without sequences. If it fails, at most blobs have been
// stored.
func (e *Encoder) Encode(ctx context.Context, chunks []chunk.Chunk) ([]chunk.Record, error) {
	buf := encodeBuffers.Get().(*[]byte)
	e.buf = *buf
	defer func() {
		*buf, e.buf = e.buf, nil
		encodeBuffers.Put(buf)
	}()
	recs := make([]chunk.Record, 0, len(chunks))
	for _, c := range fold.Split(chunks) {
		e.Fill(c)
		var err error
		if recs, err = e.one(ctx, recs, c); err != nil {
			return nil, err
		}
	}
	return recs, nil
}

// Fill fills in a chunk's base fields. Encode does so, too.
func (e *Encoder) Fill(c chunk.Chunk) {
	b := c.ChunkBase()
	if b.AgentID == "" {
		b.AgentID = e.Base.AgentID
	}
	if b.AgentType == "" {
		b.AgentType = e.Base.AgentType
	}
	if b.RunID == "" {
		b.RunID = e.Base.RunID
	}
	if b.Step == 0 {
		b.Step = e.Base.Step
	}
	if b.Timestamp == 0 {
		b.Timestamp = max(e.Now().UnixMilli(), e.last)
	}
	e.last = max(e.last, b.Timestamp)
}

func (e *Encoder) one(ctx context.Context, recs []chunk.Record, c chunk.Chunk) ([]chunk.Record, error) {
	c, err := e.spill(ctx, c)
	if err != nil {
		return nil, err
	}
	data, err := chunk.Append(e.buf[:0], c)
	if err != nil {
		return nil, chunk.ErrInvalidChunk.With(e.Session, err)
	}
	if e.buf = data; cap(e.buf) > chunk.MaxInlineBytes {
		e.buf = nil
	}
	if u, ok := c.(*chunk.Unknown); ok {
		if data, err = chunk.FillUnknown(data, &u.Base); err != nil {
			return nil, chunk.ErrInvalidChunk.With(e.Session, err)
		}
	}
	if len(data) > chunk.MaxRecordBytes {
		pieces := split(c)
		if len(pieces) < 2 {
			return nil, chunk.ErrTooLarge.Because(fmt.Sprintf("a %s of %d bytes is too large for a record", c.ChunkType(), len(data))).With(e.Session, nil)
		}
		for _, p := range pieces {
			if recs, err = e.one(ctx, recs, p); err != nil {
				return nil, err
			}
		}
		return recs, nil
	}
	b := c.ChunkBase()
	return append(recs, chunk.Record{Type: c.ChunkType(), Agent: b.AgentID, Time: b.Timestamp, Class: chunk.ClassOf(c), Data: bytes.Clone(data)}), nil
}

// split cuts a chunk that is one text into several, or returns nil.
func split(c chunk.Chunk) []chunk.Chunk {
	var out []chunk.Chunk
	switch c := c.(type) {
	case *chunk.TextDelta:
		for _, s := range splitText(c.Delta) {
			d := *c
			d.Delta = s
			out = append(out, &d)
		}
	case *chunk.ToolArgStreamDelta:
		for _, s := range splitText(c.Delta) {
			d := *c
			d.Delta = s
			out = append(out, &d)
		}
	case *chunk.Thinking:
		if c.IsComplete {
			return nil // only the producer knows if it is the whole block or the rest of it
		}
		for _, s := range splitText(c.Content) {
			d := *c
			d.Content = s
			out = append(out, &d)
		}
	}
	return out
}

// splitText cuts s at rune borders into pieces of at most splitBytes.
func splitText(s string) []string {
	var out []string
	for len(s) > splitBytes {
		n := splitBytes
		for n > splitBytes-utf8.UTFMax && !utf8.RuneStart(s[n]) {
			n--
		}
		out = append(out, s[:n])
		s = s[n:]
	}
	return append(out, s)
}

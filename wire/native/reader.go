package native

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/sse"
)

// Kind is the kind of a message of the native wire.
type Kind uint8

const (
	KindChunk  Kind = iota // a record
	KindEnd                // the turn ended, or paused (Status)
	KindFail               // the run failed (Error)
	KindResync             // the position cannot be served (Reason); load a snapshot
)

// Message is one event of the native wire.
type Message struct {
	Kind   Kind
	Seq    uint64          // the record's sequence; 0 if neither id nor data contains it
	Chunk  json.RawMessage // KindChunk: for [chunk.Decode]
	Status chunk.Status    // KindEnd, KindFail: the log's status
	Reason string
	Error  string
}

// Parse reads the data of one event in bare or event framing; a [Decoder] reads lean
// framing, too. It fails with [chunk.ErrInvalidChunk]. The message keeps no reference to
// data.
func Parse(data []byte) (Message, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil || head.Type == "" {
		return Message{}, chunk.ErrInvalidChunk.With("", err)
	}
	var m Message
	switch head.Type {
	case "end":
		m.Kind, m.Status = KindEnd, chunk.StatusEnded
	case "fail":
		m.Kind, m.Status = KindFail, chunk.StatusFailed
	case "resync":
		m.Kind = KindResync
	case "chunk":
		var in struct {
			Chunk    json.RawMessage `json:"chunk"`
			Sequence uint64          `json:"sequence"`
		}
		if err := json.Unmarshal(data, &in); err != nil {
			return Message{}, chunk.ErrInvalidChunk.With("", err)
		}
		if len(in.Chunk) == 0 || in.Chunk[0] != '{' {
			return Message{}, chunk.ErrInvalidChunk.Because("the chunk event contains no chunk")
		}
		m.Chunk, m.Seq = in.Chunk, in.Sequence
		return m, nil
	default:
		m.Chunk = bytes.Clone(data)
		return m, nil
	}
	var in terminal
	if err := json.Unmarshal(data, &in); err != nil {
		return Message{}, chunk.ErrInvalidChunk.With("", err)
	}
	m.Reason = in.Reason
	if in.Status != "" {
		m.Status = in.Status
	}
	if in.Error != nil {
		m.Error = *in.Error
	}
	return m, nil
}

// Reader reads the native wire, in any framing.
type Reader struct {
	events *sse.Reader
	data   Decoder
	cursor spool.Cursor
}

// NewReader returns a reader of a response's body.
func NewReader(body io.Reader) *Reader { return &Reader{events: sse.NewReader(body, nil)} }

// Next returns the next message. At the end of the body it returns io.EOF; if no
// [KindEnd] or [KindFail] came before, the connection was lost, and the client
// reconnects with [Reader.Cursor].
func (r *Reader) Next() (Message, error) {
	e, err := r.events.Next()
	if err != nil {
		return Message{}, err
	}
	m, err := r.data.Decode(e.Data)
	if err != nil {
		return Message{}, err
	}
	if c, err := spool.ParseCursor(string(e.ID)); err == nil {
		r.cursor = c
		if err := m.At(c); err != nil {
			return Message{}, err
		}
	}
	return m, nil
}

// At gives a message the position of its event's id. It fails with
// [chunk.ErrInvalidChunk] if the id names another record: then a lean record was read
// without the one before it.
func (m *Message) At(c spool.Cursor) error {
	if m.Kind != KindChunk || c.InPlan || c.Seq == m.Seq {
		return nil
	}
	if m.Seq != 0 {
		return chunk.ErrInvalidChunk.Because(fmt.Sprintf("the record is %d and its id %d: an event before it is missing", m.Seq, c.Seq))
	}
	m.Seq = c.Seq
	return nil
}

// Cursor returns the position after the latest message: the Last-Event-ID of a client
// that reconnects.
func (r *Reader) Cursor() spool.Cursor { return r.cursor }

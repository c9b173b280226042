package merlin

import (
	"encoding/json"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/sse"
)

// Kind says what an event is.
type Kind uint8

const (
	KindInit        Kind = iota // V1: the message begins, or begins again
	KindMessage                 // Message
	KindProgress                // V1: Progress
	KindAttachments             // V1: Attachments
	KindEnd                     // the answer has ended or paused
	KindUnknown                 // of a later version: Name, Data
)

// Event is one event of the wire, in either version.
type Event struct {
	Kind        Kind
	Message     Message
	Progress    V1Progress
	Attachments []Attachment
	Name        string
	Data        json.RawMessage
	// HasID says that the reader's cursor has moved to this event. Events without an
	// id are sent again to a client that reconnects with the cursor.
	HasID bool
}

// parse reads one event by its name and data. An event without a name is a
// message. Both forms of the end are one. It fails with
// [chunk.ErrInvalidChunk]. The event keeps no reference to data.
func parse(name string, data []byte) (Event, error) {
	e := Event{Name: name}
	if name == "" {
		e.Name = eventMessage
	}
	var into any
	var attachments attachmentsV1
	switch e.Name {
	case eventInit:
		e.Kind, into = KindInit, &struct{}{}
	case eventMessage:
		e.Kind, into = KindMessage, &e.Message
	case eventProgress:
		e.Kind, into = KindProgress, &e.Progress
	case eventAttachments:
		e.Kind, into = KindAttachments, &attachments
	case eventEnd:
		e.Kind, into = KindEnd, &struct{}{}
	default:
		if !json.Valid(data) {
			return Event{}, chunk.ErrInvalidChunk.Because("the event's data is not JSON")
		}
		e.Kind, e.Data = KindUnknown, append(json.RawMessage(nil), data...)
		return e, nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return Event{}, chunk.ErrInvalidChunk.With("", err)
	}
	e.Attachments = attachments.Payload
	if e.Kind == KindMessage && fromLiteral(&e.Message) {
		return Event{Kind: KindEnd, Name: eventEnd}, nil
	}
	return e, nil
}

// Reader reads the wire, in either version. An event is at most 32 MiB.
type Reader struct {
	events *sse.Reader
	cursor spool.Cursor
}

// NewReader returns a reader of a response's body.
func NewReader(body io.Reader) *Reader { return &Reader{events: sse.NewReader(body, nil)} }

// Next returns the next event. At the end of the body it returns io.EOF; if no
// [KindEnd] came before, the connection was cut. Then call [Client.Drop] and
// reconnect with [Reader.Cursor].
func (r *Reader) Next() (Event, error) {
	raw, err := r.events.Next()
	if err != nil {
		return Event{}, err
	}
	e, err := parse(string(raw.Name), raw.Data)
	if err != nil {
		return Event{}, err
	}
	if c, err := spool.ParseCursor(string(raw.ID)); err == nil && len(raw.ID) > 0 {
		e.HasID = c != r.cursor
		r.cursor = c
	}
	return e, nil
}

// Cursor returns the position after the latest event that had an id: the
// Last-Event-ID with which to reconnect.
func (r *Reader) Cursor() spool.Cursor { return r.cursor }

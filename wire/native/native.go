// Package native is the wire that shows a log as it is: each record's chunk, as
// its producer wrote it, in an SSE event whose id is the record's sequence.
//
// It never looks inside a record, so what it sends is a copy. It has no plan:
// a reader that has seen nothing reads from the start.
package native

import (
	"encoding/json"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/sse"
)

// Framing is what the data of an event holds.
type Framing uint8

const (
	// Bare: the chunk itself.
	Bare Framing = iota
	// Event: {"type":"chunk","chunk":…,"sequence":N}.
	Event
)

// Projector shows every record, one frame each. The zero Projector frames them
// bare.
type Projector struct {
	Framing Framing
}

var _ spool.Projector = (*Projector)(nil)

// New returns a projector.
func New(f Framing) *Projector { return &Projector{Framing: f} }

// Apply appends the record's frame. It never fails.
func (p *Projector) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	return append(dst, spool.Frame{Data: AppendRecord(nil, p.Framing, r), Seq: r.Seq}), nil
}

// Plan returns no frames.
func (p *Projector) Plan() []spool.Frame { return nil }

// AppendRecord appends a record's event, without its id.
func AppendRecord(dst []byte, f Framing, r chunk.Record) []byte {
	if f == Bare {
		if dst == nil {
			dst = make([]byte, 0, len(r.Data)+len("data: \n\n"))
		}
		return sse.AppendEvent(dst, "", r.Data)
	}
	data := make([]byte, 0, len(r.Data)+64)
	data = append(data, `{"type":"chunk","chunk":`...)
	data = append(data, r.Data...)
	data = append(data, `,"sequence":`...)
	data = strconv.AppendUint(data, r.Seq, 10)
	data = append(data, '}')
	return sse.AppendEvent(dst, "", data)
}

// Terminal returns the event that closes the stream of a log that has become
// quiet, without an id: {"type":"end"}, {"type":"end","status":"paused"} or
// {"type":"fail","error":…}; nil while the log is active. The reason is the
// outcome of the run that ended or the kind of its suspension; what was not
// simply completed has it as "reason". Both framings have the same ends.
func Terminal(status chunk.Status, reason, errText string) []byte {
	end := terminal{Type: "end", Reason: reason}
	if reason == string(chunk.OutcomeCompleted) || reason == string(chunk.OutcomeFailed) {
		end.Reason = ""
	}
	switch status {
	case chunk.StatusEnded:
	case chunk.StatusPaused:
		end.Status = status
	case chunk.StatusFailed:
		end.Type, end.Error = "fail", &errText
	default:
		return nil
	}
	return event(end)
}

// Resync returns the event that tells a reader to start over from a snapshot:
// {"type":"resync","reason":…}. Reasons are trimmed, ahead and incarnation.
func Resync(reason string) []byte {
	return event(terminal{Type: "resync", Reason: reason})
}

type terminal struct {
	Type   string       `json:"type"`
	Status chunk.Status `json:"status,omitempty"`
	Reason string       `json:"reason,omitempty"`
	Error  *string      `json:"error,omitempty"`
}

func event(v terminal) []byte {
	data, _ := json.Marshal(v) // strings always encode
	return sse.AppendEvent(nil, "", data)
}

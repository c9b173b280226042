// Package native is the wire that shows a log unchanged: each record's chunk, as it was
// written, in an SSE event whose id is the record's sequence.
//
// It copies records without decoding them. A new reader reads from the start. Only where
// trace was trimmed does it get a plan: the kept records, after one that says so. [Wire]
// is the wire as a value; [Reader] is for clients.
package native

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/wire"
)

// Framing is the form of an event's data.
type Framing uint8

const (
	// Bare: the chunk itself.
	Bare Framing = iota
	// Event: {"type":"chunk","chunk":…,"sequence":N}.
	Event
	// Lean: as Event, but of a record that begins like the one before it only what differs:
	// [milliseconds since then, {its other members}].
	Lean
)

// Projector shows each record as one frame. In lean framing the frame depends on the record
// that it showed before; else, and for its first record, on the record alone.
type Projector struct {
	framing Framing
	agent   string // the agent whose records are shown, "" for all
	child   bool   // the agent is a child
	self    bool   // without the agents below it
	buf     []byte // holds the latest frames; earlier ones stay in their memory
	before  before
}

// bufferBytes is the largest size of the buffers that several frames share.
const bufferBytes = 16 << 10

var (
	_ spool.Projector = (*Projector)(nil)
	_ spool.Renderer  = (*Projector)(nil)
)

// NewProjector returns a projector of the records of the subject's agent and the agents
// below it. Nil options are the zero value.
func NewProjector(s wire.Subject, o *Options) *Projector {
	if o == nil {
		o = &Options{}
	}
	return &Projector{framing: o.Framing, agent: s.Agent, child: chunk.IsChild(s.Agent), self: o.Self}
}

// Apply appends the record's frame. It never fails.
func (p *Projector) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	if r.Seq != 0 && !p.shows(r.Type, r.Agent) { // 0: it says to every reader that trace is missing
		return dst, nil
	}
	from := len(p.room(frameBytes(p.framing, r.Data)))
	p.buf = p.render(p.buf, &r)
	return append(dst, spool.Frame{Data: p.buf[from:len(p.buf):len(p.buf)], Seq: r.Seq}), nil
}

// Render implements [spool.Renderer].
func (p *Projector) Render(dst []byte, r *chunk.Record) []byte {
	if !p.shows(r.Type, r.Agent) {
		return dst
	}
	return p.render(dst, r)
}

func (p *Projector) render(dst []byte, r *chunk.Record) []byte {
	if p.framing == Lean {
		return p.before.render(dst, r)
	}
	return render(dst, p.framing, r.Seq, r.Data)
}

// room returns the buffer with room for n more bytes.
func (p *Projector) room(n int) []byte {
	if cap(p.buf)-len(p.buf) < n {
		p.buf = make([]byte, 0, max(n, min(2*cap(p.buf), bufferBytes)))
	}
	return p.buf
}

// Plan returns no frames.
func (p *Projector) Plan() ([]spool.Frame, error) { return nil, nil }

// shows reports whether a record belongs to the agent or to one below it. The root's
// stream is the whole log. A child's stream also has the records that concern all
// agents.
func (p *Projector) shows(kind chunk.Type, agent string) bool {
	switch own := p.agent; {
	case own == "", agent == own:
		return true
	case p.child && kind == chunk.TypeExecutorSuperseded:
		return true
	case p.self:
		return false
	default:
		return !p.child || len(agent) > len(own) && agent[len(own)] == '.' && agent[:len(own)] == own
	}
}

const (
	dataOpen  = `data: `
	chunkOpen = `{"type":"chunk","chunk":`
	seqOpen   = `,"sequence":`
	dataClose = "\n\n"
)

// frameBytes is an upper bound of what render appends, for data in one line.
func frameBytes(f Framing, data []byte) int {
	n := len(dataOpen) + len(data) + len(dataClose)
	if f != Bare {
		n += len(chunkOpen) + len(seqOpen) + len("18446744073709551615") + len("}")
	}
	return n
}

// render appends a record's event, without its id.
func render(dst []byte, f Framing, seq uint64, data []byte) []byte {
	if breaks(data) {
		return sse.AppendEvent(dst, "", framed(nil, f, seq, data)) // several data lines
	}
	return append(framed(append(dst, dataOpen...), f, seq, data), dataClose...)
}

// breaks reports whether data has several lines.
func breaks(data []byte) bool {
	return bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0
}

// framed appends an event's data.
func framed(dst []byte, f Framing, seq uint64, data []byte) []byte {
	if f != Event {
		return append(dst, data...)
	}
	dst = append(append(dst, chunkOpen...), data...)
	return append(strconv.AppendUint(append(dst, seqOpen...), seq, 10), '}')
}

// Terminal returns the event that closes the stream of a log that has become quiet,
// without an id: {"type":"end"}, {"type":"end","status":"paused"} or
// {"type":"fail","error":…}; nil while the log is active. The reason is the outcome of
// the run that ended, or the kind of its suspension. The event carries it as "reason"
// unless the run was simply completed. Both framings have the same ends.
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
	data, _ := json.Marshal(v) // strings cannot fail to encode
	return sse.AppendEvent(nil, "", data)
}

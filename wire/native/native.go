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
)

// Projector shows each record as one frame, which depends on the record alone.
type Projector struct {
	framing Framing
	agent   string // the agent whose records are shown, "" for all
	child   bool   // the agent is a child
	self    bool   // without the agents below it
}

var _ spool.Projector = (*Projector)(nil)

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
	return append(dst, spool.Frame{Data: render(p.framing, r.Seq, r.Data), Seq: r.Seq}), nil
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

// render returns a record's event, without its id.
func render(f Framing, seq uint64, data []byte) []byte {
	size := len(dataOpen) + len(data) + len(dataClose)
	var digits [20]byte
	var number []byte
	if f == Event {
		number = strconv.AppendUint(digits[:0], seq, 10)
		size += len(chunkOpen) + len(seqOpen) + len(number) + len("}")
	}
	out := append(make([]byte, 0, size), dataOpen...)
	if f == Event {
		out = append(out, chunkOpen...)
	}
	out = append(out, data...)
	if f == Event {
		out = append(append(append(out, seqOpen...), number...), '}')
	}
	if bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		return sse.AppendEvent(nil, "", out[len(dataOpen):]) // several data lines
	}
	return append(out, dataClose...)
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

package native

import (
	"encoding/json"

	"github.com/spool-run/spool/chunk"
)

// Decoder reads the data of a stream's events in any framing. In lean framing most events
// need the one before them, so it must be given every event, in order. When a client
// reconnects it may use the same decoder: the first event of a stream needs no other.
// The zero value is ready.
type Decoder struct {
	before head   // of the latest record, in memory of the decoder's own
	known  bool   // there is one, and it has a head
	seq    uint64 // its sequence
	buf    []byte // used by lean
}

// Decode reads the data of the next event. It fails with [chunk.ErrInvalidChunk]. The
// message keeps no reference to data.
func (d *Decoder) Decode(data []byte) (Message, error) {
	if len(data) > 0 && data[0] == '[' {
		return d.lean(data)
	}
	m, err := Parse(data)
	if err == nil && m.Kind == KindChunk {
		h, _, ok := split(m.Chunk)
		if d.known, d.seq = ok, m.Seq; ok {
			d.remember(&h)
		}
	}
	return m, err
}

// remember copies a head, since messages belong to their reader.
func (d *Decoder) remember(h *head) {
	b := &d.before
	b.kind, b.agent = append(b.kind[:0], h.kind...), append(b.agent[:0], h.agent...)
	b.place, b.call = append(b.place[:0], h.place...), append(b.call[:0], h.call...)
	b.time = h.time
}

// lean reads a record as [appendLean] writes it: [milliseconds, {members}] or
// [milliseconds, sequences, {members}], since the record before it.
func (d *Decoder) lean(data []byte) (Message, error) {
	if !d.known {
		return Message{}, chunk.ErrInvalidChunk.Because("a lean record has no record before it")
	}
	s := scan{left: data[1:]}
	h, gap := d.before, uint64(1)
	h.time += s.number()
	s.comma()
	if !s.next(`{`) {
		n := s.number()
		s.failed = s.failed || n < 1
		gap = uint64(n)
		s.comma()
	}
	if s.failed || h.time >= maxNumber || h.time <= -maxNumber || d.seq >= maxNumber || !s.next(`{`) || !json.Valid(data) {
		return Message{}, chunk.ErrInvalidChunk.Because("a lean record is malformed")
	}
	d.buf = append(append(d.buf[:0], ','), s.left[1:len(s.left)-1]...)
	rest, ok := h.read(d.buf)
	if !ok {
		return Message{}, chunk.ErrInvalidChunk.Because("a lean record is malformed")
	}
	d.seq += gap
	d.remember(&h)
	return Message{Kind: KindChunk, Seq: d.seq, Chunk: h.append(make([]byte, 0, h.size()+len(rest)), rest)}, nil
}

// read takes over the members of the head that a lean record has, and returns its rest.
// There is a comma before each member, also before the first.
func (h *head) read(members []byte) (rest []byte, ok bool) {
	s := scan{left: members}
	if s.next(`,"type":`) {
		s.comma()
		h.kind = s.strings(`"type":"`)
	}
	if s.next(`,"agentId":`) {
		s.comma()
		h.agent = s.strings(`"agentId":"`, `,"agentType":"`)
	}
	if s.next(`,"step":`) {
		s.comma()
		h.place = s.place()
	}
	if s.next(`,"toolCallId":`) {
		s.comma()
		h.call = s.strings(`"toolCallId":"`)
	}
	if rest = s.left; string(rest) == `,}` { // it has no members
		rest = rest[1:]
	}
	return rest, !s.failed && ends(rest)
}

// size is an upper bound of what append writes before the rest.
func (h *head) size() int {
	return len(h.kind) + len(h.agent) + len(h.place) + len(h.call) + len(`{,"timestamp":-999999999999999,,`)
}

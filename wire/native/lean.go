package native

import (
	"bytes"
	"strconv"

	"github.com/spool-run/spool/chunk"
)

// before is the record that was shown last, in lean framing.
type before struct {
	head
	seq   uint64
	known bool   // there is one, and it has a head
	start []byte // its head up to the number of its timestamp
	end   []byte // and from there on
}

// render appends a record's event in lean framing, without its id, and keeps the record.
func (b *before) render(dst []byte, r *chunk.Record) []byte {
	fits := r.Seq < maxNumber && !breaks(r.Data)
	follows := b.known && r.Seq > b.seq
	if fits && follows {
		if at, rest, same := b.same(r.Data); same {
			dst = appendOpening(append(dst, dataOpen...), at-b.time, r.Seq-b.seq)
			dst = append(append(dst, bytes.TrimPrefix(rest, []byte(","))...), "]"+dataClose...)
			b.time, b.seq = at, r.Seq
			return dst
		}
	}
	now := before{seq: r.Seq}
	var rest []byte
	if fits {
		rest = now.take(r.Data)
	}
	if now.known && follows && (len(now.call) > 0 || len(b.call) == 0) {
		dst = append(appendLean(append(dst, dataOpen...), &b.head, &now.head, r.Seq-b.seq, rest), dataClose...)
	} else {
		dst = render(dst, Event, r.Seq, r.Data)
	}
	*b = now
	return dst
}

// take keeps a record, and returns the rest of it if it has a head.
func (b *before) take(data []byte) (rest []byte) {
	if b.head, rest, b.known = split(data); !b.known {
		return nil
	}
	n := len(`{,,"timestamp":`) + len(b.kind) + len(b.agent)
	b.start, data = data[:n], data[:len(data)-len(rest)]
	if n = len(data) - len(`,`) - len(b.place); len(b.call) > 0 {
		n -= len(`,`) + len(b.call)
	}
	b.end = data[n:]
	return rest
}

// same reports whether a record has the same head but for its timestamp, as a long answer's
// deltas have. [split] would find the same, but slower.
func (b *before) same(data []byte) (at int64, rest []byte, ok bool) {
	s := scan{left: data}
	if !bytes.HasPrefix(data, b.start) {
		return 0, nil, false
	}
	s.left = s.left[len(b.start):]
	at = s.number()
	if s.failed || at >= maxNumber || at <= -maxNumber || !bytes.HasPrefix(s.left, b.end) {
		return 0, nil, false
	}
	rest = s.left[len(b.end):]
	return at, rest, ends(rest)
}

// head is how a record begins: the members that its neighbours mostly have, too, as they are
// written, without the comma before them.
type head struct {
	kind  []byte // "type":"…"
	agent []byte // "agentId":"…","agentType":"…"
	time  int64  // of "timestamp":…
	place []byte // "step":…, and "runId":"…" if the record is a run's
	call  []byte // "toolCallId":"…" if that comes next
}

// split cuts a record into its head and the rest, from the rest's comma on. It reads no
// further than the head, and only what [chunk.Append] writes: of any other record ok is
// false. With the same head and rest, [head.append] writes the same record again.
func split(data []byte) (h head, rest []byte, ok bool) {
	s := scan{left: data}
	if !s.skip(`{`) {
		return h, nil, false
	}
	h.kind = s.strings(`"type":"`)
	s.comma()
	h.agent = s.strings(`"agentId":"`, `,"agentType":"`)
	s.comma()
	h.time = s.timestamp()
	s.comma()
	h.place = s.place()
	if bytes.HasPrefix(s.left, []byte(`,"toolCallId":"`)) {
		s.comma()
		h.call = s.strings(`"toolCallId":"`)
	}
	return h, s.left, !s.failed && ends(s.left)
}

// ends reports whether what follows the head ends an object, and begins with none of the
// head's members, so that a reader does not mistake one of the rest for one of the head.
func ends(rest []byte) bool {
	if len(rest) < 3 || rest[0] != ',' || rest[1] != '"' {
		return len(rest) == 1 && rest[0] == '}'
	}
	if bytes.IndexByte([]byte("tasr"), rest[2]) < 0 {
		return rest[len(rest)-1] == '}'
	}
	for _, key := range [...]string{`type"`, `toolCallId"`, `timestamp"`, `agentId"`, `agentType"`, `step"`, `runId"`} {
		if rest := rest[2:]; len(rest) >= len(key) && string(rest[:len(key)]) == key {
			return false
		}
	}
	return rest[len(rest)-1] == '}'
}

// append appends the record with this head and rest.
func (h *head) append(dst, rest []byte) []byte {
	dst = append(append(dst, '{'), h.kind...)
	dst = append(append(dst, ','), h.agent...)
	dst = strconv.AppendInt(append(dst, `,"timestamp":`...), h.time, 10)
	dst = append(append(dst, ','), h.place...)
	if len(h.call) > 0 {
		dst = append(append(dst, ','), h.call...)
	}
	return append(dst, rest...)
}

// appendLean appends the data of a record's event after one with the head p: what differs
// in h, and the rest. gap is the difference of their sequences.
func appendLean(dst []byte, p, h *head, gap uint64, rest []byte) []byte {
	dst = appendOpening(dst, h.time-p.time, gap)
	from := len(dst)
	for _, m := range [...]struct{ before, now []byte }{{p.kind, h.kind}, {p.agent, h.agent}, {p.place, h.place}, {p.call, h.call}} {
		if bytes.Equal(m.before, m.now) {
			continue
		}
		if len(dst) > from {
			dst = append(dst, ',')
		}
		dst = append(dst, m.now...)
	}
	if len(dst) == from && rest[0] == ',' {
		rest = rest[1:]
	}
	return append(append(dst, rest...), ']')
}

func appendOpening(dst []byte, later int64, gap uint64) []byte {
	dst = append(strconv.AppendInt(append(dst, '['), later, 10), ',')
	if gap != 1 {
		dst = append(strconv.AppendUint(dst, gap, 10), ',')
	}
	return append(dst, '{')
}

// maxNumber bounds the timestamps and sequences of lean records, so that every client can
// add them up.
const maxNumber = 1e15

// scan reads what it is asked for from the beginning of left. What it returns are slices of
// that. Once something else was there, failed is set.
type scan struct {
	left   []byte
	failed bool
}

func (s *scan) skip(text string) bool {
	if s.failed || len(s.left) < len(text) || string(s.left[:len(text)]) != text {
		s.failed = true
		return false
	}
	s.left = s.left[len(text):]
	return true
}

func (s *scan) comma() { s.skip(`,`) }

// next reports whether this member is next.
func (s *scan) next(key string) bool {
	return !s.failed && len(s.left) >= len(key) && string(s.left[:len(key)]) == key
}

// strings reads members, with their commas, whose values are strings without escapes.
func (s *scan) strings(keys ...string) []byte {
	from := s.left
	for _, key := range keys {
		if !s.skip(key) {
			return nil
		}
		n := bytes.IndexByte(s.left, '"')
		if n < 0 || bytes.IndexByte(s.left[:n], '\\') >= 0 {
			s.failed = true
			return nil
		}
		s.left = s.left[n+1:]
	}
	return from[:len(from)-len(s.left)]
}

// number reads a whole number as [strconv.AppendInt] writes it, of at most 16 digits.
func (s *scan) number() (n int64) {
	minus := s.next(`-`)
	if minus {
		s.left = s.left[1:]
	}
	i := 0
	for ; i < len(s.left) && i < 17 && s.left[i] >= '0' && s.left[i] <= '9'; i++ {
		n = n*10 + int64(s.left[i]-'0')
	}
	if i == 0 || i > 16 || s.left[0] == '0' && (i > 1 || minus) {
		s.failed = true
		return 0
	}
	if s.left = s.left[i:]; minus {
		n = -n
	}
	return n
}

func (s *scan) timestamp() int64 {
	if !s.skip(`"timestamp":`) {
		return 0
	}
	n := s.number()
	s.failed = s.failed || n >= maxNumber || n <= -maxNumber
	return n
}

// place reads the step, and the run if it follows.
func (s *scan) place() []byte {
	from := s.left
	if !s.skip(`"step":`) {
		return nil
	}
	s.number()
	if s.next(`,"runId":"`) {
		s.comma()
		s.strings(`"runId":"`)
	}
	return from[:len(from)-len(s.left)]
}

package spool

import (
	"cmp"
	"sort"

	"github.com/spool-run/spool/chunk"
)

// mark is the end of a record's frames in a segment.
type mark struct {
	seq    uint64
	bytes  int
	frames int
	// Where its terminal or cut frames begin, if it has any.
	plainBytes  int
	plainFrames int
	stop        bool
}

// segment is a series of rendered frames in one piece of memory. Appended bytes never
// move, so readers share them without copying.
type segment struct {
	buf    []byte
	frames []Frame
	marks  []mark
}

// rendered is an upper bound of the bytes that frames take, with their ids.
func rendered(frames []Frame) int {
	n := 0
	for i := range frames {
		n += len(frames[i].Data)
		if frames[i].Seq != 0 {
			n += len("id: 9007199254740991.9007199254740991\n")
		}
	}
	return n
}

// add appends a record's frames. An id with a sequence is that of each of them.
func (s *segment) add(seq uint64, frames []Frame, id Cursor) {
	m := mark{seq: seq}
	s.buf = growTo(s.buf, rendered(frames))
	for _, f := range frames {
		if (f.Terminal || f.Cut) && !m.stop {
			m.stop, m.plainBytes, m.plainFrames = true, len(s.buf), len(s.frames)
		}
		if f.Seq != 0 || id.Seq != 0 {
			id := id
			id.Seq = cmp.Or(id.Seq, f.Seq)
			s.buf = id.AppendID(s.buf)
		}
		from := len(s.buf)
		s.buf = append(s.buf, f.Data...)
		f.Data = s.buf[from:len(s.buf):len(s.buf)]
		s.frames = append(s.frames, f)
	}
	m.bytes, m.frames = len(s.buf), len(s.frames)
	s.marks = append(s.marks, m)
}

// render appends the record's frame, if it has one, with an id.
func (s *segment) render(w Renderer, r *chunk.Record, incarnation uint64) {
	buf := Cursor{Seq: r.Seq, Incarnation: incarnation}.AppendID(s.buf)
	from := len(buf)
	if buf = w.Render(buf, r); len(buf) > from {
		s.buf = buf
		s.frames = append(s.frames, Frame{Data: buf[from:len(buf):len(buf)], Seq: r.Seq})
		s.marks = append(s.marks, mark{seq: r.Seq, bytes: len(buf), frames: len(s.frames)})
	}
}

// growTo makes room for n more bytes. Earlier frames stay in their memory.
func growTo(buf []byte, n int) []byte {
	if cap(buf)-len(buf) >= n {
		return buf
	}
	return append(make([]byte, 0, max(2*cap(buf), len(buf)+n)), buf...)
}

// reset empties the segment and keeps its memory, at least n bytes and, if a large record
// has made it larger, at most twice as many.
func (s *segment) reset(n int) {
	if cap(s.buf) < n || cap(s.buf) > 2*n {
		s.buf = make([]byte, 0, n+n/8) // the last record begins below n
	}
	s.buf, s.frames, s.marks = s.buf[:0], s.frames[:0], s.marks[:0]
}

func (s *segment) last() *mark { return &s.marks[len(s.marks)-1] }

// after returns the frames of the records after a sequence, up to the first that has
// terminal or cut frames. at is the last of these records.
func (s *segment) after(seq uint64) Batch {
	i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].seq > seq })
	var from mark
	if i > 0 {
		from = s.marks[i-1]
	}
	end := i
	for end < len(s.marks)-1 && !s.marks[end].stop {
		end++
	}
	to := s.marks[end]
	b := Batch{
		Bytes:  s.buf[from.bytes:to.bytes:to.bytes],
		Frames: s.frames[from.frames:to.frames:to.frames],
		Plain:  to.bytes - from.bytes, PlainFrames: to.frames - from.frames,
		At: to.seq,
	}
	if to.stop {
		b.Plain, b.PlainFrames = to.plainBytes-from.bytes, to.plainFrames-from.frames
	}
	return b
}

func (s *segment) size() int { return cap(s.buf) + len(s.frames)*64 + len(s.marks)*64 }

// ring holds the frames of the latest records, in a bounded number of bytes.
type ring struct {
	max  int    // bytes
	base uint64 // the frames of all records after this are here
	segs []*segment
	old  int // bytes of all segments but the last
}

type ringState uint8

const (
	ringNone ringState = iota // there are no frames after the position
	ringHas
	ringLost // there were some, but they were dropped
)

func (r *ring) add(seq uint64, frames []Frame, incarnation uint64) {
	need := rendered(frames)
	n := len(r.segs)
	if n == 0 || cap(r.segs[n-1].buf)-len(r.segs[n-1].buf) < need {
		size := min(4<<10, r.max/4)
		if n > 0 {
			size = min(2*cap(r.segs[n-1].buf), segmentBytes, r.max/4)
			r.old += r.segs[n-1].size()
		}
		r.segs = append(r.segs, &segment{buf: make([]byte, 0, max(size, need))})
		n++
	}
	r.segs[n-1].add(seq, frames, Cursor{Incarnation: incarnation})
	drop := 0
	for drop < n-1 && r.old+r.segs[n-1].size() > r.max {
		r.old -= r.segs[drop].size()
		r.base = r.segs[drop].last().seq
		drop++
	}
	if drop > 0 {
		r.segs = append([]*segment(nil), r.segs[drop:]...)
	}
}

// size returns how many bytes the ring holds.
func (r *ring) size() int {
	if len(r.segs) == 0 {
		return 0
	}
	return r.old + r.segs[len(r.segs)-1].size()
}

// after returns the frames after a sequence that lie in one segment; at is the ring's
// last sequence.
func (r *ring) after(seq, at uint64) (Batch, ringState) {
	n := len(r.segs)
	switch {
	case seq < r.base:
		return Batch{}, ringLost
	case n == 0 || r.segs[n-1].last().seq <= seq:
		return Batch{}, ringNone
	}
	i := n - 1
	for i > 0 && r.segs[i-1].last().seq > seq {
		i--
	}
	b := r.segs[i].after(seq)
	if i == n-1 && b.At == r.segs[i].last().seq {
		b.At = max(at, b.At)
	}
	return b, ringHas
}

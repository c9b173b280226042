package spool

import (
	"strconv"
	"strings"
)

// Cursor is a position in a log that a reader has seen. It is exclusive: "after 42".
// The zero Cursor is the start of the log, in any incarnation.
//
// Its text form is an SSE event id: "42", or "42.3" in incarnation 3, and "p5-42"
// ("p5-42.3") for a reader that has seen the first five frames of the plan made at
// record 42. Because of the p, a parser that expects a number does not mistake a place
// inside a plan for a position in the log.
type Cursor struct {
	Seq         uint64
	Incarnation uint64 // 0: not given, which means the first
	InPlan      bool   // the reader was inside the plan made at Seq…
	PlanFrames  uint64 // …and has seen this many of its frames
}

// String returns the cursor's text form.
func (c Cursor) String() string { return string(c.AppendText(nil)) }

// AppendText appends the text form to dst.
func (c Cursor) AppendText(dst []byte) []byte {
	if c.InPlan {
		dst = append(dst, 'p')
		dst = strconv.AppendUint(dst, c.PlanFrames, 10)
		dst = append(dst, '-')
	}
	dst = strconv.AppendUint(dst, c.Seq, 10)
	if c.Incarnation > 1 {
		dst = append(dst, '.')
		dst = strconv.AppendUint(dst, c.Incarnation, 10)
	}
	return dst
}

// AppendID appends the line "id: CURSOR\n" of an SSE event.
func (c Cursor) AppendID(dst []byte) []byte {
	return append(c.AppendText(append(dst, "id: "...)), '\n')
}

// ParseCursor reads a cursor's text form. It fails with [ErrCursorMalformed].
func ParseCursor(s string) (Cursor, error) {
	var c Cursor
	rest := s
	if after, ok := strings.CutPrefix(rest, "p"); ok {
		k, tail, found := strings.Cut(after, "-")
		n, valid := parseDecimal(k)
		if !found || !valid {
			return Cursor{}, ErrCursorMalformed
		}
		c.InPlan, c.PlanFrames, rest = true, n, tail
	}
	seq, incarnation, dotted := strings.Cut(rest, ".")
	n, valid := parseDecimal(seq)
	if !valid {
		return Cursor{}, ErrCursorMalformed
	}
	c.Seq = n
	if dotted {
		n, valid := parseDecimal(incarnation)
		if !valid || n < 2 {
			return Cursor{}, ErrCursorMalformed
		}
		c.Incarnation = n
	}
	return c, nil
}

// parseDecimal accepts what AppendUint writes and nothing else: no sign, no
// leading zero, at most 2^53-1 so that every client can hold it.
func parseDecimal(s string) (uint64, bool) {
	if s == "" || len(s) > 16 || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	var n uint64
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + uint64(d)
	}
	return n, n < 1<<53
}

// InIncarnation reports whether the cursor is a position in the incarnation that the
// log has at h.
func (c Cursor) InIncarnation(h Head) bool { return max(c.Incarnation, 1) == h.Incarnation }

// Check returns nil if a log with this head can serve all that follows the cursor, and
// [ErrCursorAhead] or [ErrTrimmed] if not. The start of a log can be served always.
func (c Cursor) Check(h Head) error {
	switch {
	case c == Cursor{}:
		return nil
	case !c.InIncarnation(h) || c.Seq > h.Seq:
		return ErrCursorAhead
	case c.Seq > 0 && c.Seq < h.TraceFloor:
		return ErrTrimmed
	}
	return nil
}

// CheckInLog is Check for a reader of the log itself, whose plan is what remains of
// trimmed trace: see [ReadOptions].
func (c Cursor) CheckInLog(h Head) error {
	switch {
	case !c.InPlan:
		return c.Check(h)
	case !c.InIncarnation(h) || c.Seq > h.TraceFloor:
		return ErrCursorAhead
	case h.Floor > 0: // the plan may have begun with records that are gone
		return ErrTrimmed
	}
	return nil
}

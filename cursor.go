package spool

import "github.com/spool-run/spool/internal/position"

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
func (c Cursor) AppendText(dst []byte) []byte { return position.Position(c).Append(dst) }

// AppendID appends the line "id: CURSOR\n" of an SSE event.
func (c Cursor) AppendID(dst []byte) []byte {
	return append(c.AppendText(append(dst, "id: "...)), '\n')
}

// ParseCursor reads a cursor's text form. It fails with [ErrCursorMalformed].
func ParseCursor(s string) (Cursor, error) {
	p, ok := position.Parse(s)
	if !ok {
		return Cursor{}, ErrCursorMalformed
	}
	return Cursor(p), nil
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

package wire

import (
	"net/http"

	"github.com/spool-run/spool"
)

// The headers that name a position, in order of precedence.
const (
	HeaderLastEventID = "Last-Event-ID"
	HeaderResumeFrom  = "X-Resume-From-Sequence"
	HeaderResumeAt    = "X-Resume-At"
)

// PositionKind says what a request's position means.
type PositionKind uint8

const (
	NoPosition PositionKind = iota
	// Seen: everything up to the cursor was received; go on exactly there.
	Seen
	// Snapshot: the cursor is that of the snapshot from which the page was built.
	Snapshot
	// Counted: this many frames of a run were received; a negative number counts
	// from the newest frame.
	Counted
)

// Position is where a reader comes from.
type Position struct {
	Kind   PositionKind
	Cursor spool.Cursor // Seen, Snapshot
	Frames int          // Counted
}

// ReadPosition reads the parameter ?after= or else the headers. A malformed
// parameter is [spool.ErrCursorMalformed], a malformed header is ignored.
func ReadPosition(r Request) (Position, error) {
	if r.Query.Has("after") {
		c, err := spool.ParseCursor(r.Query.Get("after"))
		if err != nil {
			return Position{}, err
		}
		return Position{Kind: Seen, Cursor: c}, nil
	}
	return HeaderPosition(r.Header), nil
}

// HeaderPosition reads the position from the headers: the first of Last-Event-ID,
// X-Resume-From-Sequence and X-Resume-At that is well-formed.
func HeaderPosition(h http.Header) Position {
	for _, name := range []string{HeaderLastEventID, HeaderResumeFrom, HeaderResumeAt} {
		c, err := spool.ParseCursor(h.Get(name))
		if err != nil {
			continue
		}
		if name == HeaderLastEventID {
			return Position{Kind: Seen, Cursor: c}
		}
		return Position{Kind: Snapshot, Cursor: c}
	}
	return Position{}
}

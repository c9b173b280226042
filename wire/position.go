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

// PositionKind is the meaning of a request's position.
type PositionKind uint8

const (
	NoPosition PositionKind = iota
	// Seen: the client has received everything up to the cursor and continues exactly
	// there.
	Seen
	// Snapshot: the cursor is that of the snapshot from which the page was built.
	Snapshot
	// Counted: the client has received this many frames of a run. A negative number
	// counts back from the newest frame.
	Counted
)

// Position is the position that a request names.
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

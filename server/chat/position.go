package chat

import (
	"net/http"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/wire/aisdk"
)

// Headers of chat requests and answers.
const (
	HeaderLastEventID     = aisdk.HeaderLastEventID
	HeaderResumeFrom      = aisdk.HeaderResumeFrom
	HeaderResumeAt        = aisdk.HeaderResumeAt
	HeaderExistingMessage = "X-Existing-Message-Id"
	HeaderSession         = "X-Session-Id"
	HeaderIncarnation     = "X-Stream-Incarnation"
	HeaderUI              = "X-Spool-UI"
	HeaderWorkflowRun     = "X-Workflow-Run-Id"
	HeaderWorkflowTail    = "X-Workflow-Stream-Tail-Index"

	// AISDKUIHeader marks a request of an AI SDK client by the value
	// AISDKUIHeaderValue.
	AISDKUIHeader      = aisdk.Header
	AISDKUIHeaderValue = aisdk.HeaderValue
)

// PositionKind says what a request's position means.
type PositionKind uint8

const (
	NoPosition PositionKind = iota
	// SeenPosition: everything up to the cursor was received; go on exactly
	// there (Last-Event-ID, ?after=).
	SeenPosition
	// SnapshotPosition: the cursor is that of a snapshot the page was built from
	// (X-Resume-From-Sequence, X-Resume-At).
	SnapshotPosition
)

// Position is where a reader comes from.
type Position struct {
	Kind   PositionKind
	Cursor spool.Cursor
}

// ExtractResumePosition reads the position from a request's headers: the first
// of Last-Event-ID, X-Resume-From-Sequence and X-Resume-At that is well-formed.
// A header that is not is ignored.
func ExtractResumePosition(h http.Header) Position {
	c, header, ok := aisdk.ExtractResumePosition(h)
	switch {
	case !ok:
		return Position{}
	case header == HeaderLastEventID:
		return Position{Kind: SeenPosition, Cursor: c}
	}
	return Position{Kind: SnapshotPosition, Cursor: c}
}

// ParseResumePosition reads one header value; what is no position is none.
func ParseResumePosition(value string) Position {
	c, ok := aisdk.ParseResumePosition(value)
	if !ok {
		return Position{}
	}
	return Position{Kind: SeenPosition, Cursor: c}
}

// RequestPosition is [ExtractResumePosition] with the parameter ?after= before
// the headers. A malformed parameter is [spool.ErrCursorMalformed].
func RequestPosition(r *http.Request) (Position, error) {
	q := r.URL.Query()
	if q.Has("after") {
		c, err := spool.ParseCursor(q.Get("after"))
		if err != nil {
			return Position{}, err
		}
		return Position{Kind: SeenPosition, Cursor: c}, nil
	}
	return ExtractResumePosition(r.Header), nil
}

// checkCursor says whether a cursor belongs to this log at all.
func checkCursor(c spool.Cursor, h spool.Head) error {
	if max(c.Incarnation, 1) != max(h.Incarnation, 1) || c.Seq > h.Seq {
		return spool.ErrCursorAhead
	}
	return nil
}

package spool

import (
	"errors"

	"github.com/spool-run/spool/chunk"
)

// The errors of logs and stores.
var (
	ErrNotFound    = &chunk.Error{Code: "not_found", Message: "there is no such session"}
	ErrClosed      = &chunk.Error{Code: "closed", Message: "the store is closed"}
	ErrSuperseded  = &chunk.Error{Code: "executor_superseded", Message: "another executor owns this session", Hint: "stop writing; whoever claimed the session goes on with it"}
	ErrNothingDue  = &chunk.Error{Code: "nothing_due", Message: "no session can be claimed"}
	ErrExists      = &chunk.Error{Code: "session_exists", Message: "there is such a session already", Hint: "branch into a session id that is not used"}
	ErrBusy        = &chunk.Error{Code: "busy", Message: "a run is active in this session", Hint: "attach to it, stop it, or send with whenBusy queue"}
	ErrUnavailable = &chunk.Error{Code: "unavailable", Message: "the store cannot be reached"}
	ErrUnsupported = &chunk.Error{Code: "unsupported", Message: "the store does not offer this"}

	// What can become of a cursor.
	ErrCursorMalformed = &chunk.Error{Code: "cursor_malformed", Message: "the cursor is not one of ours"}
	ErrTrimmed         = &chunk.Error{Code: "cursor_trimmed", Message: "records after the cursor were trimmed", Hint: "load the snapshot"}
	ErrCursorAhead     = &chunk.Error{Code: "cursor_ahead", Message: "the cursor lies beyond the log or in another incarnation of it", Hint: "load the snapshot"}
	ErrCursorRetracted = &chunk.Error{Code: "cursor_retracted", Message: "the cursor lies inside a discarded step", Hint: "load the snapshot"}
)

// Final reports whether a reader's error lasts: the position cannot be served any
// more, the session is gone, or the store is closed. Other errors, of the store
// or of a context, may pass: the same reader can go on.
func Final(err error) bool {
	for _, e := range [...]error{ErrTrimmed, ErrCursorAhead, ErrNotFound, ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

package spool

import (
	"errors"

	"github.com/spool-run/spool/chunk"
)

// The errors of logs and stores.
var (
	ErrNotFound    = &chunk.Error{Code: "not_found", Message: "there is no such session"}
	ErrClosed      = &chunk.Error{Code: "closed", Message: "the store is closed"}
	ErrSuperseded  = &chunk.Error{Code: "executor_superseded", Message: "another owner holds this session's lease", Hint: "stop writing: another owner has claimed the session and continues its run"}
	ErrNothingDue  = &chunk.Error{Code: "nothing_due", Message: "no session is due or has an expired lease"}
	ErrExists      = &chunk.Error{Code: "session_exists", Message: "a session with this id already exists", Hint: "choose a session id that is not in use"}
	ErrBusy        = &chunk.Error{Code: "busy", Message: "a run is active in this session", Hint: "attach to the run, stop it, or send the message with whenBusy: queue"}
	ErrQuota       = &chunk.Error{Code: "quota_exceeded", Message: "the session has reached a limit: no further turn can begin", Hint: "begin a new session, or delete this one; the policy sets the limits (--max-turns, --max-session-bytes)"}
	ErrUnavailable = &chunk.Error{Code: "unavailable", Message: "the store cannot be reached", Hint: "try again: runs and attached streams continue when the store is back"}
	ErrNotStored   = &chunk.Error{Code: "not_stored", Message: "nothing was stored"}
	ErrUnsupported = &chunk.Error{Code: "unsupported", Message: "the store does not support this operation"}

	// Why a cursor cannot be served.
	ErrCursorMalformed = &chunk.Error{Code: "cursor_malformed", Message: "the cursor is malformed", Hint: "send the id of an event as it was received"}
	ErrTrimmed         = &chunk.Error{Code: "cursor_trimmed", Message: "records after the cursor were trimmed", Hint: "load the snapshot and attach from its position"}
	ErrCursorAhead     = &chunk.Error{Code: "cursor_ahead", Message: "the cursor is beyond the end of the log, or belongs to an earlier log that was deleted or lost", Hint: "load the snapshot and attach from its position"}
	ErrCursorRetracted = &chunk.Error{Code: "cursor_retracted", Message: "the cursor points to content that was retracted", Hint: "load the snapshot and attach from its position"}
)

// errLost is the error for an owner whose log has lost records.
var errLost = &chunk.Error{Code: ErrSuperseded.Code, Message: "the store has lost records of this session since its lease was claimed",
	Hint: "stop writing: the next owner continues from what the log holds"}

// errPrincipalQuota is [ErrQuota] for what all sessions of a principal use.
var errPrincipalQuota = &chunk.Error{Code: ErrQuota.Code, Hint: "delete sessions that are no longer needed; the policy sets the limits (--max-sessions, --max-total-bytes)"}

// Final reports whether a reader's error is permanent: the position can no longer be
// served, the session is gone, or the store is closed. Other errors, of the store or of
// a context, are temporary: the same reader can be used again.
func Final(err error) bool {
	for _, e := range [...]error{ErrTrimmed, ErrCursorAhead, ErrNotFound, ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

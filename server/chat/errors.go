package chat

import (
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Errors of chat requests. The HTTP status follows from the code.
var (
	ErrNoMessage         = &chunk.Error{Code: "no_message", Message: "the body holds neither a message nor an answer to a pending call", Hint: "send message, or messages whose last one is the user's"}
	ErrNothingToContinue = &chunk.Error{Code: "nothing_to_continue", Message: "no pending call of this session matches these answers"}
	ErrNoSuchCall        = &chunk.Error{Code: "no_such_call", Message: "the session has no such call or approval"}
	ErrAlreadyAnswered   = &chunk.Error{Code: "already_answered", Message: "this call already has a different answer"}
	ErrTooLate           = &chunk.Error{Code: "too_late", Message: "the call is settled and takes no answer any more"}
	ErrNotWaiting        = &chunk.Error{Code: "not_waiting", Message: "the run has not asked for this answer yet", Hint: "send it again once the call is asked for"}
	ErrResultInvalid     = &chunk.Error{Code: "result_invalid", Message: "the result does not match the schema that the tool declares", Hint: "the call still waits: submit another result, or an error"}
	ErrNothingToResume   = &chunk.Error{Code: "nothing_to_resume", Message: "no run of this session was interrupted or broke off", Hint: "mode with_message opens a new turn; mode from_checkpoint rewinds"}
	ErrNoSuchCheckpoint  = &chunk.Error{Code: "no_such_checkpoint", Message: "the session has no such checkpoint"}
	ErrNotInterruptible  = &chunk.Error{Code: "not_interruptible", Message: "the run belongs to an external producer and has no step boundaries here", Hint: "stop the run instead"}
	ErrNoSuchMessage     = &chunk.Error{Code: "no_such_message", Message: "the session has no such message to edit or regenerate"}
	ErrRefused           = &chunk.Error{Code: "refused", Message: "the command was refused"}
	ErrOverride          = &chunk.Error{Code: "override_not_allowed", Message: "this server does not let a request replace history or state", Hint: "allow it with Options.AllowOverrides (--allow-overrides)"}

	// ErrCut ends a stream whose reader must reconnect: the connection must be broken
	// off, not closed in good order.
	ErrCut = &chunk.Error{Code: "cut", Message: "the reader was disconnected and can reconnect"}
)

// BusyError refuses a command because a run is active. It matches
// [spool.ErrBusy].
type BusyError struct {
	Session string
	RunID   string // of the active run; "" while a command still waits for one
}

func (e *BusyError) Error() string { return spool.ErrBusy.With(e.Session, nil).Error() }

// Unwrap returns [spool.ErrBusy].
func (e *BusyError) Unwrap() error { return spool.ErrBusy }

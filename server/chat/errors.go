package chat

import (
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Errors of chat requests. The HTTP handler maps their codes to statuses.
var (
	ErrNoMessage         = &chunk.Error{Code: "no_message", Message: "the body holds neither a message nor an answer to a pending call", Hint: "send message, or messages that end with the user's"}
	ErrNothingToContinue = &chunk.Error{Code: "nothing_to_continue", Message: "no call of this session waits for these answers"}
	ErrNoSuchCall        = &chunk.Error{Code: "no_such_call", Message: "the session has no such call or approval"}
	ErrAlreadyAnswered   = &chunk.Error{Code: "already_answered", Message: "somebody has given another answer"}
	ErrTooLate           = &chunk.Error{Code: "too_late", Message: "nobody waits for this answer any more"}
	ErrNotWaiting        = &chunk.Error{Code: "not_waiting", Message: "the run has not paused for this answer yet", Hint: "send it again when the status is paused"}
	ErrResultInvalid     = &chunk.Error{Code: "result_invalid", Message: "the result is not what the tool declares", Hint: "the call still waits: submit another one, or an error"}
	ErrNothingToResume   = &chunk.Error{Code: "nothing_to_resume", Message: "no run of this session was interrupted or broke off, so that it could go on", Hint: "mode with_message opens a turn, from_checkpoint goes back"}
	ErrNoSuchCheckpoint  = &chunk.Error{Code: "no_such_checkpoint", Message: "the session has no such checkpoint"}
	ErrNotInterruptible  = &chunk.Error{Code: "not_interruptible", Message: "the run is a producer's, who alone knows its steps", Hint: "stop it"}
	ErrNoSuchMessage     = &chunk.Error{Code: "no_such_message", Message: "the session has no such message to edit or regenerate"}
	ErrRefused           = &chunk.Error{Code: "refused", Message: "the command was refused"}
	ErrOverride          = &chunk.Error{Code: "override_not_allowed", Message: "this server does not let a request replace history or state", Hint: "allow overrides in the server's options"}

	// ErrCut ends a stream whose reader must come back: the connection is to be
	// broken, not closed.
	ErrCut = &chunk.Error{Code: "cut", Message: "the reader was cut and may come back"}
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

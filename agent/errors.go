package agent

import (
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/model"
)

// How a run fails other than by its model.
var (
	ErrToolFatal     = &chunk.Error{Code: "tool_fatal", Message: "a tool ended the run"}
	ErrOutputInvalid = &chunk.Error{Code: "output_invalid", Message: "the answer does not match the requested output schema"}
	ErrHookFailed    = &chunk.Error{Code: "hook_failed", Message: "a hook ended the run"}
	// ErrLost is for a run whose process was lost, and which is not continued.
	ErrLost = &chunk.Error{Code: "executor_lost", Message: "the process that executed the run was lost"}
)

// foreign returns the error of a model, a tool or a hook without the errors of a log
// that it may wrap. Otherwise they would be taken for errors of the run's own log.
func foreign(err error) error {
	for _, own := range []*chunk.Error{spool.ErrSuperseded, spool.ErrClosed, spool.ErrUnavailable} {
		if errors.Is(err, own) {
			return errors.New(err.Error())
		}
	}
	return err
}

var errPanicked = errors.New("agent: it panicked")

// Describe returns what a failed run's log says of its error, which everyone who reads
// the log can see. Of a [*model.Error] or a [*chunk.Error] that is the code and the
// message, without the cause; of any other error it is only that the agent failed. A
// cause may name hosts and hold secrets: the owner of the run logs it.
func Describe(err error) chunk.ErrorInfo {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return chunk.ErrorInfo{Error: shown(e.Message), Code: e.Code, Recoverable: e.Retryable}
	}
	if e, ok := errors.AsType[*chunk.Error](err); ok {
		text := e.Message
		if e.Err != nil && (e.Code == ErrToolFatal.Code || e.Code == ErrOutputInvalid.Code) {
			text += ": " + e.Err.Error() // the model was told the same
		}
		return chunk.ErrorInfo{Error: shown(text), Code: e.Code, Recoverable: e.Retryable()}
	}
	return chunk.ErrorInfo{Error: "the agent failed", Code: "agent_failed"}
}

// shown makes a text that others made fit to be stored and shown.
func shown(text string) string { return clip(redact.Text(text)) }

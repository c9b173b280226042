package frontend

import (
	"encoding/json"
	"errors"

	"github.com/spool-run/spool/chunk"
)

// HandlerError is an error of [Handler]. Callers turn it into a response with its
// StatusCode and the body {error, code}. It has one of the codes below; errors.Is
// compares codes.
type HandlerError struct {
	Message    string
	Code       string
	StatusCode int
	Err        error
}

// The errors of [Handler]. Wrap one with [HandlerError.With].
var (
	ValidationError     = &HandlerError{Code: "VALIDATION_ERROR", StatusCode: 400, Message: "a request parameter is missing or not valid"}
	StreamNotFoundError = &HandlerError{Code: "STREAM_NOT_FOUND", StatusCode: 404, Message: "the stream does not exist"}
	StreamFailedError   = &HandlerError{Code: "STREAM_FAILED", StatusCode: 410, Message: "the stream has failed"}
	ConfigurationError  = &HandlerError{Code: "CONFIGURATION_ERROR", StatusCode: 501, Message: "the handler is not configured for this request"}
	ExecutionError      = &HandlerError{Code: "EXECUTION_ERROR", StatusCode: 500, Message: "the agent could not be executed"}
	StreamCreationError = &HandlerError{Code: "STREAM_CREATION_ERROR", StatusCode: 500, Message: "the stream could not be created"}

	// BusyError: a POST that does not want to wait came while a run is open.
	BusyError = &HandlerError{Code: "BUSY", StatusCode: 409, Message: "a run of this session is open"}
	// The position of a GET cannot be served: the client loads a snapshot and begins
	// there.
	CursorTrimmedError   = &HandlerError{Code: "CURSOR_TRIMMED", StatusCode: 409, Message: "the records after this position are trimmed"}
	CursorRetractedError = &HandlerError{Code: "CURSOR_RETRACTED", StatusCode: 409, Message: "what was shown at this position was taken back"}
	CursorAheadError     = &HandlerError{Code: "CURSOR_AHEAD", StatusCode: 409, Message: "the log is shorter than this position"}
	CursorMalformedError = &HandlerError{Code: "CURSOR_MALFORMED", StatusCode: 400, Message: "this is not a position"}
)

func (e *HandlerError) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *HandlerError) Unwrap() error { return e.Err }

// Is compares codes.
func (e *HandlerError) Is(target error) bool {
	t, ok := target.(*HandlerError)
	return ok && t.Code == e.Code
}

// With returns a copy that wraps a cause and has another message, unless message is
// empty.
func (e *HandlerError) With(message string, cause error) *HandlerError {
	c := *e
	c.Err = cause
	if message != "" {
		c.Message = message
	}
	return &c
}

// MarshalJSON writes {error, code}.
func (e *HandlerError) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}{e.Error(), e.Code})
}

// frontendError turns an error into a [HandlerError]. An error that is neither the
// request's nor the stream's becomes fallback.
func frontendError(err error, fallback *HandlerError) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*HandlerError](err); ok {
		return f
	}
	switch chunk.CodeOf(err) {
	case "malformed_json", "no_message", "nothing_to_continue", "nothing_to_resume", "no_such_message", "result_invalid", "invalid_session_id",
		"invalid_id", "invalid", "invalid_chunk", "too_large", "refused":
		return ValidationError.With("", err)
	case "busy":
		return BusyError.With("", err)
	case "cursor_trimmed":
		return CursorTrimmedError.With("", err)
	case "cursor_retracted":
		return CursorRetractedError.With("", err)
	case "cursor_ahead":
		return CursorAheadError.With("", err)
	case "cursor_malformed":
		return CursorMalformedError.With("", err)
	case "not_found", "no_such_checkpoint":
		return StreamNotFoundError.With("", err)
	case "unsupported":
		return ConfigurationError.With("", err)
	}
	return fallback.With("", err)
}

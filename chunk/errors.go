package chunk

import (
	"errors"
	"strings"
)

// Error is a failure with a stable code. [errors.Is] compares codes, so a sentinel
// matches every error that was made from it.
type Error struct {
	Code    string // stable, snake_case; crosses the wire
	Message string // what happened, for people
	Hint    string // what to do about it, for operators; may be empty
	Session string // the session concerned; may be empty
	Err     error  // the cause; may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("spool: ")
	if e.Message != "" {
		b.WriteString(e.Message)
	} else {
		b.WriteString(e.Code)
	}
	if e.Session != "" {
		b.WriteString(" (session ")
		b.WriteString(e.Session)
		b.WriteString(")")
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Category says where the failure comes from.
func (e *Error) Category() Category { return InfoOf(e.Code).Category }

// Retryable reports whether the same request may succeed later.
func (e *Error) Retryable() bool { return InfoOf(e.Code).Retryable }

// Is reports whether target is an *Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// With returns a copy that names a session and wraps a cause (either may be
// empty).
func (e *Error) With(session string, cause error) *Error {
	c := *e
	c.Session, c.Err = session, cause
	return &c
}

// Because returns a copy with another message.
func (e *Error) Because(message string) *Error {
	c := *e
	c.Message = message
	return &c
}

// CodeOf returns the code of the first *Error in err's chain, or "".
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// The errors of values.
var (
	ErrTooLarge     = &Error{Code: "too_large", Message: "the value is too large"}
	ErrInvalid      = &Error{Code: "invalid", Message: "the value is not valid"}
	ErrInvalidChunk = &Error{Code: "invalid_chunk", Message: "the chunk is not valid"}
	ErrIDConflict   = &Error{Code: "id_conflict", Message: "this id belongs to another message or command", Hint: "use a new id; to change an earlier message, send its id as messageId"}
	ErrInvalidID    = &Error{Code: "invalid_id", Message: "the id is not valid", Hint: "an id has 1 to 256 bytes of UTF-8, contains no control character and no slash, and is not . or .."}
)

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// Body is a client's POST, independent of its protocol.
type Body struct {
	Session   string // "" if the body names none
	Message   *chunk.Message
	Answers   []Answer         // to pending calls
	Replace   *[]chunk.Message // the history that the body gives; nil: none
	State     json.RawMessage  // the state that the body gives; nil: none
	Trigger   Trigger
	MessageID string // the message that the trigger refers to
	WhenBusy  chunk.WhenBusy
	CommandID string // the client's own idempotency key; may be ""
}

// Answering reports whether the body only answers calls.
func (b *Body) Answering() bool {
	return b.Trigger != TriggerRegenerate && b.Message == nil && len(b.Answers) > 0
}

// Trigger is the kind of request that a body makes.
type Trigger string

const (
	TriggerSubmit     Trigger = "submit-message" // also ""
	TriggerRegenerate Trigger = "regenerate-message"
)

// Answer is a client's answer to one call: an output, or a decision. The call may not
// wait for it; the session's log decides that.
type Answer struct {
	// Agent is the session that made the call, once it is known; "" for the requested
	// session.
	Agent      string
	CallID     string
	Output     json.RawMessage // of a call that the client executed
	Error      string          // of one that failed
	ApprovalID string          // set for a decision
	Approved   bool
	Reason     string
}

// DecodeBody decodes exactly one JSON object. It fails with [ErrMalformed].
func DecodeBody(data []byte, v any) error {
	if t := bytes.TrimSpace(data); len(t) == 0 || t[0] != '{' {
		return ErrMalformed.Because("the body is not a JSON object")
	}
	return Malformed(json.Unmarshal(data, v))
}

// Malformed says in the words of JSON what is wrong with a body; nil for nil. Errors
// that have a code stay as they are.
func Malformed(err error) error {
	if err == nil || chunk.CodeOf(err) != "" {
		return err
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return ErrMalformed.With("", err)
	}
	field := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
	if field == "" {
		return ErrMalformed.Because("a member of the body must not be " + named(wrong.Value))
	}
	return ErrMalformed.Because(field + " must not be " + named(wrong.Value))
}

// named puts an article before the name of a kind of JSON value.
func named(kind string) string {
	kind, _, _ = strings.Cut(kind, " ") // "number 1e99" is one that is too large
	switch kind {
	case "array", "object":
		return "an " + kind
	case "bool":
		return "a boolean"
	}
	return "a " + kind
}

// ErrMalformed is the error of a body that cannot be read.
var ErrMalformed = &chunk.Error{Code: "malformed_json", Message: "the body is not JSON with the expected members"}

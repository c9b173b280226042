package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// Body is what a client posts, in no protocol's terms.
type Body struct {
	Session   string // "" if the body names none
	Message   *chunk.Message
	Answers   []Answer         // to calls that wait
	Replace   *[]chunk.Message // history given beside the message; nil: none
	State     json.RawMessage  // nil: none given
	Trigger   Trigger
	MessageID string // the message the trigger is about
	WhenBusy  chunk.WhenBusy
	CommandID string // the caller's own idempotency key; may be ""
}

// Trigger is what a body wants.
type Trigger string

const (
	TriggerSubmit     Trigger = "submit-message" // also ""
	TriggerRegenerate Trigger = "regenerate-message"
)

// Answer is what a client says about one call: its output, or a decision. Whether
// anyone waits for it is not the client's to say.
type Answer struct {
	// Agent is the session whose call it is, once it is known; "" for the one that
	// is asked.
	Agent      string
	CallID     string
	Output     json.RawMessage // of a call that the client ran
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

// Malformed says in the words of JSON what is wrong with a body; nil for nil.
func Malformed(err error) error {
	if err == nil {
		return nil
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
var ErrMalformed = &chunk.Error{Code: "malformed_json", Message: "the body is not JSON of the expected shape"}

package wire

import (
	"encoding/json"

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

// ErrMalformed is the error of a body that cannot be read.
var ErrMalformed = &chunk.Error{Code: "malformed_json", Message: "the body is not JSON with the expected members"}

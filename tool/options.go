package tool

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spool-run/spool"
)

// Recovery says what becomes of a call whose outcome was lost with the process
// that made it: nobody knows whether its work was done.
type Recovery string

const (
	RecoverFail  Recovery = ""      // the model is told that the outcome is unknown
	RecoverRetry Recovery = "retry" // it is made again with the same effect id: for tools that do their work once for an id, or may do it twice
	RecoverAsk   Recovery = "ask"   // a human decides whether it is made again
)

// Options add to a tool's [Spec]. The zero value of each member leaves it as it
// is.
type Options struct {
	Timeout  time.Duration
	Recovery Recovery
	// Approval makes every call wait for a human's approval; ApprovalIf only
	// those for whose input it is true.
	Approval   bool
	ApprovalIf func(input json.RawMessage) bool
}

// With returns the tool with options:
//
//	tool.With(tool.New("send_mail", "Sends a mail.", send), tool.Options{Approval: true})
func With(t Tool, o Options) Tool {
	s := t.Spec()
	if o.Timeout != 0 {
		s.Timeout = o.Timeout
	}
	if o.Recovery != RecoverFail {
		s.Recovery = o.Recovery
	}
	if o.Approval {
		s.NeedsApproval = func(json.RawMessage) bool { return true }
	} else if o.ApprovalIf != nil {
		s.NeedsApproval = o.ApprovalIf
	}
	return &configured{Tool: t, spec: s}
}

type configured struct {
	Tool
	spec Spec
}

func (c *configured) Spec() Spec { return c.spec }

// Unwrap returns the tool without the options.
func (c *configured) Unwrap() Tool { return c.Tool }

// Check implements [Checker].
func (c *configured) Check(input json.RawMessage) error { return Check(c.Tool, input) }

// Client makes a tool that the client executes, for example a page that knows where
// it is or asks its user. The run pauses until somebody submits the result, which may
// be any JSON value. In is as for [New].
func Client[In any](name, description string) Tool {
	t := New(name, description, func(Context, In) (any, error) {
		return nil, Fatal(spool.ErrUnsupported.Because("a client-executed tool was called here"))
	}).(*typed[In, any])
	t.spec.Client = true
	return t
}

// ClientOf is [Client] with a result that must satisfy the schema of Out. A server
// that knows the agents refuses any other result, and the client may submit again.
// ClientOf panics if Out has no schema.
func ClientOf[In, Out any](name, description string) Tool {
	schema, err := SchemaOf[Out]()
	if err != nil {
		panic(fmt.Sprintf("tool.ClientOf(%q): %v", name, err))
	}
	t := Client[In](name, description).(*typed[In, any])
	t.spec.Result = schema.JSON()
	return t
}

// Question is what [Ask] asks.
type Question struct {
	Question string   `json:"question" jsonschema:"what to ask the user, in full"`
	Options  []string `json:"options,omitempty" jsonschema:"answers to choose from, if only these make sense"`
}

// Ask makes a tool by which the model asks the user a question. The answer is
// submitted as the call's result.
func Ask(name, description string) Tool { return Client[Question](name, description) }

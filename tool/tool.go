// Package tool says what a tool is, makes tools from Go functions, and says what a
// running call may do.
//
//	weather := tool.New("get_weather", "The weather in a city.",
//		func(ctx tool.Context, in struct {
//			City string `json:"city" jsonschema:"name of the city"`
//		}) (Report, error) {
//			ctx.Progress(tool.Progress{Label: "asking the station"})
//			return lookUp(ctx, in.City)
//		})
//
// A plain error is an outcome: the model sees its text and goes on. An error
// wrapped by [Fatal] ends the run.
package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Tool is something that a model can call. Calls of one tool may run at the same
// time.
type Tool interface {
	Spec() Spec
	// Call does the work. The input has passed [Check]. The result is JSON; nil
	// stands for null.
	Call(ctx Context, input json.RawMessage) (json.RawMessage, error)
}

// Spec describes a tool to the model and to the agent that runs it.
type Spec struct {
	Name        string // letters, digits, - and _
	Description string
	Input       json.RawMessage // JSON Schema of an object; nil takes anything
	Timeout     time.Duration   // of one call; 0: the agent's
	Recovery    Recovery        // of a call whose outcome was lost; "": it fails
	Client      bool            // the client executes it: Call is never called
	Result      json.RawMessage // JSON Schema of what a client may submit; nil takes anything
	// NeedsApproval reports whether a call with this input waits for a human's
	// approval; nil: none does. It is asked once a call.
	NeedsApproval func(input json.RawMessage) bool
}

// Checker is implemented by tools that check an input themselves, before the call is
// dispatched.
type Checker interface {
	Check(input json.RawMessage) error
}

// Check reports why a tool cannot be called with this input, in words for the
// model, or nil.
func Check(t Tool, input json.RawMessage) error {
	if !json.Valid(input) {
		return errors.New("the arguments are not valid JSON")
	}
	if c, ok := t.(Checker); ok {
		return c.Check(input)
	}
	spec := t.Spec()
	if spec.Input == nil {
		return nil
	}
	s, err := ParseSchema(spec.Input)
	if err != nil {
		return fmt.Errorf("the schema of tool %s: %w", spec.Name, err)
	}
	return s.Validate(input)
}

// CheckResult reports why a client's result of a call of this tool is not what the
// tool declares, or nil.
func CheckResult(t Tool, result json.RawMessage) error {
	spec := t.Spec()
	if spec.Result == nil {
		return nil
	}
	s, err := ParseSchema(spec.Result)
	if err != nil {
		return fmt.Errorf("the result schema of tool %s: %w", spec.Name, err)
	}
	return s.Validate(result)
}

// New makes a tool from a function. The schema of In, a struct, is inferred from
// its fields: json tags name them, a jsonschema tag describes one, omitempty and
// omitzero make one optional. New panics if In has no schema or the name is not
// one that providers accept, as both are mistakes in the program.
func New[In, Out any](name, description string, call func(ctx Context, in In) (Out, error)) Tool {
	schema, err := SchemaOf[In]()
	if err == nil && !schema.object() {
		err = errors.New("the input is not an object")
	}
	if err == nil {
		err = CheckName(name)
	}
	if err != nil {
		panic(fmt.Sprintf("tool.New(%q): %v", name, err))
	}
	return &typed[In, Out]{
		spec:   Spec{Name: name, Description: description, Input: schema.JSON()},
		schema: schema,
		call:   call,
	}
}

type typed[In, Out any] struct {
	spec   Spec
	schema *Schema
	call   func(Context, In) (Out, error)
}

func (t *typed[In, Out]) Spec() Spec { return t.spec }

// Check implements [Checker]. An input that satisfies the schema must also decode.
func (t *typed[In, Out]) Check(input json.RawMessage) error {
	if err := t.schema.Validate(input); err != nil {
		return err
	}
	_, err := decode[In](input)
	return err
}

func (t *typed[In, Out]) Call(ctx Context, input json.RawMessage) (json.RawMessage, error) {
	in, err := decode[In](input)
	if err != nil {
		return nil, err
	}
	out, err := t.call(ctx, in)
	if err != nil {
		return nil, err
	}
	result, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("the result is not JSON: %w", err)
	}
	return result, nil
}

func decode[T any](input json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(input, &v)
	return v, err
}

// Fatal marks an error that ends the run. Fatal(nil) is nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &fatal{err}
}

// IsFatal reports whether err was marked by [Fatal].
func IsFatal(err error) bool {
	_, ok := errors.AsType[*fatal](err)
	return ok
}

type fatal struct{ err error }

func (f *fatal) Error() string { return f.err.Error() }
func (f *fatal) Unwrap() error { return f.err }

// CheckName reports why providers would not take a tool's name, or nil.
func CheckName(name string) error {
	if name == "" || len(name) > 64 || bytes.ContainsFunc([]byte(name), func(r rune) bool {
		return !(r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) {
		return errors.New("a name is 1 to 64 letters, digits, - and _")
	}
	return nil
}

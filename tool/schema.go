package tool

import (
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema is a JSON Schema (2020-12 or draft 7) that values can be checked
// against.
type Schema struct {
	raw      json.RawMessage
	resolved *jsonschema.Resolved
}

// SchemaOf infers the schema of a Go type.
func SchemaOf[T any]() (*Schema, error) {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return newSchema(s, raw)
}

// ParseSchema reads a schema's JSON.
func ParseSchema(raw json.RawMessage) (*Schema, error) {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, err
	}
	return newSchema(s, raw)
}

func newSchema(s *jsonschema.Schema, raw json.RawMessage) (*Schema, error) {
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, err
	}
	return &Schema{raw: raw, resolved: resolved}, nil
}

// JSON returns the schema itself. The bytes are shared: do not modify them.
func (s *Schema) JSON() json.RawMessage { return s.raw }

func (s *Schema) object() bool { return s.resolved.Schema().Type == "object" }

// Validate reports why a JSON value does not satisfy the schema, or nil.
func (s *Schema) Validate(value json.RawMessage) error {
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return fmt.Errorf("not valid JSON: %w", err)
	}
	return s.resolved.Validate(v)
}

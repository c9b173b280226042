package chunk

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Parse reads a chunk as a producer sends it, and validates it. It fails with an
// [*Error] of code invalid_chunk that names the field and the problem: no JSON, a
// type that this version does not know, a field of the wrong shape, a required
// field that is absent, or what [Validate] refuses. Base fields may be absent,
// since the writer fills them in; fields that the type does not have are ignored.
func Parse(data []byte) (Chunk, error) {
	if !json.Valid(data) {
		return nil, ErrInvalidChunk.Because("the chunk is not valid JSON")
	}
	t, k, _, err := typeOf(data)
	switch {
	case err != nil:
		return nil, err
	case k == nil:
		return nil, ErrInvalidChunk.Because(fmt.Sprintf("type: %q is not known", t))
	}
	c, err := decodeKnown(k, data)
	if err != nil {
		return nil, shapeError(t, k.name, err)
	}
	if err := checkPresent(k, data); err != nil {
		return nil, err
	}
	if err := Validate(c); err != nil {
		return nil, err
	}
	return c, nil
}

// shapeError says which field has a wrong shape, in the words of JSON. A decoder
// may name the field with the struct that it is embedded in.
func shapeError(t Type, structName string, err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return ErrInvalidChunk.Because(fmt.Sprintf("%s: %v", t, err))
	}
	field := strings.TrimPrefix(strings.TrimPrefix(wrong.Field, structName+"."), "Base.")
	article := "a"
	if wrong.Value == "array" || wrong.Value == "object" {
		article = "an"
	}
	return ErrInvalidChunk.Because(fmt.Sprintf("%s: %s: is %s %s, not %s", t, field, article, wrong.Value, shapeOf(wrong.Type)))
}

func shapeOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "an array"
	case reflect.Pointer:
		return shapeOf(t.Elem())
	default:
		return "a number of its range"
	}
}

// checkPresent finds required fields that are absent or null. Go's zero values
// cannot tell an absent delta from an empty one.
func checkPresent(k *kind, data []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return ErrInvalidChunk.Because(fmt.Sprintf("%s: is not an object", k.typ))
	}
	for _, name := range k.required() {
		v := fields[name]
		if alias, ok := k.aliases[name]; v == nil && ok {
			v = fields[alias]
		}
		if v == nil || string(v) == "null" {
			return ErrInvalidChunk.Because(fmt.Sprintf("%s: %s: is missing", k.typ, name))
		}
	}
	return nil
}

// requiredFields lists the fields that a producer must write: those of the
// chunk's own that are always written, except for booleans (absent is false), raw
// and nullable ones (absent is null), and those that the table calls optional.
func requiredFields(structure reflect.Type, optional []string) []string {
	var names []string
	for i := range structure.NumField() {
		f := structure.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous, strings.Contains(options, "omitempty"), slices.Contains(optional, name):
		case f.Type.Kind() == reflect.Bool, f.Type.Kind() == reflect.Pointer, f.Type == reflect.TypeFor[json.RawMessage]():
		default:
			names = append(names, name)
		}
	}
	return names
}

// TypeStreamEnd is the type of a [StreamEnd], which is not a chunk's.
const TypeStreamEnd = "stream_end"

// StreamEnd is the control message that ends a stream of messages. It is not a
// chunk: it is not stored, and no wire sends it.
type StreamEnd struct {
	StreamID    string          `json:"streamId"`
	Timestamp   int64           `json:"timestamp"`             // when the last run ended, Unix milliseconds
	FinalOutput json.RawMessage `json:"finalOutput,omitempty"` // of the last run
}

// MarshalJSON writes the message with its type, stream_end.
func (s StreamEnd) MarshalJSON() ([]byte, error) {
	type plain StreamEnd
	return json.Marshal(struct {
		Type string `json:"type"`
		plain
	}{TypeStreamEnd, plain(s)})
}

// StreamMessage is a message of a stream: a chunk, or the end of the stream.
type StreamMessage struct {
	Chunk Chunk      // nil for the end
	End   *StreamEnd // nil for a chunk
}

// IsEnd reports whether the message is the end of its stream.
func (m StreamMessage) IsEnd() bool { return m.End != nil }

// Parsed is the result of validating data. It has Data if Success is set, and else
// Error.
type Parsed[T any] struct {
	Success bool
	Data    T
	Error   *Error
}

func parsed[T any](data T, err error) Parsed[T] {
	if err == nil {
		return Parsed[T]{Success: true, Data: data}
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = ErrInvalidChunk.With("", err)
	}
	return Parsed[T]{Error: e}
}

// SafeParse is [Parse] with its outcome as one value.
func SafeParse(data []byte) Parsed[Chunk] { return parsed(Parse(data)) }

// SafeParseMessage validates a chunk or the stream_end control message.
func SafeParseMessage(data []byte) Parsed[StreamMessage] { return parsed(parseMessage(data)) }

func parseMessage(data []byte) (StreamMessage, error) {
	if t, _, _, err := typeOf(data); err != nil || t != TypeStreamEnd {
		c, err := Parse(data)
		return StreamMessage{Chunk: c}, err
	}
	if !json.Valid(data) {
		return StreamMessage{}, ErrInvalidChunk.Because("the message is not valid JSON")
	}
	var in struct {
		StreamID    *string         `json:"streamId"`
		Timestamp   *int64          `json:"timestamp"`
		FinalOutput json.RawMessage `json:"finalOutput"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return StreamMessage{}, shapeError(TypeStreamEnd, "", err)
	}
	v := validator{}
	if in.StreamID == nil {
		v.fail("streamId", "is missing")
	} else {
		v.id("streamId", *in.StreamID)
	}
	if in.Timestamp == nil {
		v.fail("timestamp", "is missing")
	} else {
		v.count("timestamp", *in.Timestamp)
	}
	if v.problem != "" {
		return StreamMessage{}, ErrInvalidChunk.Because(TypeStreamEnd + ": " + v.problem)
	}
	return StreamMessage{End: &StreamEnd{StreamID: *in.StreamID, Timestamp: *in.Timestamp, FinalOutput: in.FinalOutput}}, nil
}

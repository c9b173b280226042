package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// Decode reads a value and forgives members of a wrong type.
func Decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}

// Marshal encodes v without escaping HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// Str returns the string that raw is.
func Str(raw json.RawMessage) (s string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(raw, &s) == nil
}

// IsNull reports whether raw is absent or null.
func IsNull(raw json.RawMessage) bool {
	return len(raw) == 0 || raw[0] == 'n'
}

// Count is a number of tokens. Some providers write it as a decimal fraction or as
// text. A value that is no number is 0.
type Count int64

func (c *Count) UnmarshalJSON(raw []byte) error {
	text := strings.Trim(string(raw), `"`)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		*c = Count(n)
	} else if f, err := strconv.ParseFloat(text, 64); err == nil && f > 0 && f < 1<<53 {
		*c = Count(f)
	}
	return nil
}

// Said reports whether an error member says that there is an error.
func Said(raw json.RawMessage) bool {
	switch strings.TrimSpace(string(raw)) {
	case "", "null", "false", `""`, `"null"`, "{}", "[]":
		return false
	}
	return true
}

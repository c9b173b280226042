package jsonenc

import (
	"bytes"
	"encoding/json"
)

// SetMember replaces a string member of a JSON object, if the object has it. All other
// bytes stay as they are.
func SetMember(object []byte, name, value string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var old json.RawMessage
		if err := d.Decode(&old); err != nil {
			return nil, err
		}
		if key == name {
			end := int(d.InputOffset())
			out := append([]byte(nil), object[:end-len(old)]...)
			return append(append(out, Must(value)...), object[end:]...), nil
		}
	}
	return bytes.Clone(object), nil
}

package chunk

import (
	"bytes"
	"encoding/json"
)

// Decode reads a chunk's JSON. It is made for reading logs, so it tolerates what
// producers of other versions write: absent fields are zero, a text_delta's text
// may be called content, a tool_end without success succeeded if it has no error.
// Types that this version does not know, and known ones whose fields have other
// shapes, become an [*Unknown]; only what is no JSON object with a string "type"
// is an error ([ErrInvalidChunk]). [Parse] is strict instead.
//
// The chunk keeps no reference to data.
func Decode(data []byte) (Chunk, error) {
	t, k, plain, err := typeOf(data)
	if err != nil {
		return nil, err
	}
	if k != nil {
		if plain {
			if c := decodeQuick(k, data); c != nil {
				return c, nil
			}
		}
		if c, err := decodeKnown(k, data); err == nil {
			return c, nil
		}
	}
	if !json.Valid(data) {
		return nil, ErrInvalidChunk.Because("the chunk is not valid JSON")
	}
	u := &Unknown{Type: t, Raw: bytes.Clone(data)}
	_ = json.Unmarshal(data, &u.Base) // fields of other shapes stay zero
	return u, nil
}

// typeOf reads the "type" of a JSON object and finds its kind, or nil if this version
// does not know the type. plain says that the object starts with the type, as
// [Append] writes it. Only its beginning was read then.
func typeOf(data []byte) (t Type, k *kind, plain bool, err error) {
	if name, ok := plainType(data); ok {
		if k := kinds[Type(name)]; k != nil {
			return k.typ, k, true, nil
		}
		return Type(name), nil, true, nil
	}
	var head struct {
		Type *Type `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return "", nil, false, ErrInvalidChunk.Because("the chunk is not a JSON object with a string type").With("", err)
	}
	if head.Type == nil || *head.Type == "" {
		return "", nil, false, ErrInvalidChunk.Because("type: is missing")
	}
	return *head.Type, kinds[*head.Type], false, nil
}

// plainType returns the type of an object that starts with it, as [Append] writes it.
func plainType(data []byte) ([]byte, bool) {
	name, ok := bytes.CutPrefix(data, []byte(`{"type":"`))
	if !ok {
		return nil, false
	}
	for i, c := range name {
		if c == '"' && i > 0 {
			return name[:i], true
		}
		if !(c >= 'a' && c <= 'z' || c == '_') {
			break
		}
	}
	return nil, false
}

// decodeKnown reads a chunk of a kind, whatever the order of its fields.
func decodeKnown(k *kind, data []byte) (Chunk, error) {
	c := k.new()
	if err := k.unmarshal(data, c); err != nil {
		return nil, err
	}
	return c, nil
}

// lenientTextDelta takes content for an absent delta.
func lenientTextDelta(data []byte, c *TextDelta) error {
	in := struct {
		*TextDelta
		Delta   *string `json:"delta"`
		Content string  `json:"content"`
	}{TextDelta: c}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	c.Delta = in.Content
	if in.Delta != nil {
		c.Delta = *in.Delta
	}
	return nil
}

// lenientToolEnd takes an absent error for an absent success.
func lenientToolEnd(data []byte, c *ToolEnd) error {
	in := struct {
		*ToolEnd
		Success *bool `json:"success"`
	}{ToolEnd: c}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	c.Success = c.Error == ""
	if in.Success != nil {
		c.Success = *in.Success
	}
	return nil
}

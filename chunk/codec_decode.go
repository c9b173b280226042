package chunk

import (
	"bytes"
	"encoding/json"
)

// DecodeChunk reads a chunk's JSON. It is made for reading logs, so it tolerates
// what producers of other versions write: absent fields are zero, a text_delta's
// text may be called content, a tool_end without success succeeded if it has no
// error. Types that this version does not know, and known ones whose fields have
// other shapes, become an [*Unknown]; only what is no JSON object with a string
// "type" is an error ([ErrInvalidChunk]). [Parse] is its strict sister.
//
// The chunk keeps no reference to data.
func Decode(data []byte) (Chunk, error) {
	t, plain, err := typeOf(data)
	if err != nil {
		return nil, err
	}
	if plain {
		if c := decodeQuick(t, data); c != nil {
			return c, nil
		}
	}
	if c, err := decodeKnown(t, data); c != nil && err == nil {
		return c, nil
	}
	if !json.Valid(data) {
		return nil, ErrInvalidChunk.Because("the chunk is not valid JSON")
	}
	u := &Unknown{Type: t, Raw: bytes.Clone(data)}
	_ = json.Unmarshal(data, &u.Base) // as far as it goes
	return u, nil
}

// typeOf reads the "type" of a JSON object. What AppendChunk wrote starts with
// it, plainly, and is not looked at further.
func typeOf(data []byte) (t Type, plain bool, err error) {
	if rest, ok := bytes.CutPrefix(data, []byte(`{"type":"`)); ok {
		for i, c := range rest {
			if c == '"' && i > 0 {
				return intern(rest[:i]), true, nil
			}
			if !(c >= 'a' && c <= 'z' || c == '_') {
				break
			}
		}
	}
	var head struct {
		Type *Type `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return "", false, ErrInvalidChunk.Because("the chunk is not a JSON object with a string type").With("", err)
	}
	if head.Type == nil || *head.Type == "" {
		return "", false, ErrInvalidChunk.Because("type: is missing")
	}
	return *head.Type, false, nil
}

// intern returns the registered type of that name, which costs no allocation.
func intern(name []byte) Type {
	if t, ok := typeNames[string(name)]; ok {
		return t
	}
	return Type(name)
}

var typeNames = func() map[string]Type {
	names := make(map[string]Type, len(newChunk))
	for t := range newChunk {
		names[string(t)] = t
	}
	return names
}()

// decodeKnown returns nil and no error for a type that this version does not
// know.
func decodeKnown(t Type, data []byte) (Chunk, error) {
	mk, ok := newChunk[t]
	if !ok {
		return nil, nil
	}
	switch c := mk().(type) {
	case *TextDelta:
		in := struct {
			*TextDelta
			Delta   *string `json:"delta"`
			Content string  `json:"content"`
		}{TextDelta: c}
		if err := json.Unmarshal(data, &in); err != nil {
			return nil, err
		}
		c.Delta = in.Content
		if in.Delta != nil {
			c.Delta = *in.Delta
		}
		return c, nil
	case *ToolEnd:
		in := struct {
			*ToolEnd
			Success *bool `json:"success"`
		}{ToolEnd: c}
		if err := json.Unmarshal(data, &in); err != nil {
			return nil, err
		}
		c.Success = c.Error == ""
		if in.Success != nil {
			c.Success = *in.Success
		}
		return c, nil
	default:
		if err := json.Unmarshal(data, c); err != nil {
			return nil, err
		}
		return c, nil
	}
}

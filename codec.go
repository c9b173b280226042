package spool

import (
	"encoding/json"
	"fmt"
)

// AppendChunk appends the chunk's JSON to dst: "type" first, then the base
// fields, then the chunk's own, in the order of the struct.
func AppendChunk(dst []byte, c Chunk) ([]byte, error) {
	if u, ok := c.(*Unknown); ok {
		return append(dst, u.Raw...), nil
	}
	body, err := json.Marshal(c)
	if err != nil {
		return dst, fmt.Errorf("encode %s: %w", c.ChunkType(), err)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, c.ChunkType()...)
	dst = append(dst, `",`...)
	return append(dst, body[1:]...), nil
}

// DecodeChunk reads a chunk's JSON. Types that this version does not know, and
// known ones whose fields have other shapes, become an [*Unknown]; only what is
// no JSON object with a string "type" is an error ([ErrInvalidChunk]).
func DecodeChunk(data []byte) (Chunk, error) {
	var head struct {
		Type Type `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil || head.Type == "" {
		return nil, ErrInvalidChunk.With("", err)
	}
	if make, ok := newChunk[head.Type]; ok {
		c := make()
		if err := json.Unmarshal(data, c); err == nil {
			return c, nil
		}
	}
	u := &Unknown{Type: head.Type, Raw: append(json.RawMessage(nil), data...)}
	_ = json.Unmarshal(data, &u.Base)
	return u, nil
}

package openai

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
)

// details collects reasoning_details: blocks of text, summaries, signatures and
// ciphertext that must be sent back as they came. Pieces of one block are joined.
type details struct {
	blocks []*block
}

type block struct {
	members       map[string]any // all but the two below
	text, summary strings.Builder
}

// add takes a delta's blocks and returns the text that they show.
func (d *details) add(raw []json.RawMessage) (shown string) {
	for _, r := range raw {
		var members map[string]any
		if json.Unmarshal(r, &members) != nil || members == nil {
			continue
		}
		text, _ := members["text"].(string)
		summary, _ := members["summary"].(string)
		delete(members, "text")
		delete(members, "summary")
		maps.DeleteFunc(members, func(_ string, v any) bool { return v == nil })
		shown += text + summary

		n := len(d.blocks)
		if n == 0 || !d.blocks[n-1].continues(members) {
			d.blocks = append(d.blocks, &block{members: map[string]any{}})
			n++
		}
		b := d.blocks[n-1]
		maps.Copy(b.members, members)
		b.text.WriteString(text)
		b.summary.WriteString(summary)
	}
	return shown
}

// continues reports whether a piece belongs to b.
func (b *block) continues(piece map[string]any) bool {
	same := func(key string) bool { return reflect.DeepEqual(b.members[key], piece[key]) }
	if piece["type"] == "reasoning.encrypted" || !same("type") || !same("index") {
		return false
	}
	if piece["id"] != nil && b.members["id"] != nil && !same("id") {
		return false
	}
	s, _ := b.members["signature"].(string)
	return s == "" // a signature closes a block
}

// MarshalJSON writes the block as the provider would in one piece.
func (b *block) MarshalJSON() ([]byte, error) {
	m := maps.Clone(b.members)
	if b.text.Len() > 0 {
		m["text"] = b.text.String()
	}
	if b.summary.Len() > 0 {
		m["summary"] = b.summary.String()
	}
	return json.Marshal(m)
}

// metadata returns what a reasoning block must keep, and forgets it. Field is the
// member that the text came in.
func (d *details) metadata(field string) json.RawMessage {
	keep := map[string]any{}
	if len(d.blocks) > 0 {
		keep["reasoning_details"] = d.blocks
		d.blocks = nil
	} else if field == "reasoning_content" {
		keep["field"] = field
	}
	if len(keep) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"openai": keep})
	if err != nil {
		return nil
	}
	return data
}

package openai

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"github.com/spool-run/spool/model/internal/provider"
)

// details collects reasoning_details: blocks of text, summaries, signatures and
// ciphertext that must be sent back as they came. Pieces of one block are joined.
type details struct {
	blocks []*block
	opaque string // GitHub Copilot's signature

	object thoughtObject // of reasoning that came as objects
}

// thoughtObject is what a reasoning member that is an object has besides its text.
type thoughtObject struct {
	ID        string `json:"id"`
	Signature string `json:"signature"`
	Index     *index `json:"index"` // of the block, as the provider counts
}

// objectOf reads a reasoning member; one that is no object has nothing besides its text.
func objectOf(raw json.RawMessage) (o thoughtObject) {
	if len(raw) > 0 && raw[0] == '{' {
		_ = provider.Decode(raw, &o)
	}
	return o
}

// begins reports whether an object belongs to another block than those before.
func (o *thoughtObject) begins(before *thoughtObject) bool {
	return o.Index != nil && before.Index != nil && *o.Index != *before.Index
}

// add takes what a further object brings.
func (o *thoughtObject) add(more thoughtObject) {
	if more.ID != "" {
		o.ID = more.ID
	}
	if more.Index != nil {
		o.Index = more.Index
	}
	o.Signature += more.Signature
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
	return provider.Marshal(m)
}

// kept is what the log keeps of reasoning for its provider.
type kept struct {
	From    string            `json:"from,omitempty"`
	Details []json.RawMessage `json:"reasoning_details,omitempty"`
	Field   string            `json:"field,omitempty"` // in which the text goes back
	Opaque  string            `json:"reasoning_opaque,omitempty"`
	Item    json.RawMessage   `json:"item,omitempty"` // of the Responses API

	ID        string `json:"id,omitempty"`
	Signature string `json:"signature,omitempty"`
	Index     *index `json:"index,omitempty"`
}

// metadata returns what a reasoning block must keep, and forgets it. Field is the
// member that the text came in.
func (d *details) metadata(field, from string) json.RawMessage {
	k := kept{From: from, ID: d.object.ID, Signature: d.object.Signature, Index: d.object.Index}
	for _, b := range d.blocks {
		if data, err := provider.Marshal(b); err == nil {
			k.Details = append(k.Details, data)
		}
	}
	switch {
	case len(d.blocks) > 0:
	case d.opaque != "":
		k.Field, k.Opaque = "reasoning_text", d.opaque
	case field == "reasoning_content":
		k.Field = field
	case k.ID+k.Signature != "" || k.Index != nil:
	default:
		return nil
	}
	*d = details{}
	data, err := provider.Marshal(map[string]kept{"openai": k})
	if err != nil {
		return nil
	}
	return data
}

package fold

import (
	"encoding/json"
	"slices"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// This file has the parts of a message that are neither the model's words nor its
// calls (data, sources and files), and the message's metadata.

func (m *MessageFold) custom(seq uint64, c *chunk.Custom) {
	if !c.Transient {
		m.setData(c.EventName, c.ID, c.Data, seq)
	}
}

func (m *MessageFold) progress(seq uint64, c *chunk.Progress) {
	m.setData("progress", c.ID, progressData(c), seq)
}

func (m *MessageFold) output(seq uint64, c *chunk.Output) { m.setData("output", "", c.Output, seq) }

func (m *MessageFold) errorChunk(seq uint64, c *chunk.ErrorChunk) {
	if c.Recoverable && !c.Fatal {
		m.setData("error", "", jsonenc.Must(chunk.ErrorInfo{Error: c.Error, Code: c.Code, Recoverable: true}), seq)
	}
}

func (m *MessageFold) citation(seq uint64, c *chunk.Citation) {
	m.insert(chunk.Part{Type: chunk.PartSource, First: seq, ID: c.SourceID, URL: c.URL, Title: c.Title,
		MediaType: c.MediaType, Filename: c.Filename, Text: c.CitedText, DocumentIndex: c.DocumentIndex}, false)
}

func (m *MessageFold) file(seq uint64, c *chunk.File) {
	m.insert(chunk.Part{Type: chunk.PartFile, First: seq, URL: c.URL, MediaType: c.MediaType, Filename: c.Filename, Large: c.Large}, false)
}

// setData sets the data part of this name and id, or adds one. Without an id it always
// adds one.
func (m *MessageFold) setData(name, id string, data json.RawMessage, first uint64) {
	key := name + "\x00" + id
	if id != "" {
		m.dirty[key] = true
		if i := m.findData(name, id); i >= 0 {
			if _, saved := m.undo[key]; !saved && i < m.stepAt {
				m.undo[key] = m.message.Parts[i].Data
			}
			m.message.Parts[i].Data = data
			return
		}
	}
	m.insert(chunk.Part{Type: chunk.PartData, Name: name, ID: id, Data: data, First: first}, false)
}

// findData returns the index of the data part of this name and id, or -1.
func (m *MessageFold) findData(name, id string) int {
	return slices.IndexFunc(m.message.Parts, func(p chunk.Part) bool {
		return p.Type == chunk.PartData && p.Name == name && p.ID == id
	})
}

// mark appends a data part that says how a run ended. It stays.
func (m *MessageFold) mark(name string, v any, seq uint64) {
	m.add(len(m.message.Parts), chunk.Part{Type: chunk.PartData, Name: name, Data: jsonenc.Must(v), First: seq}, false)
}

// commit makes the step's data parts kept ones.
func (m *MessageFold) commit(data []chunk.Part) {
	for _, p := range data {
		m.setData(p.Name, p.ID, p.Data, p.First)
	}
	clear(m.dirty)
	clear(m.undo)
}

// uncommitted returns the data parts that only trace records hold so far.
func (m *MessageFold) uncommitted() []chunk.Part {
	var parts []chunk.Part
	for _, p := range m.message.Parts {
		if p.Type == chunk.PartData && p.ID != "" && m.dirty[p.Name+"\x00"+p.ID] {
			parts = append(parts, p)
		}
	}
	return parts
}

// mergeMetadata merges an object into the message's metadata.
func (m *MessageFold) mergeMetadata(metadata json.RawMessage) {
	var added map[string]any
	if json.Unmarshal(metadata, &added) != nil || added == nil {
		return
	}
	var merged map[string]any
	_ = json.Unmarshal(m.message.Metadata, &merged)
	m.message.Metadata = jsonenc.Must(mergeObjects(merged, added))
}

// mergeObjects merges JSON objects the way clients merge a message's metadata:
// objects merge, everything else is replaced.
func mergeObjects(into, from map[string]any) map[string]any {
	if into == nil {
		into = make(map[string]any, len(from))
	}
	for k, v := range from {
		if sub, ok := v.(map[string]any); ok {
			old, _ := into[k].(map[string]any)
			v = mergeObjects(old, sub)
		}
		into[k] = v
	}
	return into
}

// progressData returns what a progress chunk shows: its fields without those of the
// base.
func progressData(c *chunk.Progress) json.RawMessage {
	return jsonenc.Must(struct {
		ID      string          `json:"id"`
		Parent  string          `json:"parent,omitempty"`
		Label   string          `json:"label,omitempty"`
		State   string          `json:"state,omitempty"`
		Percent *float64        `json:"percent,omitempty"`
		Data    json.RawMessage `json:"data,omitempty"`
	}{c.ID, c.Parent, c.Label, c.State, c.Percent, c.Data})
}

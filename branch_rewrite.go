package spool

import (
	"bytes"
	"encoding/json"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// omitted returns such a record.
func (b *branching) omitted(at int64) chunk.Record {
	data := jsonenc.Must(struct {
		Type chunk.Type `json:"type"`
		chunk.Base
	}{chunk.TypeTraceOmitted, chunk.Base{AgentID: b.o.Session, Timestamp: at}})
	return chunk.Record{Type: chunk.TypeTraceOmitted, Agent: b.o.Session, Time: at, Data: data}
}

// sequences calls fn with each sequence that a chunk refers to, and with whether it
// orders parts. fn may change the sequence.
func sequences(c chunk.Chunk, fn func(seq *uint64, part bool)) {
	parts := func(parts []chunk.Part) {
		for i := range parts {
			fn(&parts[i].First, true)
		}
	}
	switch c := c.(type) {
	case *chunk.AssistantMessage:
		parts(c.Parts)
	case *chunk.StepCommitted:
		parts(c.Data)
	case *chunk.RunSuspended:
		parts(c.Data)
	case *chunk.HistoryReplaced: // content that came from this log is ordered by it
		if c.CheckpointID != "" && c.Messages != nil {
			for i := range *c.Messages {
				parts((*c.Messages)[i].Parts)
			}
		}
	case *chunk.StreamResync:
		fn(&c.FromSequence, false)
	}
}

// readdress encodes a chunk with the agents that it names renamed.
func readdress(c chunk.Chunk, rename func(string) string) ([]byte, error) {
	base := c.ChunkBase()
	if u, ok := c.(*chunk.Unknown); ok {
		data, err := setMember(u.Raw, "agentId", rename(base.AgentID))
		if err != nil {
			return nil, err
		}
		var child struct {
			ID string `json:"subSessionId"`
		}
		if json.Unmarshal(data, &child) == nil && child.ID != "" {
			return setMember(data, "subSessionId", rename(child.ID))
		}
		return data, nil
	}
	base.AgentID = rename(base.AgentID)
	switch c := c.(type) {
	case *chunk.SubAgentStart:
		c.SubSessionID = rename(c.SubSessionID)
	case *chunk.SubAgentEnd:
		c.SubSessionID = rename(c.SubSessionID)
	case *chunk.RunSuspended:
		for i := range c.Children {
			c.Children[i] = rename(c.Children[i])
		}
	}
	return chunk.Append(nil, c)
}

// setMember replaces a string member of a JSON object, if the object has it. All other
// bytes stay as they are.
func setMember(object []byte, name, value string) ([]byte, error) {
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
			return append(append(out, jsonenc.Must(value)...), object[end:]...), nil
		}
	}
	return bytes.Clone(object), nil
}

// blobsIn returns the hashes of the large values that a record refers to. Values that
// only look like references may be among them.
func blobsIn(data []byte) (hashes []string) {
	const before, digits = `"$blob":"`, len("sha256:") + 64
	for {
		i := bytes.Index(data, []byte(before))
		if i < 0 {
			return hashes
		}
		data = data[i+len(before):]
		if len(data) > digits && data[digits] == '"' && bytes.HasPrefix(data, []byte("sha256:")) {
			hashes = append(hashes, string(data[:digits]))
		}
	}
}

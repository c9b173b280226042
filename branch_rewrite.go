package spool

import (
	"bytes"
	"encoding/json"

	"github.com/spool-run/spool/internal/jsonenc"
)

// TypeTraceOmitted is the type of the records that stand in a branch for those
// of the source's trace that opened a part: they keep its parts in order, and
// say nothing.
const TypeTraceOmitted Type = "trace_omitted"

// omitted returns such a record.
func (b *branching) omitted(at int64) Record {
	data := jsonenc.Must(struct {
		Type Type `json:"type"`
		Base
	}{TypeTraceOmitted, Base{AgentID: b.o.Session, Timestamp: at}})
	return Record{Type: TypeTraceOmitted, Agent: b.o.Session, Time: at, Data: data}
}

// sequences calls fn with each sequence that a chunk names, which fn may change,
// and whether parts stand in its order.
func sequences(c Chunk, fn func(seq *uint64, part bool)) {
	parts := func(parts []Part) {
		for i := range parts {
			fn(&parts[i].First, true)
		}
	}
	switch c := c.(type) {
	case *AssistantMessage:
		parts(c.Parts)
	case *StepCommitted:
		parts(c.Data)
	case *RunSuspended:
		parts(c.Data)
	case *HistoryReplaced: // content of the log's own is in the log's order
		if c.CheckpointID != "" && c.Messages != nil {
			for i := range *c.Messages {
				parts((*c.Messages)[i].Parts)
			}
		}
	case *StreamResync:
		fn(&c.FromSequence, false)
	}
}

// readdress encodes a chunk with the agents that it names renamed.
func readdress(c Chunk, rename func(string) string) ([]byte, error) {
	base := c.ChunkBase()
	if u, ok := c.(*Unknown); ok {
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
	case *SubAgentStart:
		c.SubSessionID = rename(c.SubSessionID)
	case *SubAgentEnd:
		c.SubSessionID = rename(c.SubSessionID)
	case *RunSuspended:
		for i := range c.Children {
			c.Children[i] = rename(c.Children[i])
		}
	}
	return AppendChunk(nil, c)
}

// setMember replaces a string member of a JSON object, if it has it. The rest
// stays byte for byte.
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

// blobsIn returns the hashes of the large values that a record refers to. What
// only looks like a reference may be among them.
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

package fold

import (
	"encoding/json"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// Sequences calls fn with each sequence that a chunk refers to, and with whether it
// orders parts. fn may change the sequence.
func Sequences(c chunk.Chunk, fn func(seq *uint64, part bool)) {
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

// Readdress encodes a chunk with the agents that it names renamed.
func Readdress(c chunk.Chunk, rename func(string) string) ([]byte, error) {
	base := c.ChunkBase()
	if u, ok := c.(*chunk.Unknown); ok {
		data, err := jsonenc.SetMember(u.Raw, "agentId", rename(base.AgentID))
		if err != nil {
			return nil, err
		}
		var child struct {
			ID string `json:"subSessionId"`
		}
		if json.Unmarshal(data, &child) == nil && child.ID != "" {
			return jsonenc.SetMember(data, "subSessionId", rename(child.ID))
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

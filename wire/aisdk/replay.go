package aisdk

import (
	"encoding/json"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// ReplayContent is what a client that comes back must be told of a message that
// is still growing.
type ReplayContent struct {
	MessageID string
	Metadata  json.RawMessage
	Parts     []chunk.Part
}

// ReplayContentOf returns a message's content.
func ReplayContentOf(m *chunk.Message) ReplayContent {
	if m == nil {
		return ReplayContent{}
	}
	return ReplayContent{MessageID: m.ID, Metadata: m.Metadata, Parts: m.Parts}
}

// HasReplayContent reports whether there is anything to replay.
func HasReplayContent(c ReplayContent) bool {
	var o Options
	for i := range c.Parts {
		if p := &c.Parts[i]; p.Type != chunk.PartStep && o.visible(p) {
			return true
		}
	}
	return false
}

// ReplayOptions say how content is replayed.
type ReplayOptions struct {
	// GenerateBlockID names the text and reasoning blocks, called once for each
	// in their order; nil gives block-1, block-2, ….
	GenerateBlockID func() string
	// GenerateMessageID names the message if the content does not; nil gives
	// msg-{agent}.
	GenerateMessageID func(agentID string) string
	AgentID           string
	Options           Options
	// Resolve is that of [ConvertOptions].
	Resolve func(json.RawMessage) (json.RawMessage, error)
}

// ReplayResult is a replay and what it left open for live deltas to go on with.
type ReplayResult struct {
	Frames           []spool.Frame
	MessageID        string
	TextBlockID      string // the open text block, "" for none
	ReasoningBlockID string // the open reasoning block, "" for none
}

// CreateReplayEvents returns the frames that rebuild the content from start.
func CreateReplayEvents(c ReplayContent, o *ReplayOptions) ReplayResult {
	if o == nil {
		o = &ReplayOptions{}
	}
	result := ReplayResult{MessageID: c.MessageID}
	if result.MessageID == "" {
		result.MessageID = messageID(o.GenerateMessageID, o.AgentID)
	}
	p := &Projector{o: shape{Options: o.Options, resolve: o.Resolve}, stepOn: true}
	v := newView(&p.o.Options)
	v.compact = true
	if o.GenerateBlockID != nil {
		var names []string
		v.ids = func(i int) string {
			for len(names) <= i {
				names = append(names, o.GenerateBlockID())
			}
			return names[i]
		}
	}
	p.w.open("start").str("messageId", result.MessageID).rawOpt("messageMetadata", c.Metadata).close()
	v.sync(p, shown{list: c.Parts})
	result.Frames = p.w.frames
	for _, n := range v.open {
		if v.blocks[n].kind == chunk.PartText {
			result.TextBlockID = v.ids(n)
		} else {
			result.ReasoningBlockID = v.ids(n)
		}
	}
	return result
}

func messageID(generate func(string) string, agentID string) string {
	if generate != nil {
		return generate(agentID)
	}
	return "msg-" + agentID
}

package aisdk

import (
	"encoding/json"

	"github.com/spool-run/spool/chunk"
)

// Options fix a profile of the wire. The zero value is the default profile: the
// frames of ai 6.0.0, dynamic tools, step events.
//
// Everything in it must be deterministic: another node has to build the same
// frames from the same records.
type Options struct {
	// UI7 allows what only ai 7 clients understand: reset-step when a model
	// phase is discarded, tool-approval-response for decisions.
	UI7 bool
	// StaticTools names tool parts "tool-{name}" instead of "dynamic-tool".
	StaticTools bool
	// SubAgents says how sub-agents are shown; "" is Nest.
	SubAgents SubAgents
	// NoStepEvents leaves start-step and finish-step out.
	NoStepEvents bool
	// LiteralErrors turns every error chunk into an error frame, after which
	// clients stop reading. By default a recoverable one is a data-error part,
	// and an error frame is sent only when the run has failed.
	LiteralErrors bool
	// BlockID names the turn's i-th text or reasoning block, from 0; nil gives
	// block-1, block-2, ….
	BlockID func(i int) string
	// ChunkFilter drops the chunks for which it returns false. The parts of an
	// assistant_message are asked one by one, as the delta, tool_start, citation
	// or file chunk that would have streamed them, and so are those of messages
	// that are converted, with no more of their base than the agent. Chunks that
	// open or close a run or a step cannot be dropped, only the data frames that
	// they become.
	ChunkFilter func(chunk.Chunk) bool
}

// shape is what parts become: a profile, and where large values come from.
type shape struct {
	Options
	resolve func(json.RawMessage) (json.RawMessage, error) // nil: they stay as they are stored
}

// whole returns the part with its large text. One that is gone stays away.
func (o *shape) whole(p *chunk.Part) *chunk.Part {
	if o.resolve == nil || len(p.Large) == 0 {
		return p
	}
	whole, err := p.Whole(o.resolve)
	if err != nil {
		return p
	}
	return &whole
}

func (o *Options) keeps(c chunk.Chunk) bool {
	return o.ChunkFilter == nil || o.ChunkFilter(c)
}

// value resolves a stored value. One that is gone is sent as its reference:
// clients can show that, and a stream that fails they cannot.
func (o *shape) value(v json.RawMessage) json.RawMessage {
	if o.resolve == nil || len(v) == 0 {
		return v
	}
	if resolved, err := o.resolve(v); err == nil {
		return resolved
	}
	return v
}

// filter returns the chunk as the filter leaves it, or nil.
func (o *Options) filter(c chunk.Chunk) chunk.Chunk {
	if o.ChunkFilter == nil {
		return c
	}
	switch c := c.(type) {
	case *chunk.RunStarted, *chunk.StepStarted, *chunk.StepDiscarded, *chunk.RunFinished:
		return c
	case *chunk.AssistantMessage:
		kept := *c
		kept.Parts = o.filterParts(&c.Base, c.Parts)
		return &kept
	case *chunk.StepCommitted:
		kept := *c
		kept.Data = o.filterParts(&c.Base, c.Data)
		return &kept
	case *chunk.RunSuspended:
		kept := *c
		kept.Data = o.filterParts(&c.Base, c.Data)
		return &kept
	}
	if o.ChunkFilter(c) {
		return c
	}
	return nil
}

func (o *Options) filterParts(base *chunk.Base, parts []chunk.Part) []chunk.Part {
	if o.ChunkFilter == nil {
		return parts
	}
	var kept []chunk.Part
	for _, p := range parts {
		if c := chunkOf(base, p); c == nil || o.ChunkFilter(c) {
			kept = append(kept, p)
		}
	}
	return kept
}

// filterAgents returns the sub-agents with what the filter leaves of what they
// say.
func (o *Options) filterAgents(list []*SubAgent) []*SubAgent {
	if o.ChunkFilter == nil {
		return list
	}
	kept := make([]*SubAgent, len(list))
	for i, a := range list {
		c := *a
		c.Messages = make([]*chunk.Message, len(a.Messages))
		for j, m := range a.Messages {
			filtered := *m
			if m.Role == chunk.RoleAssistant {
				filtered.Parts = o.filterParts(&chunk.Base{AgentID: a.Session, AgentType: a.Type}, m.Parts)
			}
			c.Messages[j] = &filtered
		}
		kept[i] = &c
	}
	return kept
}

// chunkOf returns the chunk that streams a part, nil for one that the end of a run
// or the begin of a step makes.
func chunkOf(base *chunk.Base, p chunk.Part) chunk.Chunk {
	switch p.Type {
	case chunk.PartStep:
		return nil
	case chunk.PartText:
		return &chunk.TextDelta{Base: *base, Delta: p.Text, PartID: p.ID}
	case chunk.PartReasoning:
		return &chunk.Thinking{Base: *base, Content: p.Text, IsComplete: true, PartID: p.ID, ProviderMetadata: p.ProviderMetadata}
	case chunk.PartTool:
		return &chunk.ToolStart{Base: *base, ToolCallID: p.Tool.CallID, ToolName: p.Tool.Name, Arguments: p.Tool.Input, EffectID: p.Tool.EffectID}
	case chunk.PartSource:
		return &chunk.Citation{Base: *base, SourceID: p.ID, URL: p.URL, Title: p.Title, MediaType: p.MediaType, Filename: p.Filename,
			CitedText: p.Text, DocumentIndex: p.DocumentIndex}
	case chunk.PartFile:
		return &chunk.File{Base: *base, URL: p.URL, MediaType: p.MediaType, Filename: p.Filename}
	}
	if p.ID == "" {
		switch p.Name {
		case "output":
			return &chunk.Output{Base: *base, Output: p.Data}
		case "run-interrupted":
			return nil
		case "error":
			var e chunk.ErrorInfo
			if json.Unmarshal(p.Data, &e) != nil || !e.Recoverable {
				return nil
			}
			return &chunk.ErrorChunk{Base: *base, Error: e.Error, Code: e.Code, Recoverable: true}
		}
	}
	if p.Name == "progress" {
		progress := &chunk.Progress{}
		if json.Unmarshal(p.Data, progress) == nil {
			progress.Base = *base
			return progress
		}
	}
	return &chunk.Custom{Base: *base, EventName: p.Name, ID: p.ID, Data: p.Data}
}

package merlin

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// StreamedChunks is an answer as a streamer returns it to its caller, complete or as
// far as it has come.
type StreamedChunks struct {
	// Content are the texts; in V1 with the citations' markers.
	Content          []string         `json:"content"`
	ReasoningContent []ReasoningChunk `json:"reasoningContent"`
	Citations        []Citation       `json:"citations"`
	// ToolCalls are the calls whose arguments are complete.
	ToolCalls []ToolCall       `json:"toolCalls,omitempty"`
	Usage     *CompletionUsage `json:"usage,omitempty"`
}

// ReasoningChunk is a block of reasoning.
type ReasoningChunk struct {
	Text      string `json:"text"`
	Index     int    `json:"index"` // as the provider counts it, or else its content index
	ID        string `json:"id,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// CompletionUsage counts tokens.
type CompletionUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

// Collected returns the turn's answer so far. It has no words of sub-agents: those
// are answers of their own.
func (p *Projector) Collected() StreamedChunks {
	out := StreamedChunks{Content: []string{}, ReasoningContent: []ReasoningChunk{}, Citations: []Citation{}}
	if p.fold == nil {
		return out
	}
	s := p.scene()
	reasons := map[uint64]*chunk.Part{}
	for i := range p.fold.Message().Parts {
		if part := &p.fold.Message().Parts[i]; part.Type == chunk.PartReasoning {
			reasons[part.First] = part
		}
	}
	for i := range s.blocks {
		b := &s.blocks[i]
		switch b.kind {
		case TypeText:
			if p.o.Version != V1 {
				out.Content = append(out.Content, b.text)
			}
		case TypeReasoning:
			event := ReasoningChunk{Text: b.text, Index: p.index(i)}
			if part := reasons[b.first]; part != nil {
				said := saidOf(part.ProviderMetadata)
				event.ID, event.Signature = cmp.Or(said.ID, part.ID), said.Signature
				if said.Index != nil {
					event.Index = *said.Index
				}
			}
			out.ReasoningContent = append(out.ReasoningContent, event)
		case TypeToolCalls:
			for _, c := range b.calls {
				if c.ready {
					out.ToolCalls = append(out.ToolCalls, ToolCall{Type: "function", Function: Function{c.name, c.args}, ID: c.id})
				}
			}
		}
	}
	if p.o.Version == V1 {
		for _, piece := range p.content(s) {
			if piece.text != "" {
				out.Content = append(out.Content, piece.text)
			}
		}
	}
	_, quotes := p.attach(s.sources, nil)
	for i, src := range s.sources {
		if src.text != "" {
			out.Citations = append(out.Citations, Citation{quotes[i].doc, src.text})
		}
	}
	if u := p.used.Add(p.using); u != (chunk.Usage{}) {
		out.Usage = &CompletionUsage{u.InputTokens, u.OutputTokens, u.InputTokens + u.OutputTokens}
	}
	return out
}

// providersWord is what a provider says of a block of reasoning.
type providersWord struct {
	ID        string `json:"id"`
	Signature string `json:"signature"`
	Index     *int   `json:"index"`
}

// saidOf reads the metadata of any provider.
func saidOf(metadata json.RawMessage) (said providersWord) {
	var providers map[string]json.RawMessage
	_ = json.Unmarshal(metadata, &providers)
	for _, name := range slices.Sorted(maps.Keys(providers)) {
		_ = json.Unmarshal(providers[name], &said) // members of other types are not these
	}
	return said
}

// count adds up the usage of the turn's runs. A report covers its run so far, so only
// the latest of each run counts.
func (p *Projector) count(c chunk.Chunk) {
	switch c := c.(type) {
	case *chunk.UsageReport:
		p.using = c.Usage
	case *chunk.RunStarted:
		p.used, p.using = p.used.Add(p.using), chunk.Usage{}
	case *chunk.RunFinished:
		if c.Usage != nil {
			p.using = *c.Usage
		}
	}
}

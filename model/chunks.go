package model

import (
	"iter"

	"github.com/spool-run/spool/chunk"
)

// Chunks turns the parts of one answer into the chunks that show it, for programs that
// have no agent and no log. Their agent, run and time are not set. [Restart],
// [Position] and [Finish] have no chunk.
//
//	s.Stream(ctx, model.Chunks(openai.Ingest(res.Body, nil)), merlin.StreamConfig{})
func Chunks(parts iter.Seq2[Part, error]) iter.Seq2[chunk.Chunk, error] {
	return func(yield func(chunk.Chunk, error) bool) {
		for part, err := range parts {
			if err != nil {
				yield(nil, err)
				return
			}
			if c := chunkOf(part); c != nil && !yield(c, nil) {
				return
			}
		}
	}
}

func chunkOf(part Part) chunk.Chunk {
	switch p := part.(type) {
	case TextDelta:
		return &chunk.TextDelta{Delta: p.Delta, PartID: p.ID}
	case ReasoningDelta:
		return &chunk.Thinking{Content: p.Delta, PartID: p.ID}
	case ReasoningEnd:
		return &chunk.Thinking{Content: p.Text, IsComplete: true, PartID: p.ID, ProviderMetadata: p.Metadata}
	case ToolCallStart:
		return &chunk.ToolArgStreamStart{ToolCallID: p.ID, ToolName: p.Name}
	case ToolCallDelta:
		return &chunk.ToolArgStreamDelta{ToolCallID: p.ID, Delta: p.Delta}
	case ToolCallEnd:
		return &chunk.ToolArgStreamEnd{ToolCallID: p.ID, ToolName: p.Name}
	case ToolResult:
		return &chunk.ToolEnd{ToolCallID: p.ID, Result: p.Result, Success: p.Error == "", Error: p.Error}
	case Source:
		return &chunk.Citation{SourceID: p.ID, URL: p.URL, Title: p.Title, MediaType: p.MediaType, Filename: p.Filename,
			CitedText: p.CitedText, DocumentIndex: p.Document}
	case File:
		return &chunk.File{URL: p.URL, MediaType: p.MediaType, Filename: p.Filename}
	case UsageUpdate:
		return &chunk.UsageReport{Usage: p.Usage}
	}
	return nil
}

package stream

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/spool-run/spool/chunk"
)

// Streams are iterators over records or chunks. An error takes the place of an item.
// Filters pass it on; the source decides whether the stream continues after it. A
// consumer that stops releases every source.

// Item is what filters need. [chunk.Record], [chunk.Chunk] and [StoredChunk] are items.
type Item interface{ ChunkType() chunk.Type }

// chunkOf returns the chunk of an item that has one; else nil.
func chunkOf(item any) chunk.Chunk {
	switch item := item.(type) {
	case StoredChunk:
		return item.Chunk
	case chunk.Chunk:
		return item
	}
	return nil
}

// FilterWith passes the items that keep wants.
func FilterWith[T any](stream iter.Seq2[T, error], keep func(T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range stream {
			if (err != nil || keep(item)) && !yield(item, err) {
				return
			}
		}
	}
}

// FilterByType passes the items of one or several types.
func FilterByType[T Item](stream iter.Seq2[T, error], types ...chunk.Type) iter.Seq2[T, error] {
	return FilterWith(stream, func(item T) bool { return slices.Contains(types, item.ChunkType()) })
}

// ExcludeTypes passes all items but those of these types.
func ExcludeTypes[T Item](stream iter.Seq2[T, error], types ...chunk.Type) iter.Seq2[T, error] {
	return FilterWith(stream, func(item T) bool { return !slices.Contains(types, item.ChunkType()) })
}

// FilterByAgentID passes the items of one agent. With a session's own id, that leaves
// out the items of its child agents.
func FilterByAgentID[T Item](stream iter.Seq2[T, error], agentID string) iter.Seq2[T, error] {
	return FilterWith(stream, func(item T) bool {
		if r, ok := any(item).(chunk.Record); ok {
			return r.Agent == agentID
		}
		c := chunkOf(item)
		return c != nil && c.ChunkBase().AgentID == agentID
	})
}

// FilterStream is another name of [FilterWith].
func FilterStream[T any](stream iter.Seq2[T, error], keep func(T) bool) iter.Seq2[T, error] {
	return FilterWith(stream, keep)
}

// FilterStreamByType is another name of [FilterByType].
func FilterStreamByType[T Item](stream iter.Seq2[T, error], types ...chunk.Type) iter.Seq2[T, error] {
	return FilterByType(stream, types...)
}

// FilterStreamByAgent is another name of [FilterByAgentID].
func FilterStreamByAgent[T Item](stream iter.Seq2[T, error], agentID string) iter.Seq2[T, error] {
	return FilterByAgentID(stream, agentID)
}

// FilterByAgentType passes the items of agents of one type. It decodes records, since
// they do not have the type outside their data.
func FilterByAgentType[T Item](stream iter.Seq2[T, error], agentType string) iter.Seq2[T, error] {
	return FilterWith(stream, func(item T) bool {
		if r, ok := any(item).(chunk.Record); ok {
			var base struct {
				AgentType string `json:"agentType"`
			}
			return json.Unmarshal(r.Data, &base) == nil && base.AgentType == agentType
		}
		c := chunkOf(item)
		return c != nil && c.ChunkBase().AgentType == agentType
	})
}

// Take passes the first n items and then releases the stream, without waiting
// for another.
func Take[T any](stream iter.Seq2[T, error], n int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := n
		if left <= 0 {
			return
		}
		for item, err := range stream {
			if err == nil {
				left--
			}
			if !yield(item, err) || left == 0 {
				return
			}
		}
	}
}

// Skip drops the first n items. Errors among them are passed on.
func Skip[T any](stream iter.Seq2[T, error], n int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := n
		for item, err := range stream {
			if err == nil && left > 0 {
				left--
				continue
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// Chunks decodes records.
func Chunks(records iter.Seq2[chunk.Record, error]) iter.Seq2[chunk.Chunk, error] {
	return func(yield func(chunk.Chunk, error) bool) {
		for r, err := range records {
			var c chunk.Chunk
			if err == nil {
				c, err = chunk.Decode(r.Data)
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// Combine merges streams into one that ends when all have ended. Items of
// one stream keep their order; an error ends none of the others.
//
// Each stream is read by a goroutine of its own, with a context that is
// cancelled when the consumer stops: a stream must end when its context does,
// and the merge returns when all have. If ctx ends first, so does the merge, with
// its error.
//
//	both := Combine(ctx,
//		func(ctx context.Context) iter.Seq2[chunk.Record, error] { return a.Records(ctx, o) },
//		func(ctx context.Context) iter.Seq2[chunk.Record, error] { return b.Records(ctx, o) })
func Combine[T any](ctx context.Context, streams ...func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	type result struct {
		item T
		err  error
	}
	return func(yield func(T, error) bool) {
		caller := ctx
		ctx, cancel := context.WithCancel(ctx)
		results := make(chan result)
		var readers sync.WaitGroup
		for _, stream := range streams {
			readers.Go(func() {
				for item, err := range stream(ctx) {
					select {
					case results <- result{item, err}:
					case <-ctx.Done():
						return
					}
				}
			})
		}
		all := make(chan struct{})
		go func() { readers.Wait(); close(all) }()
		defer func() { cancel(); <-all }()
		for {
			select {
			case r := <-results:
				if !yield(r.item, r.err) {
					return
				}
			case <-all:
				if err := caller.Err(); err != nil {
					var none T
					yield(none, err)
				}
				return
			}
		}
	}
}

// CollectAll returns all items, or those before the first error and the error.
func CollectAll[T any](stream iter.Seq2[T, error]) ([]T, error) {
	var items []T
	for item, err := range stream {
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// CollectText joins the text deltas of all agents: all that was streamed, including
// discarded phases. With an error it returns the text before it.
func CollectText[T Item](stream iter.Seq2[T, error]) (string, error) {
	var text strings.Builder
	for item, err := range stream {
		if err != nil {
			return text.String(), err
		}
		if item.ChunkType() != chunk.TypeTextDelta {
			continue
		}
		c := chunkOf(item)
		if r, ok := any(item).(chunk.Record); ok {
			if c, err = chunk.Decode(r.Data); err != nil {
				return text.String(), err
			}
		}
		if delta, ok := c.(*chunk.TextDelta); ok {
			text.WriteString(delta.Delta)
		}
	}
	return text.String(), nil
}

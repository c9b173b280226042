package aisdk

import (
	"encoding/json"
	"iter"
	"log/slog"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
)

// TransformerOptions configure a [Transformer]. The zero value works.
type TransformerOptions struct {
	Options
	// GenerateMessageID names the message unless a run_started does; nil gives
	// msg-{agent}.
	GenerateMessageID func(agentID string) string
	// StartMetadata and FinishMetadata go on the start and finish frames unless
	// the run's own chunks carry metadata. They may return nil.
	StartMetadata  func(agentID string) json.RawMessage
	FinishMetadata func(agentID string) json.RawMessage
	// Logger hears about chunks that cannot be encoded. Nil is silent.
	Logger *slog.Logger
}

// Transformer turns the chunks of one answer into frames, for programs that
// have chunks but no log. The message belongs to the agent of the first chunk;
// other agents' chunks are left out. [Transformer.Finalize] must be called at
// the end.
type Transformer struct {
	o      TransformerOptions
	p      *Projector
	agent  string
	seq    uint64 // of the latest chunk
	from   uint64 // of the first chunk, where chunks have sequences of their own
	sealed uint64 // of the latest assistant_message
	begun  bool   // a run or a step has begun, so that nothing is seen in part
	done   bool
}

// NewTransformer returns a transformer. Nil options are the zero value.
func NewTransformer(o *TransformerOptions) *Transformer {
	t := &Transformer{}
	if o != nil {
		t.o = *o
	}
	t.p = NewProjector(wire.Subject{}, &t.o.Options)
	t.p.noRuns = true
	return t
}

// Transform returns the frames that a chunk becomes, and its sequence: how many
// chunks there were so far. A tool_end without an error is a success.
func (t *Transformer) Transform(c chunk.Chunk) (frames []spool.Frame, sequence uint64) {
	t.seq++
	if end, ok := c.(*chunk.ToolEnd); ok && end != nil && end.Error == "" && !end.Success {
		whole := *end
		whole.Success, c = true, &whole
	}
	return t.transform(c), t.seq
}

// TransformAt is Transform for a chunk of a stored stream, whose sequence is its own. The
// first one may be in the middle of an answer: then the frames are those of what follows,
// in a message of its own. A chunk that is not newer than the one before is left out.
func (t *Transformer) TransformAt(c chunk.Chunk, sequence uint64) []spool.Frame {
	if sequence <= t.seq {
		return nil
	}
	if t.seq == 0 {
		t.from = sequence
	}
	t.seq = sequence
	return t.transform(c)
}

func (t *Transformer) transform(c chunk.Chunk) (frames []spool.Frame) {
	if t.done || c == nil || chunk.IsCommand(c.ChunkType()) {
		return nil
	}
	// A chunk made by hand may hold what is no JSON; it is taken as a log would
	// take it.
	data, err := chunk.Append(nil, c)
	if err == nil {
		c, err = chunk.Decode(data)
	}
	if err != nil {
		if t.o.Logger != nil {
			t.o.Logger.Warn("chunk left out", "type", c.ChunkType(), "error", err)
		}
		return nil
	}
	base := c.ChunkBase()
	_, run := c.(*chunk.RunStarted)
	if t.p.fold == nil {
		t.agent = base.AgentID
		t.p.begin(t.agent)
		if !run {
			frames = t.start(frames)
		}
	}
	if base.AgentID != t.agent {
		return frames
	}
	if !t.prepare(c) {
		return frames
	}
	r := chunk.Record{Seq: t.seq, Type: c.ChunkType(), Agent: base.AgentID, Time: base.Timestamp, Class: chunk.ClassOf(c), Data: data}
	frames = t.p.apply(frames, r, c)
	t.done = t.p.ended
	return frames
}

// prepare completes a chunk with the options, and brings one that concerns what came before
// the first chunk to what has been seen. It returns false for a chunk to be left out.
func (t *Transformer) prepare(c chunk.Chunk) bool {
	switch c := c.(type) {
	case *chunk.AssistantMessage:
		t.since(c)
	case *chunk.Thinking:
		t.rest(c)
	case *chunk.StepStarted:
		t.begun = true
	case *chunk.ToolArgStreamDelta:
		if !t.knows(c.ToolCallID) {
			return false // the end of a call's arguments; they come again as a whole, and with its name
		}
	case *chunk.RunStarted:
		t.begun = true
		if c.MessageID == "" {
			c.MessageID = messageID(t.o.GenerateMessageID, t.agent)
		}
		c.Metadata = t.metadata(c.Metadata, t.o.StartMetadata)
	case *chunk.RunFinished:
		c.Metadata = t.metadata(c.Metadata, t.o.FinishMetadata)
	case *chunk.RunSuspended:
		c.Metadata = t.metadata(c.Metadata, t.o.FinishMetadata)
	}
	return true
}

// Finalize closes what is open and returns the frames that end the stream, or
// none if the chunks ended it already.
func (t *Transformer) Finalize() []spool.Frame {
	if t.done {
		return nil
	}
	t.done = true
	p := t.p
	var frames []spool.Frame
	if p.fold == nil {
		p.begin("")
		frames = t.start(nil)
	}
	p.w.frames = frames
	p.view.closeBlocks(p, true)
	if p.view.steps > 0 {
		p.syncEnd()
	}
	reason, n := "stop", len(p.w.frames)
	if p.failure != nil {
		reason = "error"
		if p.failure.Fatal {
			p.w.open("error").str("errorText", p.failure.Error).close()
		}
	}
	p.end(n, reason, t.metadata(nil, t.o.FinishMetadata))
	frames = p.w.frames
	p.w.frames = nil
	return frames
}

func (t *Transformer) start(dst []spool.Frame) []spool.Frame {
	m := t.p.fold.Message()
	m.ID = messageID(t.o.GenerateMessageID, t.agent)
	t.p.metadata = t.metadata(nil, t.o.StartMetadata)
	w := &t.p.w
	w.frames = dst
	w.open("start").str("messageId", m.ID).rawOpt("messageMetadata", t.p.metadata).close()
	dst = w.frames
	w.frames = nil
	return dst
}

func (t *Transformer) metadata(own json.RawMessage, generate func(string) json.RawMessage) json.RawMessage {
	if isNull(own) && generate != nil {
		own = generate(t.agent)
	}
	if !json.Valid(own) {
		return nil
	}
	return own
}

// ToDataStream transforms chunks as they come and finalizes the stream. It ends
// with the chunks' error, without final frames, if they have one.
func ToDataStream(chunks iter.Seq2[chunk.Chunk, error], o *TransformerOptions) iter.Seq2[spool.Frame, error] {
	return toDataStream(chunks, o, func(t *Transformer, c chunk.Chunk) []spool.Frame {
		frames, _ := t.Transform(c)
		return frames
	})
}

// Stored is a chunk of a stored stream, such as a stream.StoredChunk.
type Stored interface {
	Stored() (c chunk.Chunk, sequence uint64)
}

// StoredToDataStream is ToDataStream for the chunks of a stored stream, from its start or
// from any position on. The frames carry the chunks' own sequences.
func StoredToDataStream[S Stored](chunks iter.Seq2[S, error], o *TransformerOptions) iter.Seq2[spool.Frame, error] {
	return toDataStream(chunks, o, func(t *Transformer, s S) []spool.Frame { return t.TransformAt(s.Stored()) })
}

func toDataStream[C any](chunks iter.Seq2[C, error], o *TransformerOptions, transform func(*Transformer, C) []spool.Frame) iter.Seq2[spool.Frame, error] {
	return func(yield func(spool.Frame, error) bool) {
		t := NewTransformer(o)
		for c, err := range chunks {
			if err != nil {
				yield(spool.Frame{}, err)
				return
			}
			for _, f := range transform(t, c) {
				if !yield(f, nil) {
					return
				}
			}
		}
		for _, f := range t.Finalize() {
			if !yield(f, nil) {
				return
			}
		}
	}
}

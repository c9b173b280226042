package merlin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"sync"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/sse"
)

// Streamer writes one answer to one response, without a log, for programs that have
// only a model's chunks and a client's connection. The frames are those of a
// [Projector]. A client that disconnects cannot resume.
//
// It may be used from several goroutines, such as those of parallel sub-agents. V1
// is not paced; see [Paced].
type Streamer struct {
	w     io.Writer
	flush func() error

	mu    sync.Mutex
	p     *Projector
	seq   uint64
	steps int
	kids  int
	begun bool
	ended bool
	err   error // the client is gone
}

// StreamConfig says what a stream is. The zero value is the agent's own words.
type StreamConfig struct {
	// AsResultOf says that the stream is a sub-agent's, and is the id of its call.
	// Its text is sent as pieces of that call's result.
	AsResultOf string
	// Suppress sends nothing of the stream. It is returned all the same.
	Suppress bool
}

// ErrEnded is returned by a [Streamer] that has ended.
var ErrEnded = errors.New("merlin: the answer has ended")

const streamed = "stream" // session, turn and run of a Streamer's records

// NewStreamer returns a streamer that writes to w and flushes it, if it can, after
// every chunk. Options may be nil.
func NewStreamer(w io.Writer, o *Options) *Streamer {
	s := &Streamer{w: w, p: NewProjector(streamed, o), flush: func() error { return nil }}
	if rw, ok := w.(http.ResponseWriter); ok {
		s.flush = func() error {
			if err := http.NewResponseController(rw).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
				return err
			}
			return nil
		}
	}
	return s
}

// Init sends the response's headers, and in V1 the event with which it begins.
// Other methods call it if nobody has. It sets no Access-Control headers: a program
// that needs them sets them before.
func (s *Streamer) Init() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.init()
}

func (s *Streamer) init() error {
	switch {
	case s.ended:
		return ErrEnded
	case s.begun || s.err != nil:
		return s.err
	}
	s.begun = true
	if rw, ok := s.w.(http.ResponseWriter); ok {
		sse.SetHeaders(rw.Header())
		rw.Header().Set("Connection", "keep-alive")
		rw.WriteHeader(http.StatusOK)
	}
	return s.feed(&chunk.RunStarted{TurnID: streamed, MessageID: streamed, Mode: "start"})
}

// feed projects a chunk and writes what it becomes.
func (s *Streamer) feed(c chunk.Chunk) error {
	if s.err != nil {
		return s.err
	}
	b := c.ChunkBase()
	if b.AgentID == "" {
		b.AgentID, b.RunID = streamed, streamed
	}
	data, err := chunk.Append(nil, c)
	if err != nil {
		return err
	}
	s.seq++
	frames, err := s.p.Apply(nil, chunk.Record{Seq: s.seq, Type: c.ChunkType(), Agent: b.AgentID, Class: chunk.ClassOf(c), Data: data})
	if err != nil {
		return err
	}
	var out []byte
	for _, f := range frames {
		out = append(out, f.Data...)
	}
	if len(out) > 0 {
		if _, s.err = s.w.Write(out); s.err == nil {
			s.err = s.flush()
		}
	}
	return s.err
}

// Stream writes a model's answer as it comes, and returns it when it has ended. It
// takes text, reasoning, calls, progress, citations, files and usage, and ignores
// other chunks.
//
// When the stream fails, Stream returns the error and what came before, without its
// calls, which may be incomplete. The answer is not ended by that: the caller calls
// End, or Stream again. Nothing more is read when ctx ends or the client is gone.
func (s *Streamer) Stream(ctx context.Context, chunks iter.Seq2[chunk.Chunk, error], c StreamConfig) (StreamedChunks, error) {
	v, err := s.open(c)
	if err != nil {
		return v.collected.Collected(), err
	}
	for event, failed := range chunks {
		if err = failed; err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = s.take(v, event)
		}
		if err != nil {
			break
		}
	}
	out := v.collected.Collected()
	if err != nil {
		out.ToolCalls = nil
	}
	return out, err
}

// modelStream is one call of [Streamer.Stream].
type modelStream struct {
	base      chunk.Base
	collected *Projector // of this stream alone
	hidden    bool       // it is suppressed; the projector suppresses sub-agents by itself
}

// open begins a stream.
func (s *Streamer) open(c StreamConfig) (*modelStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.p.o
	err := s.init()
	if err == nil {
		o.FirstIndex += len(s.p.scene().blocks)
	}
	v := &modelStream{chunk.Base{AgentID: streamed, RunID: streamed}, NewProjector(streamed, &o), c.Suppress && c.AsResultOf == ""}
	if err == nil && c.AsResultOf != "" {
		s.kids++
		v.base.AgentID = fmt.Sprintf("%s.%d", streamed, s.kids)
		if err = s.feed(&chunk.SubAgentStart{SubAgentType: "agent", SubSessionID: v.base.AgentID, CallID: c.AsResultOf}); err == nil {
			s.p.children[v.base.AgentID].suppressed = c.Suppress
		}
	}
	if err == nil {
		err = collect(v.collected, &chunk.RunStarted{Base: v.base, TurnID: streamed, MessageID: streamed, Mode: "start"}, 1)
	}
	if err == nil {
		s.steps++
		err = s.feed(&chunk.StepStarted{Base: v.base, StepID: fmt.Sprint(s.steps)})
	}
	return v, err
}

// take projects a chunk of a stream.
func (s *Streamer) take(v *modelStream, event chunk.Chunk) error {
	thought := false
	switch event.(type) {
	case *chunk.Thinking:
		thought = true
	case *chunk.TextDelta, *chunk.ToolArgStreamStart, *chunk.ToolArgStreamDelta, *chunk.ToolArgStreamEnd,
		*chunk.ToolStart, *chunk.ToolEnd, *chunk.ToolInputError, *chunk.Progress, *chunk.Citation, *chunk.File, *chunk.UsageReport:
	default:
		return nil
	}
	b := event.ChunkBase()
	b.AgentID, b.RunID = v.base.AgentID, v.base.RunID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return ErrEnded
	}
	if err := collect(v.collected, event, s.seq+2); err != nil {
		return err
	}
	if v.hidden && !(thought && s.p.o.Literal.revealsThoughts()) {
		return s.err
	}
	return s.feed(event)
}

// collect folds a chunk of a stream for its caller.
func collect(p *Projector, c chunk.Chunk, seq uint64) error {
	data, err := chunk.Append(nil, c)
	if err != nil {
		return err
	}
	_, err = p.Apply(nil, chunk.Record{Seq: seq, Type: c.ChunkType(), Agent: c.ChunkBase().AgentID, Class: chunk.ClassOf(c), Data: data})
	return err
}

// Result shows the outcome of a call. Failure is "" if it did not fail.
func (s *Streamer) Result(callID, tool string, result json.RawMessage, failure string) error {
	return s.emit(&chunk.ToolEnd{ToolCallID: callID, ToolName: tool, Result: result, Success: failure == "", Error: failure})
}

// EmitProgress shows a step. It is what [NewEventManager] takes.
func (s *Streamer) EmitProgress(p *chunk.Progress) error {
	c := *p
	return s.emit(&c)
}

func (s *Streamer) emit(c chunk.Chunk) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.init(); err != nil {
		return err
	}
	return s.feed(c)
}

// AppendEvent writes an event of the program's own.
func (s *Streamer) AppendEvent(name string, payload any) error {
	data, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.init(); err != nil {
		return err
	}
	if _, s.err = s.w.Write(sse.AppendNamedEvent(nil, name, "", data)); s.err == nil {
		s.err = s.flush()
	}
	return s.err
}

// End writes what is held back, the failure if there is one, and the end.
func (s *Streamer) End(failure error) error {
	c := &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"}
	if failure != nil {
		c.Outcome, c.FinishReason, c.Error = chunk.OutcomeFailed, "error", failure.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.init(); err != nil {
		return err
	}
	err := s.feed(c)
	s.ended = true
	return err
}

package merlin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/internal/uuid"
	"github.com/spool-run/spool/wire"
)

// Streamer writes one answer to one response, without a log, for programs that have
// only a model's chunks and a client's connection. The frames are those of a
// [Projector]. A client that disconnects cannot resume.
//
// It may be used from several goroutines, such as those of parallel sub-agents. The
// content of V1 is paced: methods return when what they show is written.
type Streamer struct {
	w     io.Writer
	flush func() error
	o     StreamerOptions

	mu    sync.Mutex
	p     *Projector
	seq   uint64
	steps int
	begun bool
	ended bool
	err   error // the client is gone
	paced *pump // nil if nothing is paced

	own      []*modelStream    // the agent's own streams that run or wait, in the order in which they began
	calls    map[string]string // who made each call, by their agent ids; "" if the call is not shown
	kids     map[string]string // agent id of each call's sub-agent
	managers map[string]bool   // ids of its event managers
	speakers int               // agent ids that have been used besides the answer's own
}

// StreamerOptions are the options of a [Streamer].
type StreamerOptions struct {
	Options
	// ID tells the answer apart from others: the ids of its steps are made of it. "" is a
	// random one.
	ID string
	// Documents are the attachments that the model was given, in the order in which its
	// citations count them. Clients are sent them with the first citation.
	Documents []Attachment
	// AnyOrigin allows pages of all origins to read the response: it sets
	// Access-Control-Allow-Origin and Access-Control-Allow-Headers to *.
	AnyOrigin bool
	// Pacing is the table by which V1 content is paced; nil is [DefaultPacing]. An empty
	// one does not pace.
	Pacing []Pace
	// Logger is told of streams that break and of what is left out, with the tag
	// ERROR/STREAMER; nil tells nobody.
	Logger *slog.Logger
}

// StreamConfig says what a stream is. The zero value is the agent's own words.
type StreamConfig struct {
	// AsResultOf says that the stream is a sub-agent's, and is the id of its call.
	// Its text is sent as pieces of that call's result.
	AsResultOf string
	// ToolResultIndex says the same by the call's place: it is the index of the call in the
	// block at ContentIndex. Nil says nothing. See [State].
	ToolResultIndex *int
	// Events is the event manager of the agent, or nil: the stream's blocks begin at its
	// index, if that is higher than ContentIndex (V2).
	Events *EventManager
	// ContentIndex is the content index from which on the stream's blocks are numbered
	// (V2), for a program that counts across several answers. If it is lower than
	// [Streamer.ContentIndex], as 0 is, that one is taken, so that no block is written
	// into another.
	ContentIndex int
	// Suppress sends nothing of the stream. It is returned all the same.
	Suppress bool
}

// Errors of a [Streamer].
var (
	ErrEnded       = errors.New("merlin: the answer has ended")
	ErrUnknownCall = errors.New("merlin: no stream has made this call")
	ErrNoDocument  = errors.New("merlin: there is no document at this index")
)

const streamed = "stream" // session and run of a Streamer's records

// NewStreamer returns a streamer that writes to w and flushes it, if it can, after
// every chunk. Options may be nil.
func NewStreamer(w io.Writer, o *StreamerOptions) *Streamer {
	if o == nil {
		o = new(StreamerOptions)
	}
	turn := o.ID
	if turn == "" {
		turn = uuid.V4()
	}
	s := &Streamer{w: w, o: *o, p: NewProjector(turn, &o.Options), flush: func() error { return nil },
		calls: map[string]string{}, kids: map[string]string{}, managers: map[string]bool{}}
	s.p.given = given(o.Documents)
	if table := paceOf(o.Version, o.Pacing); table != nil {
		s.paced = newPump(table, &s.mu)
	}
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
// Other methods call it if nobody has. It sets no Access-Control headers unless
// [StreamerOptions.AnyOrigin] is set: a program that needs others sets them before.
func (s *Streamer) Init() (err error) {
	s.mu.Lock()
	defer s.unlock(&err)
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
		if s.o.AnyOrigin {
			rw.Header().Set("Access-Control-Allow-Origin", "*")
			rw.Header().Set("Access-Control-Allow-Headers", "*")
		}
		rw.WriteHeader(http.StatusOK)
	}
	return s.feed(&chunk.RunStarted{TurnID: s.p.turn, MessageID: streamed, Mode: "start"})
}

// feed projects a chunk and writes what it becomes.
func (s *Streamer) feed(c chunk.Chunk) error {
	if s.err != nil {
		return s.err
	}
	if b := c.ChunkBase(); b.AgentID == "" {
		b.AgentID, b.RunID = streamed, streamed
	}
	r, err := record(c)
	if err != nil {
		return err
	}
	return s.project(r)
}

// record encodes a chunk. It has no sequence yet.
func record(c chunk.Chunk) (chunk.Record, error) {
	data, err := chunk.Append(nil, c)
	return chunk.Record{Type: c.ChunkType(), Agent: c.ChunkBase().AgentID, Class: chunk.ClassOf(c), Data: data}, err
}

// project projects the next record and writes what it becomes.
func (s *Streamer) project(r chunk.Record) error {
	if s.err != nil {
		return s.err
	}
	s.seq++
	r.Seq = s.seq
	frames, err := s.p.Apply(nil, r)
	if err != nil {
		return err
	}
	return s.write(frames)
}

// write sends frames, or queues them if they are paced.
func (s *Streamer) write(frames []spool.Frame) error {
	switch {
	case s.err != nil || len(frames) == 0:
	case s.paced != nil:
		s.paced.add(frames, s.send, &s.err)
	default:
		var out []byte
		for _, f := range frames {
			out = append(out, f.Data...)
		}
		s.err = s.send(out)
	}
	return s.err
}

// send writes bytes to the client.
func (s *Streamer) send(out []byte) error {
	if _, err := s.w.Write(out); err != nil {
		return err
	}
	return s.flush()
}

// unlock ends a method: it waits until what was queued is written, and reports the
// client's failure if the method has none of its own.
func (s *Streamer) unlock(err *error) {
	if s.paced != nil {
		s.paced.wait(0)
	}
	if *err == nil {
		*err = s.err
	}
	s.mu.Unlock()
}

// Result shows the outcome of a call. Failure is "" if it did not fail. The calls of
// sub-agents are known, but not shown, and neither are their outcomes. A call that no
// stream has made is [ErrUnknownCall].
func (s *Streamer) Result(callID, tool string, result json.RawMessage, failure string) (err error) {
	c := &chunk.ToolEnd{ToolCallID: callID, ToolName: tool, Result: result, Success: failure == "", Error: failure}
	s.mu.Lock()
	defer s.unlock(&err)
	if err := s.init(); err != nil {
		return err
	}
	caller, known := s.calls[callID]
	switch {
	case !known:
		return fmt.Errorf("%w: %q", ErrUnknownCall, callID)
	case caller == "":
		return nil
	}
	c.AgentID, c.RunID = caller, streamed
	return s.feed(c)
}

// indexOf returns the content index of the steps of a manager, or of the block of a call;
// the next index if there are none yet.
func (s *Streamer) indexOf(manager, call string) int {
	if s.p.fold == nil {
		return s.p.o.FirstIndex
	}
	blocks := s.p.scene().blocks
	for i := range blocks {
		if manager != "" && blocks[i].kind == TypeProgress && blocks[i].text == manager || call != "" && blocks[i].call(call) >= 0 {
			return s.p.index(i)
		}
	}
	return s.p.index(len(blocks))
}

// call returns the index of a call in its block, -1 if it is in another.
func (b *block) call(id string) int {
	return slices.IndexFunc(b.calls, func(c call) bool { return c.id == id })
}

// skipTo raises the content index of the next block, if it is lower.
func (s *Streamer) skipTo(index int) {
	next := len(s.p.scene().blocks)
	if size := index - s.p.index(next); size > 0 {
		s.p.gaps = append(s.p.gaps, gap{next, size})
	}
}

func (s *Streamer) emit(c chunk.Chunk) (err error) {
	s.mu.Lock()
	defer s.unlock(&err)
	if err := s.init(); err != nil {
		return err
	}
	return s.feed(c)
}

// AppendEvent writes an event of the program's own.
func (s *Streamer) AppendEvent(name string, payload any) (err error) {
	data, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.unlock(&err)
	if err := s.init(); err != nil {
		return err
	}
	return s.write([]spool.Frame{{Data: wire.AppendEvent(nil, name, data)}})
}

// End writes what is held back, the failure if there is one, and the end.
func (s *Streamer) End(failure error) (err error) {
	c := &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"}
	if failure != nil {
		c.Outcome, c.FinishReason, c.Error = chunk.OutcomeFailed, "error", failure.Error()
	}
	s.mu.Lock()
	defer s.unlock(&err)
	if err := s.init(); err != nil {
		return err
	}
	for _, v := range s.own { // what waits is shown before the end
		if err := s.show(v); err != nil {
			return err
		}
	}
	err = s.feed(c)
	s.ended = true
	return err
}

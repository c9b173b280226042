package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// StreamManager is a view of logs as streams that are written, ended and read:
// for producers that have an agent of their own and want none of ours. A stream
// is a session's log. Writing to it opens a run of mode external under a forced
// claim, and ending, failing or pausing it settles that run, so that status,
// messages and every wire are as right as those of our own runs.
//
// While a stream is open, this manager's lease on it is renewed by each write.
// When it expires, a runner of the same store may fail the run as lost; a claim
// by anyone else makes further writes fail with [ErrSuperseded].
type StreamManager struct {
	logs *Logs
	ttl  time.Duration

	mu      sync.Mutex
	streams map[string]*managed
}

// StreamManagerOptions are a manager's settings.
type StreamManagerOptions struct {
	// TTL is how long a stream may be silent before it counts as abandoned.
	// 0: ten minutes.
	TTL time.Duration
}

// managed is a stream that this manager has, or is about to have, a lease on.
type managed struct {
	mu      sync.RWMutex
	dead    bool // no longer in the map
	lease   Lease
	control *Writer // nil while there is no lease
	run     string
	writers int
	phase   atomic.Bool // the root agent may have streamed what no assistant_message holds
}

// NewStreamManager returns a manager. The logs' store must be a [Leaser].
func NewStreamManager(l *Logs, o *StreamManagerOptions) *StreamManager {
	m := &StreamManager{logs: l, ttl: 10 * time.Minute, streams: map[string]*managed{}}
	if o != nil && o.TTL > 0 {
		m.ttl = o.TTL
	}
	return m
}

// StreamWriter writes chunks to a stream. It may be used from several
// goroutines.
type StreamWriter struct {
	m       *StreamManager
	g       *Log
	s       *managed
	control *Writer
	w       *Writer
}

// CreateWriter returns a writer of a stream that need not exist yet. If no run
// is open in it, one is opened: of a paused stream in the same turn, else of a
// new one, which answers the oldest user message that waits.
//
// The chunks get this agent id and type. The agent whose answer the stream is
// has the stream's id (also if agentID is ""); what others write is shown, and
// is no part of the message.
func (m *StreamManager) CreateWriter(ctx context.Context, streamID, agentID, agentType string) (*StreamWriter, error) {
	g, s, err := m.lock(streamID)
	if err != nil {
		return nil, err
	}
	defer m.unlock(streamID, s)
	if err := m.activate(ctx, g, s, agentType, ""); err != nil {
		return nil, err
	}
	s.writers++
	w := g.Writer(s.lease, WriterOptions{Name: fmt.Sprintf("w%d", s.writers), AgentID: agentID, AgentType: agentType, RunID: s.run})
	return &StreamWriter{m: m, g: g, s: s, control: s.control, w: w}, nil
}

// Write appends one chunk. When it returns, the chunk is stored and has the next
// sequence; before what happens to a tool call comes an assistant_message with
// all that was streamed until then. Write fails with [ErrClosed] once the stream
// was ended, failed or paused, with [ErrInvalidChunk], and with [ErrSuperseded].
func (w *StreamWriter) Write(ctx context.Context, c Chunk) error {
	if err := ValidateChunk(c); err != nil {
		return err
	}
	root := w.w.Base().AgentID == w.g.Session()
	if root && afterModelPhase(c) && w.s.phase.Load() {
		if err := w.closeModelPhase(ctx); err != nil {
			return err
		}
	}
	w.s.mu.RLock()
	defer w.s.mu.RUnlock()
	if err := w.open(); err != nil {
		return err
	}
	if root && ClassOf(c) == Trace {
		w.s.phase.Store(true)
	}
	if err := w.w.Append(ctx, c); err != nil {
		return err
	}
	return w.w.Flush(ctx)
}

func (w *StreamWriter) open() error {
	if w.s.control != w.control {
		return ErrClosed.Because("the stream is not open").With(w.g.Session(), nil)
	}
	return nil
}

func (w *StreamWriter) closeModelPhase(ctx context.Context) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if err := w.open(); err != nil || !w.s.phase.Load() {
		return err
	}
	return w.m.closeModelPhase(ctx, w.g, w.s, "tool-calls")
}

// afterModelPhase says that a chunk belongs to a tool phase: what was streamed
// before it is complete.
func afterModelPhase(c Chunk) bool {
	return Is(c, TypeToolStart, TypeToolEnd, TypeToolInputError, TypeToolOutputError, TypeToolApprovalRequest, TypeSubAgentStart)
}

// Close closes the writer. The stream stays open.
func (w *StreamWriter) Close() error { return w.w.Close() }

// EndStream ends a stream: what it shows becomes its message, and output, if
// there is any, its result. Ending a stream that is not open changes nothing.
func (m *StreamManager) EndStream(ctx context.Context, streamID string, output json.RawMessage) error {
	var first []Chunk
	if output != nil {
		first = append(first, &Output{Output: output})
	}
	return m.end(ctx, streamID, first, "the stream ended", &RunFinished{Outcome: OutcomeCompleted, FinishReason: "stop"})
}

// FailStream ends a stream with an error.
func (m *StreamManager) FailStream(ctx context.Context, streamID, message string) error {
	return m.end(ctx, streamID, nil, message, &RunFinished{Outcome: OutcomeFailed, FinishReason: "error", Error: message})
}

// PauseStream closes a stream at a point where it waits for a human or a client.
// Readers end; [StreamManager.ResumeStream] or a new writer goes on in the same
// turn. Pausing a stream that is not open changes nothing.
func (m *StreamManager) PauseStream(ctx context.Context, streamID string) error {
	return m.settle(ctx, streamID, func(f *Fold, commit func(Row, ...Chunk) error) error {
		pause := f.Suspend(SuspendedClientTool, nil, 0)[0].(*RunSuspended)
		pause.Base = Base{} // the writer's
		for _, p := range f.Message(f.LastTurn().MessageID).Parts {
			if p.Tool == nil || p.Tool.State.Settled() {
				continue
			}
			pause.ToolCallIDs = append(pause.ToolCallIDs, p.Tool.CallID)
			if p.Tool.Approval != nil && p.Tool.Approval.Approved == nil {
				pause.Kind = SuspendedApproval
			}
		}
		return commit(Row{Status: StatusPaused}, pause)
	})
}

// ResumeStream opens a paused stream again, in the same turn. For an open one it
// changes nothing; any other is [ErrInvalid].
func (m *StreamManager) ResumeStream(ctx context.Context, streamID string) error {
	g, s, err := m.lock(streamID)
	if err != nil {
		return err
	}
	defer m.unlock(streamID, s)
	h, err := g.Head(ctx)
	if err != nil {
		return err
	}
	if h.Status != StatusPaused && h.Status != StatusActive {
		return ErrInvalid.Because("the stream is not paused").With(streamID, nil)
	}
	return m.activate(ctx, g, s, "", "continue")
}

// lock returns the stream, locked. Every lock is followed by an unlock.
func (m *StreamManager) lock(streamID string) (*Log, *managed, error) {
	g, err := m.logs.Log(streamID)
	if err != nil {
		return nil, nil, err
	}
	for {
		m.mu.Lock()
		s := m.streams[streamID]
		if s == nil {
			s = &managed{}
			m.streams[streamID] = s
		}
		m.mu.Unlock()
		s.mu.Lock()
		if !s.dead {
			return g, s, nil
		}
		s.mu.Unlock()
	}
}

func (m *StreamManager) unlock(streamID string, s *managed) {
	if s.control == nil {
		m.mu.Lock()
		delete(m.streams, streamID)
		m.mu.Unlock()
		s.dead = true
	}
	s.mu.Unlock()
}

// activate makes sure that the stream is ours and has an open run.
func (m *StreamManager) activate(ctx context.Context, g *Log, s *managed, agentType, mode string) error {
	if s.control != nil {
		err := m.renew(ctx, s)
		if !errors.Is(err, ErrSuperseded) {
			return err
		}
		m.drop(s)
	}
	f, err := m.claim(ctx, g, s)
	if err != nil {
		return err
	}
	start := &RunStarted{Base: Base{AgentType: agentType}, TurnID: m.logs.NewID(), MessageID: m.logs.NewID(), Mode: "external"}
	start.RunID = m.logs.NewID()
	chunks, settle := []Chunk{start}, (*Settle)(nil)
	switch turn := f.LastTurn(); {
	case f.OpenRun() != nil:
		s.run = f.OpenRun().ID
		start, chunks = nil, []Chunk{&ExecutorSuperseded{Base: Base{RunID: s.run}, Reason: "stream_manager"}}
	case f.Status == StatusPaused && turn != nil:
		start.TurnID, start.MessageID = turn.ID, turn.MessageID
		if mode == "" {
			mode = "continue"
		}
		chunks = append(chunks, &RunResumed{Base: Base{RunID: start.RunID}, Mode: mode})
	case len(f.Waiting) > 0:
		start.TurnID, start.Commands = f.Waiting[0].ID, []string{f.Waiting[0].ID}
		if len(f.Waiting) == 1 {
			settle = &Settle{Seen: f.Seq}
		}
	}
	if start != nil {
		s.run = start.RunID
	}
	s.control.SetRun(s.run)
	s.phase.Store(start == nil) // what the former owner left open is ours to close
	if _, err := s.control.Commit(ctx, Row{Status: StatusActive}, settle, chunks...); err != nil {
		m.drop(s)
		return err
	}
	return nil
}

func (m *StreamManager) renew(ctx context.Context, s *managed) error {
	leaser, ok := m.logs.Store().(Leaser)
	if !ok {
		return ErrUnsupported
	}
	return leaser.Renew(ctx, s.lease)
}

// claim takes the stream over, and folds it.
func (m *StreamManager) claim(ctx context.Context, g *Log, s *managed) (*Fold, error) {
	lease, err := m.logs.Claim(ctx, Claim{Owner: "stream-manager:" + m.logs.NewID(), TTL: m.ttl, Session: g.Session(), Force: true})
	if err != nil {
		return nil, err
	}
	s.lease, s.control = lease, g.Writer(lease, WriterOptions{})
	f, err := m.fold(ctx, g)
	if err != nil {
		m.drop(s)
		return nil, err
	}
	return f, nil
}

// drop forgets a lease. What the store makes of it is its affair.
func (m *StreamManager) drop(s *managed) {
	_ = s.control.Close()
	s.control, s.run, s.writers = nil, "", 0
}

func (m *StreamManager) end(ctx context.Context, streamID string, first []Chunk, why string, last *RunFinished) error {
	status := StatusEnded
	if last.Outcome == OutcomeFailed {
		status = StatusFailed
	}
	return m.settle(ctx, streamID, func(f *Fold, commit func(Row, ...Chunk) error) error {
		chunks := f.Unsettled(why)
		if last.Outcome == OutcomeCompleted {
			for _, c := range chunks {
				if step, ok := c.(*StepCommitted); ok {
					step.Partial = false
				}
			}
		}
		chunks = append(chunks, first...)
		return commit(Row{Status: status}, append(chunks, last)...)
	})
}

// settle closes the open run's model phase, lets write do the rest and releases
// the stream.
func (m *StreamManager) settle(ctx context.Context, streamID string, write func(*Fold, func(Row, ...Chunk) error) error) error {
	g, s, err := m.lock(streamID)
	if err != nil {
		return err
	}
	defer m.unlock(streamID, s)
	h, err := g.Head(ctx)
	if err != nil {
		return err
	}
	if h.Status != StatusActive {
		return nil
	}
	if s.control == nil {
		if err := m.activate(ctx, g, s, "", ""); err != nil {
			return err
		}
	}
	if err := m.closeModelPhase(ctx, g, s, "stop"); err != nil {
		m.drop(s)
		return err
	}
	f, err := m.fold(ctx, g)
	if err != nil {
		return err
	}
	commit := func(row Row, chunks ...Chunk) error {
		_, err := s.control.Commit(ctx, row, nil, chunks...)
		return err
	}
	if f.OpenRun() == nil { // someone else was quicker
		m.drop(s)
		return nil
	}
	err = write(f, commit)
	lease := s.lease
	m.drop(s)
	if err != nil {
		return err
	}
	if leaser, ok := m.logs.Store().(Leaser); ok {
		return leaser.Release(ctx, lease)
	}
	return nil
}

// closeModelPhase writes down what was streamed.
func (m *StreamManager) closeModelPhase(ctx context.Context, g *Log, s *managed, finishReason string) error {
	var chunks []Chunk
	err := g.View(ctx, func(f *Fold) error {
		if f.OpenRun() != nil && f.Streamed() {
			chunks = f.CloseModelPhase(finishReason, nil)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(chunks) > 0 {
		if _, err := s.control.Commit(ctx, Row{}, nil, chunks...); err != nil {
			return err
		}
	}
	s.phase.Store(false)
	return nil
}

// fold folds the stream as it is; of none, nothing.
func (m *StreamManager) fold(ctx context.Context, g *Log) (*Fold, error) {
	h, err := g.Head(ctx)
	if errors.Is(err, ErrNotFound) {
		return NewFold(g.Session()), nil
	}
	if err != nil {
		return nil, err
	}
	return g.FoldAt(ctx, h.Seq)
}

package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// StreamManager is a view of logs as streams that are written, ended and read:
// for producers that have an agent of their own and want none of ours. A stream
// is a session's log. Writing to it opens a run of mode external under a forced
// claim, and ending, failing or pausing it settles that run, so that status,
// messages and every wire are as right as those of our own runs.
//
// While a stream is open, this manager's lease on it is renewed by each write.
// When it expires, a runner of the same store may fail the run as lost; a claim
// by anyone else makes further writes fail with [spool.ErrSuperseded].
type Manager struct {
	logs *spool.Logs
	ttl  time.Duration

	mu      sync.Mutex
	streams map[string]*managed
}

// StreamManagerOptions are a manager's settings.
type ManagerOptions struct {
	// TTL is how long a stream may be silent before it counts as abandoned.
	// 0: ten minutes.
	TTL time.Duration
}

// managed is a stream that this manager has, or is about to have, a lease on.
type managed struct {
	mu      sync.RWMutex
	dead    bool // no longer in the map
	lease   spool.Lease
	control *spool.Writer // nil while there is no lease
	run     string
	writers int
	phase   atomic.Bool // the root agent may have streamed what no assistant_message holds
}

// NewStreamManager returns a manager. The logs' store must be a [spool.Leaser].
func NewManager(l *spool.Logs, o *ManagerOptions) *Manager {
	m := &Manager{logs: l, ttl: 10 * time.Minute, streams: map[string]*managed{}}
	if o != nil && o.TTL > 0 {
		m.ttl = o.TTL
	}
	return m
}

// StreamWriter writes chunks to a stream. It may be used from several
// goroutines.
type Writer struct {
	m       *Manager
	g       *spool.Log
	s       *managed
	control *spool.Writer
	w       *spool.Writer
}

// CreateWriter returns a writer of a stream that need not exist yet. If no run
// is open in it, one is opened: of a paused stream in the same turn, else of a
// new one, which answers the oldest user message that waits.
//
// The chunks get this agent id and type. The agent whose answer the stream is
// has the stream's id (also if agentID is ""); what others write is shown, and
// is no part of the message.
func (m *Manager) CreateWriter(ctx context.Context, streamID, agentID, agentType string) (*Writer, error) {
	g, s, err := m.lock(streamID)
	if err != nil {
		return nil, err
	}
	defer m.unlock(streamID, s)
	if err := m.activate(ctx, g, s, agentType, ""); err != nil {
		return nil, err
	}
	s.writers++
	w := g.Writer(s.lease, spool.WriterOptions{Name: fmt.Sprintf("w%d", s.writers), AgentID: agentID, AgentType: agentType, RunID: s.run})
	return &Writer{m: m, g: g, s: s, control: s.control, w: w}, nil
}

// Write appends one chunk. When it returns, the chunk is stored and has the next
// sequence; before what happens to a tool call comes an assistant_message with
// all that was streamed until then. Write fails with [spool.ErrClosed] once the stream
// was ended, failed or paused, with [chunk.ErrInvalidChunk], and with [spool.ErrSuperseded].
func (w *Writer) Write(ctx context.Context, c chunk.Chunk) error {
	if err := chunk.Validate(c); err != nil {
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
	if root && chunk.ClassOf(c) == chunk.Trace {
		w.s.phase.Store(true)
	}
	if err := w.w.Append(ctx, c); err != nil {
		return err
	}
	return w.w.Flush(ctx)
}

func (w *Writer) open() error {
	if w.s.control != w.control {
		return spool.ErrClosed.Because("the stream is not open").With(w.g.Session(), nil)
	}
	return nil
}

func (w *Writer) closeModelPhase(ctx context.Context) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if err := w.open(); err != nil || !w.s.phase.Load() {
		return err
	}
	return w.m.closeModelPhase(ctx, w.g, w.s, "tool-calls")
}

// afterModelPhase says that a chunk belongs to a tool phase: what was streamed
// before it is complete.
func afterModelPhase(c chunk.Chunk) bool {
	return chunk.Is(c, chunk.TypeToolStart, chunk.TypeToolEnd, chunk.TypeToolInputError, chunk.TypeToolOutputError, chunk.TypeToolApprovalRequest, chunk.TypeSubAgentStart)
}

// Close closes the writer. The stream stays open.
func (w *Writer) Close() error { return w.w.Close() }

// EndStream ends a stream: what it shows becomes its message, and output, if
// there is any, its result. Ending a stream that is not open changes nothing.
func (m *Manager) EndStream(ctx context.Context, streamID string, output json.RawMessage) error {
	var first []chunk.Chunk
	if output != nil {
		first = append(first, &chunk.Output{Output: output})
	}
	return m.end(ctx, streamID, first, "the stream ended", &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"})
}

// FailStream ends a stream with an error.
func (m *Manager) FailStream(ctx context.Context, streamID, message string) error {
	return m.end(ctx, streamID, nil, message, &chunk.RunFinished{Outcome: chunk.OutcomeFailed, FinishReason: "error", Error: message})
}

// PauseStream closes a stream at a point where it waits for a human or a client.
// Readers end; [Manager.ResumeStream] or a new writer goes on in the same
// turn. Pausing a stream that is not open changes nothing.
func (m *Manager) PauseStream(ctx context.Context, streamID string) error {
	return m.settle(ctx, streamID, func(f *fold.Fold, commit func(spool.Row, ...chunk.Chunk) error) error {
		pause := f.Owed().Suspend(chunk.SuspendedClientTool, nil, 0)[0].(*chunk.RunSuspended)
		pause.Base = chunk.Base{} // the writer's
		for _, p := range f.Message(f.LastTurn().MessageID).Parts {
			if p.Tool == nil || p.Tool.State.Done() {
				continue
			}
			pause.ToolCallIDs = append(pause.ToolCallIDs, p.Tool.CallID)
			if p.Tool.Approval != nil && p.Tool.Approval.Approved == nil {
				pause.Kind = chunk.SuspendedApproval
			}
		}
		return commit(spool.Row{Status: chunk.StatusPaused}, pause)
	})
}

// ResumeStream opens a paused stream again, in the same turn. For an open one it
// changes nothing; any other is [chunk.ErrInvalid].
func (m *Manager) ResumeStream(ctx context.Context, streamID string) error {
	g, s, err := m.lock(streamID)
	if err != nil {
		return err
	}
	defer m.unlock(streamID, s)
	h, err := g.Head(ctx)
	if err != nil {
		return err
	}
	if h.Status != chunk.StatusPaused && h.Status != chunk.StatusActive {
		return chunk.ErrInvalid.Because("the stream is not paused").With(streamID, nil)
	}
	return m.activate(ctx, g, s, "", "continue")
}

// lock returns the stream, locked. Every lock is followed by an unlock.
func (m *Manager) lock(streamID string) (*spool.Log, *managed, error) {
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

func (m *Manager) unlock(streamID string, s *managed) {
	if s.control == nil {
		m.mu.Lock()
		delete(m.streams, streamID)
		m.mu.Unlock()
		s.dead = true
	}
	s.mu.Unlock()
}

// activate makes sure that the stream is ours and has an open run.
func (m *Manager) activate(ctx context.Context, g *spool.Log, s *managed, agentType, mode string) error {
	if s.control != nil {
		err := m.renew(ctx, s)
		if !errors.Is(err, spool.ErrSuperseded) {
			return err
		}
		m.drop(s)
	}
	f, err := m.claim(ctx, g, s)
	if err != nil {
		return err
	}
	start := &chunk.RunStarted{Base: chunk.Base{AgentType: agentType}, TurnID: m.logs.NewID(), MessageID: m.logs.NewID(), Mode: "external"}
	start.RunID = m.logs.NewID()
	chunks, settle := []chunk.Chunk{start}, (*spool.Settle)(nil)
	switch turn := f.LastTurn(); {
	case f.OpenRun() != nil:
		s.run = f.OpenRun().ID
		start, chunks = nil, []chunk.Chunk{&chunk.ExecutorSuperseded{Base: chunk.Base{RunID: s.run}, Reason: "stream_manager"}}
	case f.Status == chunk.StatusPaused && turn != nil:
		start.TurnID, start.MessageID = turn.ID, turn.MessageID
		if mode == "" {
			mode = "continue"
		}
		chunks = append(chunks, &chunk.RunResumed{Base: chunk.Base{RunID: start.RunID}, Mode: mode})
	case len(f.Waiting) > 0:
		start.TurnID, start.Commands = f.Waiting[0].ID, []string{f.Waiting[0].ID}
		if len(f.Waiting) == 1 {
			settle = &spool.Settle{Seen: f.Seq}
		}
	}
	if start != nil {
		s.run = start.RunID
	}
	s.control.SetRun(s.run)
	s.phase.Store(start == nil) // what the former owner left open is ours to close
	if _, err := s.control.Commit(ctx, spool.Row{Status: chunk.StatusActive}, settle, chunks...); err != nil {
		m.drop(s)
		return err
	}
	return nil
}

func (m *Manager) renew(ctx context.Context, s *managed) error {
	leaser, ok := m.logs.Store().(spool.Leaser)
	if !ok {
		return spool.ErrUnsupported
	}
	return leaser.Renew(ctx, s.lease)
}

// claim takes the stream over, and folds it.
func (m *Manager) claim(ctx context.Context, g *spool.Log, s *managed) (*fold.Fold, error) {
	lease, err := m.logs.Claim(ctx, spool.Claim{Owner: "stream-manager:" + m.logs.NewID(), TTL: m.ttl, Session: g.Session(), Force: true})
	if err != nil {
		return nil, err
	}
	s.lease, s.control = lease, g.Writer(lease, spool.WriterOptions{})
	f, err := m.fold(ctx, g)
	if err != nil {
		m.drop(s)
		return nil, err
	}
	return f, nil
}

// drop forgets a lease. What the store makes of it is its affair.
func (m *Manager) drop(s *managed) {
	_ = s.control.Close()
	s.control, s.run, s.writers = nil, "", 0
}

func (m *Manager) end(ctx context.Context, streamID string, first []chunk.Chunk, why string, last *chunk.RunFinished) error {
	status := chunk.StatusEnded
	if last.Outcome == chunk.OutcomeFailed {
		status = chunk.StatusFailed
	}
	return m.settle(ctx, streamID, func(f *fold.Fold, commit func(spool.Row, ...chunk.Chunk) error) error {
		chunks := f.Owed().Unsettled(why)
		if last.Outcome == chunk.OutcomeCompleted {
			for _, c := range chunks {
				if step, ok := c.(*chunk.StepCommitted); ok {
					step.Partial = false
				}
			}
		}
		chunks = append(chunks, first...)
		return commit(spool.Row{Status: status}, append(chunks, last)...)
	})
}

// settle closes the open run's model phase, lets write do the rest and releases
// the stream.
func (m *Manager) settle(ctx context.Context, streamID string, write func(*fold.Fold, func(spool.Row, ...chunk.Chunk) error) error) error {
	g, s, err := m.lock(streamID)
	if err != nil {
		return err
	}
	defer m.unlock(streamID, s)
	h, err := g.Head(ctx)
	if err != nil {
		return err
	}
	if h.Status != chunk.StatusActive {
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
	commit := func(row spool.Row, chunks ...chunk.Chunk) error {
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
	if leaser, ok := m.logs.Store().(spool.Leaser); ok {
		return leaser.Release(ctx, lease)
	}
	return nil
}

// closeModelPhase writes down what was streamed.
func (m *Manager) closeModelPhase(ctx context.Context, g *spool.Log, s *managed, finishReason string) error {
	var chunks []chunk.Chunk
	err := g.View(ctx, func(f *fold.Fold) error {
		if f.OpenRun() != nil && f.Streamed() {
			chunks = f.Owed().CloseModelPhase(finishReason, nil)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(chunks) > 0 {
		if _, err := s.control.Commit(ctx, spool.Row{}, nil, chunks...); err != nil {
			return err
		}
	}
	s.phase.Store(false)
	return nil
}

// fold folds the stream as it is; of none, nothing.
func (m *Manager) fold(ctx context.Context, g *spool.Log) (*fold.Fold, error) {
	h, err := g.Head(ctx)
	if errors.Is(err, spool.ErrNotFound) {
		return fold.New(g.Session()), nil
	}
	if err != nil {
		return nil, err
	}
	return g.FoldAt(ctx, h.Seq)
}

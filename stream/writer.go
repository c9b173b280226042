package stream

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Writer writes chunks to a stream. It may be used from several goroutines.
type Writer struct {
	m       *Manager
	session string
	run     *run
	base    chunk.Base
	closed  atomic.Bool
}

// CreateWriter returns a writer of a stream that need not exist yet. If no run is open
// in it, it opens one, which answers the oldest user message that waits, continues the
// turn of a paused stream, or begins a turn. If another manager or a producer has an
// external run open there, that run is taken over. It fails with [spool.ErrBusy] if an
// agent's run is open.
//
// Chunks that do not name an agent and its type get agentID and agentType. See
// [Writer.Write] for what the agent's id means.
func (m *Manager) CreateWriter(ctx context.Context, streamID, agentID, agentType string) (*Writer, error) {
	s, err := m.runs.hold(ctx, streamID)
	if err != nil {
		return nil, err
	}
	defer m.runs.leave(s)
	if err := m.activate(ctx, s, terms{agentType: agentType}); err != nil {
		return nil, err
	}
	base := chunk.Base{AgentID: cmp.Or(agentID, streamID), AgentType: cmp.Or(agentType, s.run.info.AgentType)}
	return &Writer{m: m, session: streamID, run: s.run, base: base}, nil
}

// Write appends one chunk. When it returns, the chunk is stored and has the next
// sequence. What belongs between the chunks is written by itself: steps, and before the
// first chunk about a tool call an assistant_message with all that was streamed until
// then. Text after a call begins the next step, as does a chunk with a higher step
// number than the open step's. A checkpoint_created ends the open step.
//
// Every chunk belongs to the stream's own agent, whatever agent id it has: producers
// that know no sessions put an id of their own run there. The exceptions are the ids of
// sub-agents, which are those that a subagent_start of the turn has named and those of
// the form "<stream>.<n>". A sub-agent's chunks are stored under its id and are no part
// of the stream's message.
//
// A tool_end without an error is a success. It and tool_output_error get their tool's
// name from the call's start. A tool_start without arguments gets those that were
// streamed, or {}.
//
// Errors: [ErrProducerKind] for commands and for what the writer writes by itself
// (run_started, run_finished, run_suspended, assistant_message, step_…,
// answer_started, executor_handed_over); [chunk.ErrInvalidChunk], also for a state patch that does not apply;
// [spool.ErrClosed] if the stream was ended, failed or paused; [ErrProducerStopped] if
// a stop command has ended it; [spool.ErrSuperseded].
func (w *Writer) Write(ctx context.Context, c chunk.Chunk) error {
	if c != nil && reserved(c.ChunkType()) {
		return ErrProducerKind.Because("a producer must not write "+string(c.ChunkType())).With(w.session, nil)
	}
	if err := chunk.Validate(c); err != nil {
		return err
	}
	s, err := w.m.runs.hold(ctx, w.session)
	if err != nil {
		return err
	}
	defer w.m.runs.leave(s)
	if s.run != w.run || w.closed.Load() {
		return errNotOpen.With(w.session, nil)
	}
	return s.run.write(ctx, w.base, c)
}

// write appends one chunk of a stream's writer.
func (r *run) write(ctx context.Context, base chunk.Base, c chunk.Chunk) error {
	if err := r.heed(ctx); err != nil {
		return err
	}
	chunks, err := r.prepare(ctx, base, c)
	if err != nil {
		return err
	}
	if err := r.append(ctx, spool.Entry{Base: r.base(0), Chunks: chunks}); err != nil {
		// It is not known whether the chunk was stored, and the next chunk is another
		// one, so the next append uses another writer name. Where the run stands is read
		// from the log.
		r.writer, r.sent = r.writer+"'", 0
		return err
	}
	return r.heed(ctx)
}

// prepare fills in what a chunk lacks, and returns it with what belongs before it.
func (r *run) prepare(ctx context.Context, base chunk.Base, c chunk.Chunk) ([]chunk.Chunk, error) {
	if _, unknown := c.(*chunk.Unknown); unknown { // its base is in its JSON
		return []chunk.Chunk{c}, nil
	}
	b := c.ChunkBase()
	own, err := r.attribute(ctx, b, base)
	if err != nil {
		return nil, err
	}
	if err := r.checkPatches(ctx, b.AgentID, c); err != nil {
		return nil, err
	}
	if err := r.fill(ctx, c, nil); err != nil || !own {
		return []chunk.Chunk{c}, err
	}
	lead, err := r.lead(ctx, c)
	if err != nil {
		return nil, err
	}
	b.Step = r.in.number
	switch c := c.(type) {
	case *chunk.SubAgentStart:
		if r.subs != nil {
			r.subs[c.SubSessionID] = c.SubAgentType
		}
	case *chunk.CheckpointCreated:
		c.StepCount = cmp.Or(c.StepCount, r.in.number)
	}
	return append(lead, c), nil
}

// attribute gives a chunk its agent and run. It reports whether the agent is the
// stream's own.
func (r *run) attribute(ctx context.Context, b *chunk.Base, base chunk.Base) (own bool, err error) {
	session, id := r.lease.Session, cmp.Or(b.AgentID, base.AgentID)
	b.AgentID, b.RunID = session, r.info.ID
	if id != session {
		agentType, sub, err := r.subAgent(ctx, id)
		if err != nil {
			return false, err
		}
		if sub {
			b.AgentID, b.AgentType = id, cmp.Or(b.AgentType, agentType, base.AgentType)
			return false, nil
		}
	}
	b.AgentType = cmp.Or(b.AgentType, base.AgentType)
	return true, nil
}

// subAgent reports whether an id is that of a sub-agent, and its type.
func (r *run) subAgent(ctx context.Context, id string) (agentType string, sub bool, err error) {
	if r.subs == nil {
		if err := r.readSubAgents(ctx); err != nil {
			return "", false, err
		}
	}
	agentType, sub = r.subs[id]
	return agentType, sub || chunk.RootID(id) == r.lease.Session, nil
}

// readSubAgents reads which sub-agents the turn's records name.
func (r *run) readSubAgents(ctx context.Context) error {
	subs := map[string]string{}
	for after := r.since; ; {
		records, _, err := r.logs.Store().ReadKept(ctx, r.lease.Session, spool.KeptQuery{After: after})
		if err != nil {
			return err
		}
		for _, rec := range records {
			after = rec.Seq
			if rec.Type != chunk.TypeSubAgentStart || rec.Agent != r.lease.Session {
				continue
			}
			if c, err := chunk.Decode(rec.Data); err == nil {
				if start, ok := c.(*chunk.SubAgentStart); ok {
					subs[start.SubSessionID] = start.SubAgentType
				}
			}
		}
		if len(records) == 0 {
			r.subs = subs
			return nil
		}
	}
}

// fill completes what a producer may leave out: an outcome without an error is a success,
// and its tool has the name that the call's start has given, in the log or among the chunks
// before it; a call without arguments has those that were streamed before it.
func (r *run) fill(ctx context.Context, c chunk.Chunk, before []chunk.Chunk) error {
	var callID string
	var name *string
	switch c := c.(type) {
	case *chunk.ToolEnd:
		c.Success = c.Success || c.Error == ""
		callID, name = c.ToolCallID, &c.ToolName
	case *chunk.ToolOutputError:
		callID, name = c.ToolCallID, &c.ToolName
	case *chunk.ToolStart:
		if len(c.Arguments) == 0 {
			return r.fillArguments(ctx, c)
		}
		return nil
	case *chunk.ErrorChunk:
		c.Fatal = false // that would promise the run's end
		return nil
	default:
		return nil
	}
	if *name != "" {
		return nil
	}
	for _, b := range slices.Backward(before) {
		if start, ok := b.(*chunk.ToolStart); ok && start.ToolCallID == callID {
			*name = start.ToolName
			return nil
		}
	}
	call, err := r.call(ctx, c, callID)
	*name = call.Name
	return err
}

// call returns what the log says of a call of the agent that a chunk belongs to.
func (r *run) call(ctx context.Context, c chunk.Chunk, callID string) (call chunk.ToolPart, err error) {
	_, err = r.ask(ctx, func(f *fold.Fold) []chunk.Chunk {
		if agent := f.Child(cmp.Or(c.ChunkBase().AgentID, f.Session)); agent != nil {
			if known := agent.Call(callID); known != nil {
				call = *known
			}
		}
		return nil
	})
	return call, err
}

// fillArguments gives a call that names no arguments those that were streamed before it.
func (r *run) fillArguments(ctx context.Context, c *chunk.ToolStart) error {
	call, err := r.call(ctx, c, c.ToolCallID)
	if c.Arguments = call.Input; err == nil && len(c.Arguments) > 0 {
		c.Arguments, err = r.log.Blob(ctx, c.Arguments) // the fold has large values as references
	}
	if len(c.Arguments) == 0 {
		c.Arguments = json.RawMessage("{}")
	}
	return err
}

// checkPatches refuses state patches that do not apply, one after the other, to the
// state as it stands. Readers would leave them out, each on its own.
func (r *run) checkPatches(ctx context.Context, agent string, chunks ...chunk.Chunk) error {
	var patches []*chunk.StatePatch
	for _, c := range chunks {
		if p, ok := c.(*chunk.StatePatch); ok {
			patches = append(patches, p)
		}
	}
	if len(patches) == 0 {
		return nil
	}
	return r.log.View(ctx, func(f *fold.Fold) error {
		if f = f.Child(agent); f == nil {
			return nil // a sub-agent whose state nobody keeps
		}
		state := f.State
		for _, p := range patches {
			var err error
			if state, err = chunk.PatchState(state, p.Patches); err != nil {
				return chunk.ErrInvalidChunk.Because("the state patch does not apply").With(r.lease.Session, err)
			}
		}
		return nil
	})
}

// heed obeys a stop that this process knows of.
func (r *run) heed(ctx context.Context) error {
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	return r.obey(ctx)
}

// Close closes the writer. The stream stays open.
func (w *Writer) Close() error {
	w.closed.Store(true)
	return nil
}

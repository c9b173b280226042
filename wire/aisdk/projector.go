package aisdk

import (
	"encoding/json"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// Projector projects one turn of a log. It is given every record of the log
// from before the turn on and ignores those that are not the turn's. What child
// agents do in it is shown as [Options.SubAgents] says.
type Projector struct {
	o      shape
	turn   string
	root   string          // the agent whose turn it is, once known
	runs   map[string]bool // the turn's runs
	fold   *fold.MessageFold
	view   *view // what a client that never left has
	stepOn bool  // a step is open
	ended  bool  // the latest run has ended or paused
	paused bool  // it waits for answers

	terminal []spool.Frame   // how it ended
	metadata json.RawMessage // of the message, without what the terminal frames carry
	answered []string        // calls that commands have answered since
	extra    map[uint64]bool // parts before which an empty step stays, by First
	failure  *chunk.ErrorChunk
	stepAt   uint64                 // sequence of the latest step_started
	numbered uint64                 // the latest sequence that every reader has been given
	current  bool                   // no later turn has begun
	pending  []string               // the calls that the pause waits for,
	kind     string                 // and what it is
	children []*childAgent          // that have a part in the turn, oldest first
	agents   map[string]*childAgent // all below, by session

	noRuns  bool  // chunks come without a log: a fatal error is told at once
	goesOn  bool  // clients have the message from a snapshot: no start is written
	lacking error // why a stored value could not be had

	w frameWriter
}

var (
	_ spool.Projector = (*Projector)(nil)
	_ spool.Rejoiner  = (*Projector)(nil)
)

// NewProjector returns a projector of the subject's turn. Without an agent it is
// that of the first agent that begins such a turn. Nil options are the default
// profile.
func NewProjector(s wire.Subject, o *Options) *Projector {
	p := &Projector{turn: s.Turn, root: s.Agent, runs: map[string]bool{}, extra: map[uint64]bool{}}
	if o != nil {
		p.o.Options = *o
	}
	if s.Resolve != nil {
		p.o.resolve = func(v json.RawMessage) (json.RawMessage, error) {
			resolved, err := s.Resolve(v)
			if err != nil && !errors.Is(err, spool.ErrNotFound) && !errors.Is(err, spool.ErrUnsupported) {
				p.lacking = err
			}
			return resolved, err
		}
	}
	p.view = newView(&p.o.Options)
	return p
}

// Message returns the turn's message as folded so far, nil before its first
// run. It belongs to the projector.
func (p *Projector) Message() *chunk.Message {
	if p.fold == nil {
		return nil
	}
	return p.fold.Message()
}

// Apply folds the next record and appends the frames that it becomes to dst. It
// fails where a stored value cannot be had now but may be another time: its frames
// would show the reference in its place.
func (p *Projector) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	if p.fold == nil && (r.Type != chunk.TypeRunStarted || p.root != "" && r.Agent != p.root) {
		return dst, nil
	}
	if r.Type == chunk.TypeExecutorSuperseded {
		p.supersede(r)
	}
	var err error
	if p.fold != nil && r.Agent != p.root {
		dst, err = p.applyChild(dst, r)
	} else {
		dst, err = p.applyOwn(dst, r)
	}
	if err == nil {
		err = p.lacking
	}
	return dst, err
}

// applyOwn folds a record of the agent whose turn it is.
func (p *Projector) applyOwn(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	if chunk.IsCommand(r.Type) && r.Type != chunk.TypeToolApprovalResponse && r.Type != chunk.TypeToolResultSubmitted {
		return dst, nil
	}
	c, err := chunk.Decode(r.Data)
	if err != nil {
		return dst, err
	}
	if chunk.IsCommand(r.Type) {
		if p.ended && !p.paused || !accepts(p.fold.Message(), c, p.kind, p.pending, !p.ended) {
			return dst, nil // nobody waits for it
		}
		return p.answer(dst, r, func() { p.fold.Apply(r, c) }), nil
	}
	base := c.ChunkBase()
	if started, ok := c.(*chunk.RunStarted); ok {
		if started.TurnID != p.turn {
			p.paused, p.current = false, false // another turn's turn
			return dst, nil
		}
		p.current = true
		if p.fold == nil {
			p.begin(base.AgentID)
		}
		p.runs[base.RunID] = true
	}
	if !p.runs[base.RunID] {
		return dst, nil
	}
	return p.apply(dst, r, c), nil
}

func (p *Projector) begin(root string) {
	p.root = root
	p.fold = fold.NewMessageFold(root)
}

// apply folds a record of the turn.
func (p *Projector) apply(dst []spool.Frame, r chunk.Record, c chunk.Chunk) []spool.Frame {
	shown := p.o.keeps(c)
	c = p.o.filter(c)
	if c == nil {
		return dst
	}
	p.w.frames = dst
	n := len(dst)
	p.fold.Apply(r, c)
	p.follow(r, c, shown)
	return p.number(n, r.Seq)
}

// follow writes what a record of the turn has changed. A chunk that is not shown
// was dropped by the filter and counts only for the message.
func (p *Projector) follow(r chunk.Record, c chunk.Chunk, shown bool) {
	switch c := c.(type) {
	case *chunk.TextDelta, *chunk.Thinking, *chunk.ToolArgStreamDelta, *chunk.Custom, *chunk.Progress:
		if !p.grow(c, r.Seq) {
			p.sync()
		}
	case *chunk.RunStarted:
		p.startRun(c)
	case *chunk.StepStarted:
		p.stepOn, p.stepAt = true, r.Seq
		p.sync()
	case *chunk.StepCommitted:
		p.stepOn = p.stepOn && c.More
		p.sync()
		if shown && !c.More {
			p.transient(c)
		}
	case *chunk.StepDiscarded:
		p.discard(c, shown)
	case *chunk.RunSuspended:
		p.syncEnd()
		if shown {
			p.transient(c)
		}
		p.suspend(c)
	case *chunk.RunFinished:
		p.syncEnd()
		p.finish(c)
	case *chunk.ErrorChunk:
		if c.Fatal { // the end of the run tells of it
			p.failure = c
			return
		}
		p.sync()
		p.reportError(c)
	default:
		switch c := c.(type) {
		case *chunk.SubAgentStart:
			p.begun(c, r.Seq)
		case *chunk.SubAgentEnd:
			p.ofEnd(c)
		}
		p.sync()
		if shown {
			p.transient(c)
		}
	}
}

// grow is sync for the chunks that come often and change one part; it reports
// false if there is more to it than that.
func (p *Projector) grow(c chunk.Chunk, seq uint64) bool {
	switch c := c.(type) {
	case *chunk.TextDelta, *chunk.Thinking:
		return p.view.grow(p, p.parts())
	case *chunk.ToolArgStreamDelta:
		return p.view.growArguments(p, p.parts(), c.ToolCallID, c.ToolCallID)
	case *chunk.Custom:
		if c.Transient {
			p.transient(c)
			return true
		}
		return p.view.growData(p, c.EventName, c.ID, seq)
	case *chunk.Progress:
		return p.view.growData(p, "progress", c.ID, seq)
	}
	return false
}

// startRun begins a run's frames, which may be all that a client is sent: they
// repeat what commands have answered since the run before.
func (p *Projector) startRun(c *chunk.RunStarted) {
	p.ended, p.paused, p.terminal, p.failure = false, false, nil, nil
	// With the metadata of the turn's earlier runs: readers who passed their
	// ends were not sent the finish frames that carry it.
	p.metadata = p.fold.Message().Metadata
	p.w.echo = true
	defer func() { p.w.echo = false }()
	p.writeStart(p.metadata)
	for _, call := range p.answered {
		if s := p.view.tools[call]; s != nil && !p.goesOn { // snapshots hold the answers
			s.outcome = outcomeNone
		}
	}
	p.answered = nil
	p.sync()
}

// answer folds a command that answers a waiting call, of the agent or of one
// below. A paused run still stands where it paused, unless the log goes on; an open
// one knows the answer.
func (p *Projector) answer(dst []spool.Frame, r chunk.Record, state func()) []spool.Frame {
	before := map[string]outcome{}
	for call, s := range p.view.tools {
		before[call] = s.outcome
	}
	p.w.frames = dst
	n := len(dst)
	state()
	p.sync()
	for call, s := range p.view.tools {
		if p.paused && s.outcome != before[call] {
			p.answered = append(p.answered, call)
		}
	}
	if p.ended && len(p.w.frames) > n {
		p.w.frames = append(p.w.frames, p.terminal...)
	}
	return p.number(n, r.Seq)
}

// number puts the record's sequence on the last frame that it became. If one of
// them cuts the reader, nothing follows it and none has a sequence.
func (p *Projector) number(n int, seq uint64) []spool.Frame {
	frames := p.w.frames
	p.w.frames = nil
	for i := n; i < len(frames); i++ {
		if frames[i].Cut {
			return frames[:i+1]
		}
	}
	if len(frames) > n {
		last := &frames[len(frames)-1]
		last.Seq = seq
		if !last.Terminal { // those are not sent to all
			p.numbered = seq
		}
	}
	return frames
}

func (p *Projector) parts() []chunk.Part { return p.fold.Message().Parts }

// sync brings the client that never left to the message. What it cannot be
// brought to cuts it; sync then reports false.
func (p *Projector) sync() bool {
	if parts := p.shown(); !p.view.retracted(p, parts) {
		p.view.sync(p, parts)
		return true
	}
	p.cut("rollback", 0, 0)
	return false
}

// syncEnd is sync for the end of a run.
func (p *Projector) syncEnd() {
	p.stepOn, p.ended = false, true
	synced := p.sync()
	if p.view.dangling || p.o.NoStepEvents || !endsWithTools(p.counted()) {
		return
	}
	if p.view.dangling = true; synced {
		p.emptyStep(p.view)
	}
}

// emptyStep ends a message whose last step holds tool calls, all with their
// outcomes: clients that send such a message by themselves would do so for
// ever. A next step takes the empty one's place.
//
// Clients do not publish a message for a step alone; a start that says nothing
// new makes them.
func (p *Projector) emptyStep(v *view) {
	v.endStep(p)
	p.w.open("start-step").close()
	v.finishStep(p)
	p.writeStart(nil)
	v.dangling = true
}

// endsWithTools reports whether the message's last step holds tool calls and
// all of them have their outcomes. Calls that the provider executes do not
// count; clients do not count them either.
func endsWithTools(parts []chunk.Part) bool {
	tools := false
	for i := len(parts) - 1; i >= 0 && parts[i].Type != chunk.PartStep; i-- {
		if t := parts[i].Tool; t != nil && !t.ProviderExecuted {
			if !t.State.Done() {
				return false
			}
			tools = true
		}
	}
	return tools
}

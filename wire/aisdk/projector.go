package aisdk

import (
	"encoding/json"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Projector projects one turn of a log. It is given every record of the log
// from before the turn on and ignores those that are not the turn's. What child
// agents do in it is shown as [Options.SubAgents] says.
type Projector struct {
	o      Options
	turn   string
	root   string          // the agent whose turn it is, once known
	runs   map[string]bool // the turn's runs
	fold   *fold.MessageFold
	view   *view // what a client that never left has
	stepOn bool  // a step is open
	ended  bool  // the latest run has ended or paused
	paused bool  // it waits for answers

	terminal []spool.Frame   // how it ended
	metadata json.RawMessage // of the message, but for what the terminal frames carry
	answered []string        // calls that commands have answered since
	extra    map[uint64]bool // parts before which an empty step stays, by First
	failure  *chunk.ErrorChunk
	stepAt   uint64                 // sequence of the latest step_started
	current  bool                   // no later turn has begun
	pending  []string               // the calls that the pause waits for,
	kind     string                 // and what it is
	children []*childAgent          // that have a part in the turn, oldest first
	agents   map[string]*childAgent // all below, by session

	noRuns  bool  // chunks come without a log: a fatal error is told at once
	lacking error // why a stored value could not be had

	w frameWriter
}

var _ spool.Projector = (*Projector)(nil)

// NewProjector returns a projector of the turn with this id. Nil options are
// the default profile.
func NewProjector(turnID string, o *Options) *Projector {
	p := &Projector{turn: turnID, runs: map[string]bool{}, extra: map[uint64]bool{}}
	if o != nil {
		p.o = *o
	}
	if resolve := p.o.Resolve; resolve != nil {
		p.o.Resolve = func(v json.RawMessage) (json.RawMessage, error) {
			resolved, err := resolve(v)
			if err != nil && !errors.Is(err, spool.ErrNotFound) && !errors.Is(err, spool.ErrUnsupported) {
				p.lacking = err
			}
			return resolved, err
		}
	}
	p.view = newView(&p.o)
	return p
}

// Err says why frames show a stored value as its reference although it may be had
// another time: they must not be sent, and the projector not be used any more.
// Apply fails with it, Plan cannot.
func (p *Projector) Err() error { return p.lacking }

// Message returns the turn's message as folded so far, nil before its first
// run. It belongs to the projector.
func (p *Projector) Message() *chunk.Message {
	if p.fold == nil {
		return nil
	}
	return p.fold.Message()
}

// Apply folds the next record and appends the frames that it becomes to dst.
func (p *Projector) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	if p.fold == nil && (r.Type != chunk.TypeRunStarted || p.o.Agent != "" && r.Agent != p.o.Agent) {
		return dst, nil
	}
	if r.Type == chunk.TypeExecutorSuperseded {
		p.supersede(r)
	}
	if p.fold != nil && r.Agent != p.root {
		return p.applyChild(dst, r)
	}
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
		return p.answer(dst, r, func() { p.fold.Apply(r, c) }), p.lacking
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
	return p.apply(dst, r, c), p.lacking
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
	before := len(p.parts())
	p.fold.Apply(r, c)

	switch c := c.(type) {
	case *chunk.TextDelta, *chunk.Thinking:
		if !p.view.grow(p, p.parts()) {
			p.sync()
		}
	case *chunk.ToolArgStreamDelta:
		if !p.view.growArguments(p, p.parts(), c.ToolCallID, c.ToolCallID) {
			p.sync()
		}
	case *chunk.Custom:
		if c.Transient {
			p.transient(c)
		} else if !p.view.growData(p, c.EventName, c.ID, r.Seq) {
			p.sync()
		}
	case *chunk.Progress:
		if !p.view.growData(p, "progress", c.ID, r.Seq) {
			p.sync()
		}
	case *chunk.RunStarted:
		p.startRun(c)
	case *chunk.StepStarted:
		p.stepOn, p.stepAt = true, r.Seq
		p.sync()
	case *chunk.SubAgentStart:
		p.begun(c, r.Seq)
		p.sync()
		if shown {
			p.transient(c)
		}
	case *chunk.SubAgentEnd:
		p.ofEnd(c)
		p.sync()
		if shown {
			p.transient(c)
		}
	case *chunk.StepCommitted:
		p.stepOn = p.stepOn && c.More
		p.sync()
		if shown && !c.More {
			p.transient(c)
		}
	case *chunk.StepDiscarded:
		p.discard(c, before, shown)
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
		p.sync()
		p.reportError(c)
	default:
		p.sync()
		if shown {
			p.transient(c)
		}
	}
	return p.number(n, r.Seq)
}

// startRun begins a run's frames, which may be all that a client is sent: they
// repeat what commands have answered since the run before.
func (p *Projector) startRun(c *chunk.RunStarted) {
	p.ended, p.paused, p.terminal, p.failure = false, false, nil, nil
	// With the metadata of the turn's earlier runs: readers who passed their
	// ends were not sent the finish frames that carry it.
	p.metadata = p.fold.Message().Metadata
	p.w.open("start").str("messageId", c.MessageID).rawOpt("messageMetadata", p.metadata).close()
	for _, call := range p.answered {
		if s := p.view.tools[call]; s != nil {
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
		frames[len(frames)-1].Seq = seq
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
	p.cut("rollback", 0)
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
	p.w.open("start").str("messageId", p.fold.Message().ID).close()
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

// discard takes a model phase back: ai 7 clients drop it themselves, others are
// cut if they were sent any of it.
func (p *Projector) discard(c *chunk.StepDiscarded, before int, shown bool) {
	wasOn := p.stepOn
	p.stepOn = false
	switch {
	case p.o.UI7 && !p.o.NoStepEvents && wasOn && !p.childrenSince(p.stepAt):
		old := p.view
		p.w.open("reset-step").close()
		p.view = p.fresh()
		p.view.stepOn, p.view.dangling = false, true
		for i := range p.parts() {
			part := &p.parts()[i]
			if key, ok := dataKey(part); ok && !sameJSON(old.data[key], part.Data) {
				p.view.writeData(p, part)
			}
		}
		if shown {
			p.transient(c)
		}
	case wasOn && !p.o.NoStepEvents || p.view.retracted(p, p.shown()):
		p.view.closeBlocks(p, true)
		if shown {
			p.transient(c)
		}
		p.cut(c.Reason, c.Step)
	default:
		p.sync()
		if shown {
			p.transient(c)
		}
	}
}

// fresh returns the view of a client that attaches now.
func (p *Projector) fresh() *view {
	v := newView(&p.o)
	v.compact = true
	saved := p.w.frames
	p.w.frames = nil
	v.sync(p, p.shown())
	p.w.frames = saved
	v.compact = false
	return v
}

// cut closes what is open, says why, and cuts the reader.
func (p *Projector) cut(reason string, step int) {
	p.view.closeBlocks(p, true)
	data, _ := json.Marshal(struct {
		Reason string `json:"reason"`
		Step   int    `json:"step,omitempty"`
	}{reason, step})
	p.w.open("data-stream-resync").raw("data", data).flag("transient", true).close()
	p.w.frames[len(p.w.frames)-1].Cut = true
	p.view = p.fresh()
}

// Plan returns the turn's message from start, compacted: as many frames as it
// has parts, and one more for each 256 KiB of them.
func (p *Projector) Plan() []spool.Frame {
	if p.fold == nil || p.fold.Message().ID == "" {
		return nil
	}
	m := p.fold.Message()
	v := newView(&p.o)
	v.compact = true
	p.w.frames = nil
	p.w.open("start").str("messageId", m.ID).rawOpt("messageMetadata", p.metadata).close()
	v.sync(p, p.shown())
	if p.view.dangling {
		p.emptyStep(v)
	}
	for _, a := range p.children {
		p.planLive(a)
	}
	frames := append(p.w.frames, p.terminal...)
	p.w.frames = nil
	for i := range frames {
		frames[i].Seq = 0
	}
	return frames
}

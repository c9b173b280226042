package merlin

import (
	"maps"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Projector projects one turn of a log. It is given the records of the log from
// somewhere before the turn, and ignores those of other turns.
type Projector struct {
	o        Options
	turn     string
	root     string          // the agent whose turn it is, once known
	runs     map[string]bool // the turn's runs
	fold     *fold.MessageFold
	children map[string]*child // its sub-agents, and theirs, by their sessions
	byCall   map[string]*child // the latest sub-agent of each of its own calls

	// Of a Streamer:
	voices []*child  // streams of the root beside its message
	given  documents // that the model was given
	gaps   []gap     // in the content indexes

	values   values
	view     view // what a client has that was connected all the time
	begun    bool // the turn's first run has begun
	ended    bool // the latest run has ended or paused
	paused   bool // the latest run waits for answers
	flushed  int  // number of citations that V1 marks although no text follows them
	terminal []spool.Frame
	failure  *chunk.ErrorChunk

	used, using chunk.Usage // by the runs before the latest, and by the latest

	w frameWriter
}

// child is a sub-agent, of one of the turn's calls or of another sub-agent's.
type child struct {
	session    string
	fold       *fold.MessageFold
	suppressed bool
	byCall     map[string]*child // the latest sub-agent of each of its calls
}

// gap is a number of content indexes that are not used, before a block.
type gap struct{ from, size int }

// view is what a client has been sent. To synchronise it with a scene is to write
// frames for what the client lacks. A plan is what a new view is sent, so that
// stream, plan and scene cannot disagree.
type view interface {
	begin(p *Projector)
	// sync writes what the client lacks of the scene. It returns false if the
	// client has something that is not in the scene.
	sync(p *Projector, s *scene) bool
	// grow is sync for a delta of the message's last part alone. It returns false
	// if that is not enough, and sync must be called.
	grow(p *Projector, part *chunk.Part) bool
}

var _ spool.Projector = (*Projector)(nil)

// NewProjector returns a projector of the turn with this id. Nil options are the
// default profile.
func NewProjector(turnID string, o *Options) *Projector {
	p := &Projector{turn: turnID, runs: map[string]bool{}, children: map[string]*child{}, byCall: map[string]*child{}}
	if o != nil {
		p.o = *o
	}
	p.values = newValues(&p.o)
	p.w.literal, p.w.first = &p.o.Literal, p.o.FirstIndex
	p.view = p.newView()
	return p
}

func (p *Projector) newView() view {
	if p.o.Version == V1 {
		return &viewV1{}
	}
	return &viewV2{}
}

// Apply folds the next record and appends the frames that it becomes to dst.
func (p *Projector) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	switch {
	case p.fold == nil && r.Type != chunk.TypeRunStarted:
		return dst, nil
	case p.fold != nil && r.Agent != p.root:
		return p.applyChild(dst, r)
	case chunk.IsCommand(r.Type) && r.Type != chunk.TypeToolApprovalResponse && r.Type != chunk.TypeToolResultSubmitted:
		return dst, nil
	}
	c, err := chunk.Decode(r.Data)
	if err != nil {
		return dst, err
	}
	if chunk.IsCommand(r.Type) && (p.ended && !p.paused || p.fold.Answered(c, !p.ended) == "") {
		return dst, nil // it is no answer to a call of this turn
	}
	base := c.ChunkBase()
	if started, ok := c.(*chunk.RunStarted); ok {
		if started.TurnID != p.turn {
			p.paused = false // another turn has begun
			return dst, nil
		}
		if p.fold == nil {
			p.root = base.AgentID
			p.values.answer = p.root + "/" + p.turn
			p.fold = fold.NewMessageFold(p.root)
		}
		p.runs[base.RunID] = true
	}
	if !chunk.IsCommand(r.Type) && !p.runs[base.RunID] {
		return dst, nil
	}
	n := len(dst)
	p.w.frames = dst
	p.apply(r, c)
	return p.number(n, r.Seq), nil
}

func (p *Projector) apply(r chunk.Record, c chunk.Chunk) {
	p.fold.Apply(r, c)
	p.count(c)
	switch c := c.(type) {
	case *chunk.TextDelta, *chunk.Thinking:
		parts := p.fold.Message().Parts
		if !p.view.grow(p, &parts[len(parts)-1]) {
			p.sync()
		}
	case *chunk.RunStarted:
		if !p.begun {
			p.view.begin(p)
			p.begun = true
		}
		p.ended, p.paused, p.terminal, p.failure = false, false, nil, nil
		p.sync()
	case *chunk.StepDiscarded:
		clear(p.values.args)
		p.sync()
	case *chunk.ExecutorSuperseded:
		for _, kid := range p.children {
			kid.fold.Apply(r, c)
		}
		p.sync()
	case *chunk.SubAgentStart:
		p.adopt(p.byCall, c)
		p.sync()
	case *chunk.ErrorChunk:
		if !c.Recoverable {
			p.failure = c
		}
		p.sync()
	case *chunk.RunSuspended:
		p.paused = true
		p.end(nil)
	case *chunk.RunFinished:
		p.end(c)
	case *chunk.ToolApprovalResponse, *chunk.ToolResultSubmitted:
		// The turn is still paused until another run begins, and the stream ends
		// as it did.
		n := len(p.w.frames)
		if p.sync() && len(p.w.frames) > n {
			p.w.frames = append(p.w.frames, p.terminal...)
		}
	default:
		p.sync()
	}
}

// adopt notes a sub-agent that was started, among those of its parent.
func (p *Projector) adopt(siblings map[string]*child, c *chunk.SubAgentStart) {
	kid := &child{session: c.SubSessionID, fold: fold.NewMessageFold(c.SubSessionID), byCall: map[string]*child{},
		suppressed: p.o.Suppress != nil && p.o.Suppress(c.SubAgentType)}
	maps.DeleteFunc(siblings, func(_ string, k *child) bool { return k.session == kid.session })
	p.children[c.SubSessionID] = kid
	siblings[c.CallID] = kid
}

// join adds a stream of the root beside its message. Its chunks are those of this agent.
func (p *Projector) join(agent string) {
	voice := &child{session: agent, fold: fold.NewMessageFold(agent), byCall: map[string]*child{}}
	p.children[agent] = voice
	p.voices = append(p.voices, voice)
}

// applyChild folds a record of a sub-agent of the turn, at whatever depth.
func (p *Projector) applyChild(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	kid := p.children[r.Agent]
	if kid == nil || chunk.IsCommand(r.Type) {
		return dst, nil
	}
	c, err := chunk.Decode(r.Data)
	if err != nil {
		return dst, err
	}
	n := len(dst)
	p.w.frames = dst
	kid.fold.Apply(r, c)
	if start, ok := c.(*chunk.SubAgentStart); ok {
		p.adopt(kid.byCall, start)
	}
	if p.sync() && p.ended && len(p.w.frames) > n {
		p.w.frames = append(p.w.frames, p.terminal...)
	}
	return p.number(n, r.Seq), nil
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

// sync writes what a connected client lacks of the scene. A client that has
// something that is not in the scene is cut, since the wire cannot retract.
func (p *Projector) sync() bool {
	s := p.scene()
	n := len(p.w.frames)
	if p.view.sync(p, s) {
		return true
	}
	p.w.frames = append(p.w.frames[:n], spool.Frame{Data: []byte(": retracted\n\n"), Cut: true})
	p.view, _ = p.planned(s)
	return false
}

// planned returns the view of a new client and the frames that it is sent.
func (p *Projector) planned(s *scene) (view, []spool.Frame) {
	saved := p.w.frames
	p.w.frames = nil
	v := p.newView()
	v.begin(p)
	v.sync(p, s)
	frames := p.w.frames
	p.w.frames = saved
	return v, frames
}

// end writes what is still held back, and the terminal frames.
func (p *Projector) end(c *chunk.RunFinished) {
	p.ended = true
	p.flushed = p.o.Literal.markedAtEnd(len(p.scene().sources))
	p.sync()
	n := len(p.w.frames)
	if c != nil && c.Outcome == chunk.OutcomeFailed {
		p.writeFailure(c)
	}
	p.w.event(eventEnd, struct{}{})
	for i := n; i < len(p.w.frames); i++ {
		p.w.frames[i].Terminal = true
	}
	p.terminal = append([]spool.Frame(nil), p.w.frames[n:]...)
}

func (p *Projector) writeFailure(c *chunk.RunFinished) {
	f := &Failure{Message: c.Error, Code: c.Code}
	if f.Message == "" && p.failure != nil {
		f = &Failure{Message: p.failure.Error, Code: p.failure.Code}
	}
	if f.Message == "" {
		f.Message = "the run failed"
	}
	if p.o.Version == V1 {
		p.w.event(eventMessage, Message{Content: new(string), Error: f})
		return
	}
	p.w.message(p.index(len(p.scene().blocks)-1), Message{Type: TypeError, Error: f})
}

// Plan returns the turn's answer, compacted. It does not fail.
func (p *Projector) Plan() ([]spool.Frame, error) {
	if p.fold == nil {
		return nil, nil
	}
	_, frames := p.planned(p.scene())
	frames = append(frames, p.terminal...)
	for i := range frames {
		frames[i].Seq = 0
	}
	return frames, nil
}

package aisdk

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// childAgent is a sub-agent as the projector folds it.
type childAgent struct {
	SubAgent
	known  bool                         // it has a part in this turn
	turns  map[string]*fold.MessageFold // that belong to this turn, by id
	runs   map[string]bool              // of these
	said   map[string]*chunk.Message    // what it was told and has not begun, by command
	fold   *fold.MessageFold            // of its latest turn
	paused bool
	kind   string // what the pause waits for

	value json.RawMessage // its data part, as it was told last
	heard int             // bytes of kept records since
	live  live
}

// subAgents returns the agents of the turn, oldest first.
func (p *Projector) subAgents() []*SubAgent {
	if len(p.children) == 0 {
		return nil
	}
	list := make([]*SubAgent, len(p.children))
	for i, a := range p.children {
		list[i] = &a.SubAgent
	}
	return list
}

// shown returns the message's parts with those of its sub-agents.
func (p *Projector) shown() shown {
	if len(p.children) == 0 {
		return shown{list: p.parts()}
	}
	return shownParts(p.root, p.parts(), p.subAgents(), &p.o, func(i int) json.RawMessage { return p.children[i].value })
}

// child returns a descendant of the turn's agent, known or not yet; nil for all
// others.
func (p *Projector) child(session string) *childAgent {
	a := p.agents[session]
	if a == nil {
		if len(session) <= len(p.root) || session[len(p.root)] != '.' || !strings.HasPrefix(session, p.root) {
			return nil
		}
		a = &childAgent{SubAgent: SubAgent{Session: session, Status: chunk.StatusActive}, turns: map[string]*fold.MessageFold{},
			runs: map[string]bool{}, said: map[string]*chunk.Message{}}
		if p.agents == nil {
			p.agents = map[string]*childAgent{}
		}
		p.agents[session] = a
	}
	return a
}

// supersede tells the folds of all agents that their owner is another.
func (p *Projector) supersede(r chunk.Record) {
	c := new(chunk.ExecutorSuperseded)
	p.fold.Apply(r, c)
	for _, a := range p.agents {
		if a.fold != nil {
			a.fold.Apply(r, c)
		}
	}
}

func (p *Projector) adopt(a *childAgent, seq uint64) {
	if !a.known {
		a.known, a.Opened = true, seq
		p.children = append(p.children, a)
	}
}

// begun folds a subagent_start, ofEnd a subagent_end, of the agent or any below.
func (p *Projector) begun(c *chunk.SubAgentStart, seq uint64) {
	if a := p.child(c.SubSessionID); a != nil && !a.known {
		a.Type, a.CallID = c.SubAgentType, c.CallID
		p.adopt(a, seq)
		p.tell(a)
	}
}

func (p *Projector) ofEnd(c *chunk.SubAgentEnd) {
	if a := p.agents[c.SubSessionID]; a != nil && a.known {
		if len(a.runs) == 0 {
			a.Status = chunk.StatusEnded
		}
		p.tell(a)
	}
}

// applyChild folds a record of an agent below the turn's.
func (p *Projector) applyChild(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	a := p.child(r.Agent)
	if a == nil || !p.concerns(a, r) {
		return dst, nil
	}
	c, err := chunk.Decode(r.Data)
	if err != nil {
		return dst, err
	}
	run := c.ChunkBase().RunID
	if !p.o.keeps(c) {
		if c = p.o.filter(c); c == nil {
			return dst, nil
		}
	}
	switch c := c.(type) {
	case *chunk.UserMessage:
		a.said[c.CommandID] = &c.Message
		return dst, nil
	case *chunk.ToolApprovalResponse, *chunk.ToolResultSubmitted:
		if !a.accepts(c) {
			return dst, nil
		}
		return p.answer(dst, r, func() {
			a.fold.Apply(r, c)
			p.tell(a)
		}), nil
	case *chunk.RunStarted:
		if !p.startChild(a, r, c) {
			return dst, nil
		}
	default:
		if chunk.IsCommand(r.Type) || !a.runs[run] {
			return dst, nil
		}
	}
	p.w.frames = dst
	n := len(dst)
	if r.Class == chunk.Kept {
		a.heard += len(r.Data)
	}
	a.fold.Apply(r, c)
	p.followChild(a, r, c)
	if p.ended && len(p.w.frames) > n {
		p.w.frames = append(p.w.frames, p.terminal...)
	}
	return p.number(n, r.Seq), nil
}

// concerns reports whether a record of a sub-agent may have to do with the turn.
func (p *Projector) concerns(a *childAgent, r chunk.Record) bool {
	if r.Type == chunk.TypeUserMessage || r.Type == chunk.TypeRunStarted {
		return true
	}
	return len(a.runs) > 0 && (r.Class != chunk.Trace || p.o.SubAgents != Summary)
}

// accepts reports whether an answer is one that the agent waits for.
func (a *childAgent) accepts(c chunk.Chunk) bool {
	open := a.Status == chunk.StatusActive
	return (open || a.paused) && a.fold != nil && accepts(a.fold.Message(), c, a.kind, a.lastWait(), open)
}

// startChild takes a run of a sub-agent; false if it is no run of this turn's.
func (p *Projector) startChild(a *childAgent, r chunk.Record, c *chunk.RunStarted) bool {
	state := a.turns[c.TurnID]
	if state == nil {
		if !p.current {
			return false
		}
		state = fold.NewMessageFold(a.Session)
		a.turns[c.TurnID] = state
		for _, id := range c.Commands {
			if m := a.said[id]; m != nil {
				a.Messages = append(a.Messages, m)
				delete(a.said, id)
			}
		}
		a.Messages = append(a.Messages, state.Message())
	}
	if a.Type == "" {
		a.Type = c.AgentType
	}
	a.fold, a.paused = state, false
	a.runs[c.RunID] = true
	a.Status, a.Reason = chunk.StatusActive, ""
	p.adopt(a, r.Seq)
	return true
}

// followChild shows what a record of a sub-agent has changed. Its data part is
// sent again where its runs begin, pause and end, and where a step is committed
// once as many bytes of records have come as it holds: in all, about three times
// its size, and once more for each pause. What comes between goes out as it comes,
// and is forgotten.
func (p *Projector) followChild(a *childAgent, r chunk.Record, c chunk.Chunk) {
	switch c := c.(type) {
	case *chunk.RunStarted, *chunk.RunSuspended, *chunk.RunFinished:
		a.ends(c, r.Seq)
		p.tell(a)
		p.sync()
	case *chunk.SubAgentStart:
		p.begun(c, r.Seq)
		p.sync()
		p.transient(c)
	case *chunk.SubAgentEnd:
		p.ofEnd(c)
		p.sync()
		p.transient(c)
	case *chunk.StepDiscarded:
		p.discardChild(a, c)
	case *chunk.TextDelta, *chunk.Thinking, *chunk.ToolArgStreamDelta:
		if p.o.flattens() && !p.growChild(a, c) {
			p.sync()
		}
	case *chunk.StepCommitted:
		if !c.More && a.heard >= len(a.value) {
			p.tell(a)
		}
		p.sync()
	default:
		if p.o.flattens() || len(a.Waits) > 0 && r.Class != chunk.Trace {
			p.sync() // it may be about a call that is shown as one of the message's
		}
	}
	p.followLive(a, r)
}

// ends notes how the agent's run stands where it pauses or ends.
func (a *childAgent) ends(c chunk.Chunk, seq uint64) {
	switch c := c.(type) {
	case *chunk.RunSuspended:
		a.Status, a.Reason, a.kind = chunk.StatusPaused, c.Kind, c.Kind
		if a.paused = strings.HasPrefix(c.Kind, "awaiting_"); a.paused {
			a.Waits = append(a.Waits, SubAgentWait{Seq: seq, Calls: c.ToolCallIDs})
		}
	case *chunk.RunFinished:
		a.Status, a.Reason = chunk.StatusEnded, string(c.Outcome)
		if c.Outcome == chunk.OutcomeFailed {
			a.Status = chunk.StatusFailed
		}
	}
}

// discardChild takes a model phase of a sub-agent back, which only those clients
// have who are shown its words as the message's.
func (p *Projector) discardChild(a *childAgent, c *chunk.StepDiscarded) {
	if p.o.flattens() && p.view.retracted(p, p.shown()) {
		p.cut(c.Reason, 0, 0)
	} else if !p.o.flattens() && len(a.Waits) > 0 {
		p.sync()
	}
}

// growChild is grow for what a sub-agent says in the message itself.
func (p *Projector) growChild(a *childAgent, c chunk.Chunk) bool {
	parts := a.fold.Message().Parts
	if c, ok := c.(*chunk.ToolArgStreamDelta); ok {
		return p.view.growArguments(p, parts, c.ToolCallID, chunk.ChildCallID(a.Session, c.ToolCallID))
	}
	return p.view.grow(p, parts)
}

// tell brings a sub-agent's data part up to date.
func (p *Projector) tell(a *childAgent) {
	if !p.o.nests() {
		return
	}
	a.value = a.data(&p.o)
	a.heard = 0
	a.live.restart(p, a)
}

func (a *childAgent) lastWait() []string {
	if len(a.Waits) == 0 {
		return nil
	}
	return a.Waits[len(a.Waits)-1].Calls
}

// accepts reports whether an answer is one that the fold takes: the first one, of
// the right kind, to a call that waits. open says that its run has not paused.
func accepts(m *chunk.Message, c chunk.Chunk, kind string, pending []string, open bool) bool {
	return slices.ContainsFunc(m.Parts, func(part chunk.Part) bool {
		t := part.Tool
		switch c := c.(type) {
		case *chunk.ToolApprovalResponse:
			return t != nil && t.Approval != nil && t.Approval.ID == c.ApprovalID && t.Takes(true, open)
		case *chunk.ToolResultSubmitted:
			return t != nil && t.CallID == c.ToolCallID && t.Takes(false, open) &&
				(open || kind != "awaiting_children" || slices.Contains(pending, t.CallID))
		}
		return false
	})
}

// childrenSince reports whether anything of a sub-agent became visible behind a
// sequence.
func (p *Projector) childrenSince(seq uint64) bool {
	return slices.ContainsFunc(p.children, func(a *childAgent) bool {
		if p.o.flattens() && a.spokenSince(seq) {
			return true
		}
		return a.Opened > seq || slices.ContainsFunc(a.Waits, func(w SubAgentWait) bool { return w.Seq > seq })
	})
}

package aisdk

import (
	"encoding/json"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
)

var _ wire.Reopener = (*Projector)(nil)

// continuing makes the projector one for clients that have the message from a snapshot
// that was taken while it was written. At a start they would begin the message again,
// beside what they have of it.
func (p *Projector) continuing() *Projector {
	p.goesOn = true
	return p
}

// writeStart writes what begins the message, or begins it again with every run.
func (p *Projector) writeStart(metadata json.RawMessage) {
	m := p.fold.Message()
	switch {
	case !p.goesOn:
		p.w.open("start").str("messageId", m.ID).rawOpt("messageMetadata", metadata).close()
	case !isNull(m.Metadata):
		p.w.open("message-metadata").raw("messageMetadata", m.Metadata).close()
	}
}

// Reopen returns the starts of the open blocks, without the words that they have, and the
// open calls, each with everything that it has. Blocks continue in a part of their own;
// a call replaces what the client has of it. What sub-agents are doing follows.
func (p *Projector) Reopen() (frames []spool.Frame, begun bool, err error) {
	if p.fold == nil || len(p.parts()) == 0 {
		return nil, false, p.lacking
	}
	v := newView(&p.o.Options)
	v.compact = true
	open := p.openCalls()
	parts, blocks := p.shown(), 0
	for i := range parts.list {
		part := &parts.list[i]
		switch {
		case !p.o.visible(part):
		case part.Type == chunk.PartText, part.Type == chunk.PartReasoning:
			if slices.Contains(p.view.open, blocks) {
				v.startBlock(p, part.Type, blocks, parts.agent(i))
			}
			blocks++
		case part.Tool != nil && open[part.Tool.CallID]:
			v.tools[part.Tool.CallID] = &sentTool{}
			v.syncTool(p, part)
		}
	}
	if p.view.dangling && !p.ended {
		p.w.open("start-step").close() // the empty step of the run before, which is not in a growing message
	}
	for _, a := range p.children {
		p.planLive(a)
	}
	frames = p.w.frames
	p.w.frames = nil
	return frames, true, p.lacking
}

// openCalls returns the calls of the message, those of sub-agents among them, that may
// still get an outcome.
func (p *Projector) openCalls() map[string]bool {
	open := map[string]bool{}
	note := func(t *chunk.ToolPart) {
		if t != nil && !t.State.Done() {
			open[t.CallID] = true
		}
	}
	for i := range p.parts() {
		note(p.parts()[i].Tool)
	}
	for _, a := range p.subAgents() {
		for _, part := range a.waitingCalls() {
			note(part.Tool)
		}
		if p.o.flattens() {
			for _, part := range a.flat(nil) {
				note(part.Tool)
			}
		}
	}
	return open
}

package aisdk

import (
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Plan returns the turn's message from start, compacted: as many frames as it
// has parts, and one more for each 256 KiB of them. It fails as [Projector.Apply]
// does.
func (p *Projector) Plan() ([]spool.Frame, error) {
	frames := p.plan()
	if frames == nil {
		return nil, p.lacking
	}
	return append(frames, p.terminal...), p.lacking
}

// Rejoin returns of the plan what begins the message, the outcomes of the open step's
// calls, except those that answered names, and the data with an id: what came since the
// client was asked. For a client that has them they change nothing; data without an id
// would be shown twice. A message that goes on from a snapshot holds the open step's
// data only.
func (p *Projector) Rejoin(answered func(callID string) bool) ([]spool.Frame, error) {
	if p.fold == nil {
		return nil, p.lacking
	}
	outcomes, data := map[string]bool{}, map[string]bool{}
	for i := range p.parts() {
		part := &p.parts()[i]
		if part.Type == chunk.PartStep {
			clear(outcomes)
			if p.goesOn {
				clear(data)
			}
		} else if key, ok := dataKey(part); ok {
			data[key] = true
		} else if part.Tool != nil && part.Tool.State.Done() && !answered(part.Tool.CallID) {
			outcomes[part.Tool.CallID] = true
		}
	}
	var kept []spool.Frame
	p.w.noted = func(kind eventKind, about string, f spool.Frame) {
		keep := false
		switch kind {
		case startEvent:
			keep = !p.goesOn
		case outcomeEvent, denialEvent:
			keep = outcomes[about]
		case dataEvent:
			keep = data[about]
		}
		if keep {
			kept = append(kept, f)
		}
	}
	defer func() { p.w.noted = nil }()
	p.plan()
	return kept, p.lacking
}

// plan writes the message, without how it ended.
func (p *Projector) plan() []spool.Frame {
	if p.fold == nil || p.fold.Message().ID == "" {
		return nil
	}
	v := newView(&p.o.Options)
	v.compact = true
	p.w.frames = nil
	p.w.open("start").str("messageId", p.fold.Message().ID).rawOpt("messageMetadata", p.metadata).close()
	v.sync(p, p.shown())
	if p.view.dangling {
		p.emptyStep(v)
	}
	for _, a := range p.children {
		p.planLive(a)
	}
	frames := p.w.frames
	p.w.frames = nil
	return frames
}

package aisdk

import (
	"encoding/json"

	"github.com/spool-run/spool/chunk"
)

// discard takes a model phase back: ai 7 clients drop it themselves, others are
// cut if they were sent any of it.
func (p *Projector) discard(c *chunk.StepDiscarded, shown bool) {
	wasOn := p.stepOn
	p.stepOn = false
	switch {
	case p.resets() && wasOn && !p.childrenSince(p.stepAt):
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
		p.cut(c.Reason, c.Step, p.phaseSince(wasOn))
	default:
		p.sync()
		if shown {
			p.transient(c)
		}
	}
}

// resets reports whether clients retract a phase themselves. They cannot if a part of the
// phase is in a message that a snapshot gave them.
func (p *Projector) resets() bool { return p.o.UI7 && !p.o.NoStepEvents && !p.goesOn }

// fresh returns the view of a client that attaches now.
func (p *Projector) fresh() *view {
	v := newView(&p.o.Options)
	v.compact = true
	saved := p.w.frames
	p.w.frames = nil
	v.sync(p, p.shown())
	p.w.frames = saved
	v.compact = false
	return v
}

// phaseSince is the sequence from which on readers have what a discarded phase
// takes back: that of the step's start, or, where that became nothing to number,
// the latest that they have been given, so that a reader that is cut does not come back
// to the same cut. It is 0, everything, if the phase is not that of the open step,
// and where a cut is rare: ai 7 clients retract a phase themselves unless more than
// the phase is gone, and what sub-agents said may stand among its parts.
func (p *Projector) phaseSince(stepOn bool) uint64 {
	if !stepOn || p.o.UI7 && !p.goesOn || p.o.flattens() {
		return 0
	}
	return min(p.stepAt, p.numbered)
}

// cut closes what is open, says why, and cuts the readers, who lose what they were
// sent of the records from since on.
func (p *Projector) cut(reason string, step int, since uint64) {
	p.view.closeBlocks(p, true)
	data, _ := json.Marshal(struct {
		Reason string `json:"reason"`
		Step   int    `json:"step,omitempty"`
	}{reason, step})
	p.w.open("data-stream-resync").raw("data", data).flag("transient", true).close()
	last := &p.w.frames[len(p.w.frames)-1]
	last.Cut, last.Since = true, since
	p.view = p.fresh()
}

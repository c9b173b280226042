package merlin

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// progress is a heading and the steps that stand under it.
type progress struct {
	heading *heading
	steps   []step
}

type heading struct {
	first      uint64
	name, icon string
	spot       spot
}

// spot is where a manager wants its steps: at a content index, in a version.
type spot struct {
	index   *int
	version Version
}

// step is a progress step as the log has it.
type step struct {
	first    uint64
	id, name string
	status   Status
	icon     string
	tags     []string
	values   []Value
	key      string // what a client sees of it, encoded
	spot     spot
}

// settle moves what was placed at the index of a block into the block.
func (p *Projector) settle(s *scene) {
	for i := 0; len(s.placed) > 0 && p.o.Version != V1 && i < len(s.blocks); i++ {
		at := p.index(i)
		placed := s.placed[at]
		if placed == nil {
			continue
		}
		b := &s.blocks[i]
		if placed.heading != nil {
			b.show(nil, placed.heading)
		}
		b.steps = append(b.steps, placed.steps...)
		b.sort()
		delete(s.placed, at)
	}
}

// place adds a progress part to the block of the call that its id names, or else to
// the progress block of its topmost parent.
func (p *Projector) place(s *scene, part *chunk.Part, parents map[string]string, calls []attached) {
	st, head, parent := p.values.progress(p.root, part.ID, part)
	parents[part.ID] = parent
	if s.placeAt(p.o.Version, st, head) {
		return
	}
	top := part.ID
	for range len(parents) {
		next := parents[top]
		if next == "" || next == top {
			break
		}
		top = next
	}
	at := -1
	for _, c := range calls {
		if top == c.call || strings.HasPrefix(top, c.call+"/") {
			at = c.block
		}
	}
	key := ""
	if at < 0 {
		key = top
		at = slices.IndexFunc(s.blocks, func(b block) bool { return b.kind == TypeProgress && b.text == key })
	}
	if at < 0 {
		at = len(s.blocks)
		s.blocks = append(s.blocks, block{kind: TypeProgress, first: part.First, text: key})
	}
	s.blocks[at].show(st, head)
}

// placeAt adds a step or a heading that has a place of its own, and reports whether it has:
// what is V1's on a V2 wire, and what is V2's at a content index.
func (s *scene) placeAt(wire Version, st *step, head *heading) bool {
	var at spot
	if head != nil {
		at = head.spot
	} else {
		at = st.spot
	}
	wire = cmp.Or(wire, V2)
	switch version := cmp.Or(at.version, wire); {
	case version == V1 && wire == V2:
		s.flat.show(st, head)
		return true
	case version == V1 || at.index == nil:
		return false
	}
	placed := s.placed[*at.index]
	if placed == nil {
		placed = new(progress)
		if s.placed == nil {
			s.placed = map[int]*progress{}
		}
		s.placed[*at.index] = placed
	}
	placed.show(st, head)
	return true
}

// sort puts the steps into the order in which they began.
func (b *progress) sort() {
	slices.SortStableFunc(b.steps, func(x, y step) int { return cmp.Compare(x.first, y.first) })
}

func (b *progress) show(st *step, head *heading) {
	if head != nil {
		if b.heading == nil || b.heading.first <= head.first {
			b.heading = head
		}
		return
	}
	b.steps = append(b.steps, *st)
}

// childSteps adds the steps of an agent and of its sub-agents.
func (p *Projector) childSteps(b *block, kid *child) {
	parts := kid.fold.Message().Parts
	for i := range parts {
		switch part := &parts[i]; {
		case part.Type == chunk.PartData && part.Name == "progress":
			id := kid.session + "/" + part.ID // two agents may use the same id
			st, head, _ := p.values.progress(kid.session, id, part)
			b.show(st, head)
		case part.Type == chunk.PartTool && part.Tool != nil:
			if sub := kid.byCall[part.Tool.CallID]; sub != nil {
				p.childSteps(b, sub)
			}
		}
	}
}

// detail is what [EventManager] keeps in a progress chunk's data.
type detail struct {
	Type   string   `json:"type,omitempty"` // HEADING
	Icon   string   `json:"icon,omitempty"`
	Tags   []string `json:"tags,omitempty"`
	Values []Value  `json:"values,omitempty"`
	// Where a manager was placed.
	ContentIndex *int    `json:"contentIndex,omitempty"`
	Version      Version `json:"apiVersion,omitempty"`
}

func parseProgress(data json.RawMessage, first uint64, id string) (*step, *heading, string) {
	var in struct {
		ID      string          `json:"id"`
		Parent  string          `json:"parent"`
		Label   string          `json:"label"`
		State   string          `json:"state"`
		Percent *float64        `json:"percent"`
		Data    json.RawMessage `json:"data"`
	}
	_ = json.Unmarshal(data, &in)
	var d detail
	if json.Unmarshal(in.Data, &d) != nil {
		d = detail{} // an application's own data
	}
	at := spot{d.ContentIndex, d.Version}
	if at.index != nil && *at.index < 0 || at.version < 0 || at.version > V2 {
		at = spot{}
	}
	if d.Type == TypeHeading {
		return nil, &heading{first, in.Label, d.Icon, at}, in.Parent
	}
	st := &step{first: first, id: id, name: in.Label, status: InProgress, icon: d.Icon, tags: d.Tags, spot: at}
	if in.State == "done" || in.State == "failed" {
		st.status = Done
	}
	if st.icon == "" {
		st.icon = IconDefault
	}
	if st.tags == nil {
		st.tags = []string{}
	}
	for _, v := range d.Values {
		if v.Type != "" && len(v.Value) > 0 {
			st.values = append(st.values, v)
		}
	}
	if in.Percent != nil && len(st.values) == 0 {
		st.values = []Value{Text(strconv.FormatFloat(*in.Percent, 'f', -1, 64) + "%")}
	}
	if st.values == nil {
		st.values = []Value{}
	}
	st.key = string(encode(st.step()))
	return st, nil, in.Parent
}

// reopens reports whether a step that was done goes on.
func reopens(was, is *step) bool { return was.status == Done && is.status == InProgress }

// step is the step as frames have it, without its index.
func (s *step) step() Step {
	return Step{ID: s.id, Name: s.name, Status: s.status, Icon: s.icon, Tags: s.tags, Values: s.values}
}

// retracted reports whether a client that has p has something that is not in now.
func (p *progress) retracted(now *progress) bool {
	if len(p.steps) > len(now.steps) || p.heading != nil && now.heading == nil {
		return true
	}
	for i := range p.steps {
		if p.steps[i].id != now.steps[i].id {
			return true
		}
	}
	return false
}

// displaced reports whether a client has placed progress that is no longer there.
func (p *Projector) displaced(s *scene, has map[int]*progress) bool {
	for at, was := range has {
		now := s.placed[at]
		for i := 0; now == nil && i < len(s.blocks); i++ {
			if p.index(i) == at { // the block has taken it up
				now = &s.blocks[i].progress
			}
		}
		if now == nil || was.retracted(now) {
			return true
		}
	}
	return false
}

// syncPlaced writes what a client lacks of the placed progress, and returns what it has then.
func (p *Projector) syncPlaced(s *scene, has map[int]*progress) map[int]*progress {
	for _, at := range slices.Sorted(maps.Keys(s.placed)) {
		if has == nil {
			has = map[int]*progress{}
		}
		if has[at] == nil {
			has[at] = new(progress)
		}
		has[at].syncV2(p, at, s.placed[at])
	}
	return has
}

// syncV1 writes V1's events for the heading and the steps that a client lacks, which has
// was.
func (was *progress) syncV1(p *Projector, now *progress) {
	show := func(h *heading) event {
		return event{name: eventProgress, data: V1Progress{Payload: V1Step{Name: h.name, Icon: h.icon}, Metadata: &V1Metadata{TypeHeading}}}
	}
	was.sync(p, now, show, func(_ int, st *step) event {
		return event{name: eventProgress, data: V1Progress{Payload: st.step().v1()}}
	})
}

// syncV2 writes V2's messages for them, about a content index.
func (was *progress) syncV2(p *Projector, at int, now *progress) {
	show := func(h *heading) event {
		return messageAt(at, Message{Type: TypeProgress, Progress: &Progress{Name: h.name, Icon: h.icon}})
	}
	was.sync(p, now, show, func(i int, st *step) event {
		shown := st.step()
		shown.Index = &i
		return messageAt(at, Message{Type: TypeProgress, Progress: &Progress{Steps: &shown}})
	})
}

func (was *progress) sync(p *Projector, now *progress, head func(*heading) event, one func(int, *step) event) {
	if h := now.heading; h != nil {
		again := was.heading != nil
		if !again || was.heading.name != h.name || was.heading.icon != h.icon {
			e := head(h)
			e.again = again
			p.w.send(e)
		}
		was.heading = h
	}
	for i := range now.steps {
		st := &now.steps[i]
		again := i < len(was.steps)
		if !again {
			was.steps = append(was.steps, *st)
		} else if was.steps[i].key == st.key {
			continue
		}
		e := one(i, st)
		e.again, e.reopened = again, again && reopens(&was.steps[i], st)
		was.steps[i] = *st
		p.w.send(e)
	}
}

package merlin

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// scene is what a client should have at this point of the log.
type scene struct {
	blocks  []block
	sources []source
	files   []Attachment
}

// block is what stands at one content index.
type block struct {
	kind    string // TypeText, TypeReasoning, TypeToolCalls or TypeProgress
	first   uint64 // sequence of the record that opened it
	text    string // the text or the reasoning; of calls, the reasoning of their sub-agents
	calls   []call
	heading *heading
	steps   []step
}

type call struct {
	id, name string
	args     string
	ready    bool // its arguments are complete
	settled  bool
	result   string // so far
	whole    bool   // it is the call's own result, and not what its sub-agent has said so far
	failed   bool
}

type heading struct {
	first      uint64
	name, icon string
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
}

// scene makes the scene of the turn's message and its sub-agents'.
func (p *Projector) scene() *scene {
	b := sceneBuilder{p: p, s: &scene{}, parents: map[string]string{}}
	if len(p.voices) > 0 {
		b.addAll()
	} else {
		group := -1
		parts := p.fold.Message().Parts
		for i := range parts {
			group = b.add(&parts[i], group)
		}
	}
	p.addChildren(b.s)
	return b.s
}

// sceneBuilder adds the parts of the turn's message to a scene, one by one.
type sceneBuilder struct {
	p       *Projector
	s       *scene
	calls   []attached
	parents map[string]string // of progress parts
}

// addAll adds the parts of the message and those of the voices beside it, in the order
// in which they were opened.
func (b *sceneBuilder) addAll() {
	type spoken struct {
		part  *chunk.Part
		voice int
	}
	var list []spoken
	for v := range len(b.p.voices) + 1 {
		f := b.p.fold
		if v > 0 {
			f = b.p.voices[v-1].fold
		}
		parts := f.Message().Parts
		for i := range parts {
			list = append(list, spoken{&parts[i], v})
		}
	}
	slices.SortStableFunc(list, func(x, y spoken) int { return cmp.Compare(x.part.First, y.part.First) })
	groups := make([]int, len(b.p.voices)+1)
	for i := range groups {
		groups[i] = -1
	}
	for _, x := range list {
		groups[x.voice] = b.add(x.part, groups[x.voice])
	}
}

// add adds a part. Group is the block of the calls of its model phase so far, -1 if
// there is none; add returns what it is after the part.
func (b *sceneBuilder) add(part *chunk.Part, group int) int {
	p, s := b.p, b.s
	switch part.Type {
	case chunk.PartStep:
		return -1
	case chunk.PartText, chunk.PartReasoning:
		if part.Text == "" {
			return group
		}
		kind := TypeText
		if part.Type == chunk.PartReasoning {
			kind = TypeReasoning
		}
		s.blocks = append(s.blocks, block{kind: kind, first: part.First, text: part.Text})
		return -1
	case chunk.PartTool:
		earlier := 0
		if group >= 0 {
			earlier = len(s.blocks[group].calls)
		}
		c, ok := p.call(part.Tool, earlier)
		if !ok {
			return group
		}
		if group < 0 {
			group = len(s.blocks)
			s.blocks = append(s.blocks, block{kind: TypeToolCalls, first: part.First})
		}
		s.blocks[group].calls = append(s.blocks[group].calls, c)
		b.calls = append(b.calls, attached{c.id, group})
	case chunk.PartData:
		if part.Name == "progress" {
			p.place(s, part, b.parents, b.calls)
		}
	case chunk.PartSource:
		s.sources = append(s.sources, newSource(part, len(s.blocks)-1))
	case chunk.PartFile:
		s.files = append(s.files, Attachment{URL: p.values.url(part), Title: part.Filename, MediaType: part.MediaType})
	}
	return group
}

// attached is a call and the block it is in.
type attached struct {
	call  string
	block int
}

// call returns what is shown of a call, and whether anything is. Earlier calls of
// the same model phase stand before it.
func (p *Projector) call(t *chunk.ToolPart, earlier int) (call, bool) {
	if t == nil {
		return call{}, false
	}
	c := call{id: t.CallID, name: t.Name, settled: t.State.Done()}
	bare := t.InputText == ""
	if t.State != chunk.ToolStreaming {
		p.values.arguments(t)
	}
	if args, ok := p.values.args[t.CallID]; ok { // also if they are being written again
		c.ready, c.args = true, args.text
		bare = args.text == "" || args.text == "{}"
	}
	if bare && t.Name == "" || p.o.Literal.omits(bare, earlier) {
		return call{}, false
	}
	switch {
	case t.State == chunk.ToolCompleted, t.Preliminary && len(t.Output) > 0:
		c.result, c.whole = p.values.result(t), true
	case t.State == chunk.ToolFailed:
		c.result, c.whole, c.failed = t.Error, true, true
	case t.State == chunk.ToolDenied:
		c.result, c.whole, c.failed = "denied", true, true
		if t.Approval != nil && t.Approval.Reason != "" {
			c.result += ": " + t.Approval.Reason
		}
	}
	return c, true
}

// place adds a progress part to the block of the call that its id names, or else to
// the progress block of its topmost parent.
func (p *Projector) place(s *scene, part *chunk.Part, parents map[string]string, calls []attached) {
	st, head, parent := p.values.progress(p.root, part.ID, part)
	parents[part.ID] = parent
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

func (b *block) show(st *step, head *heading) {
	if head != nil {
		if b.heading == nil || b.heading.first <= head.first {
			b.heading = head
		}
		return
	}
	b.steps = append(b.steps, *st)
}

// addChildren adds what sub-agents say to the calls that they answer.
func (p *Projector) addChildren(s *scene) {
	if len(p.children) == 0 {
		return
	}
	for i := range s.blocks {
		b := &s.blocks[i]
		n := len(b.steps)
		waits := false // an earlier call is not settled: its sub-agent may still add reasoning
		for j := range b.calls {
			c := &b.calls[j]
			kid := p.byCall[c.id]
			if kid == nil {
				waits = waits || !c.settled
				continue
			}
			text, thought := p.words(kid, false)
			if !c.whole {
				c.result = text
			}
			// The reasoning of one after that of the other, so that it only grows.
			if !waits {
				b.text += thought
			}
			waits = waits || !c.settled
			p.childSteps(b, kid)
		}
		if len(b.steps) > n {
			slices.SortStableFunc(b.steps, func(x, y step) int { return cmp.Compare(x.first, y.first) })
		}
	}
}

// words returns the text and the reasoning of an agent, with those of its own
// sub-agents at their calls. It stops at the first call that is not settled, so
// that the result only grows.
func (p *Projector) words(kid *child, hidden bool) (text, thought string) {
	hidden = hidden || kid.suppressed
	parts := kid.fold.Message().Parts
	for i := range parts {
		switch part := &parts[i]; part.Type {
		case chunk.PartText:
			if !hidden {
				text += part.Text
			}
		case chunk.PartReasoning:
			if !hidden || p.o.Literal.revealsThoughts() {
				thought += part.Text
			}
		case chunk.PartTool:
			if part.Tool == nil {
				continue
			}
			if sub := kid.byCall[part.Tool.CallID]; sub != nil {
				said, mused := p.words(sub, hidden)
				text, thought = text+said, thought+mused
			}
			if !part.Tool.State.Done() {
				return text, thought
			}
		}
	}
	return text, thought
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
	if d.Type == TypeHeading {
		return nil, &heading{first, in.Label, d.Icon}, in.Parent
	}
	st := &step{first: first, id: id, name: in.Label, status: InProgress, icon: d.Icon, tags: d.Tags}
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

package merlin

import (
	"cmp"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// scene is what a client should have at this point of the log.
type scene struct {
	blocks  []block
	sources []source
	files   []Attachment
	placed  map[int]*progress // V2's progress at content indexes that are no blocks'
	flat    progress          // V1's progress on a V2 wire
}

// block is what stands at one content index.
type block struct {
	kind  string // TypeText, TypeReasoning, TypeToolCalls or TypeProgress
	first uint64 // sequence of the record that opened it
	text  string // the text or the reasoning; of calls, the reasoning of their sub-agents
	calls []call
	progress
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
	p.settle(b.s)
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
			b.sort()
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

package aisdk

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// view is what a client has been sent. Bringing it to a message writes the
// frames for what the message has and the client has not; so the stream, a plan
// (a new view brought to the message) and the message itself agree by
// construction.
//
// Parts are told apart by what does not change while a message grows: text and
// reasoning blocks, steps, sources, files and data without an id by their
// ordinal, tool calls and data with an id by their ids.
type view struct {
	compact bool // writes a plan: outputs without their input event
	ids     func(i int) string

	steps    int
	stepOn   bool // start-step was sent, finish-step was not
	dangling bool // the client's message ends in a step that has no parts yet
	blocks   []sentBlock
	open     []int     // indexes of the open blocks: one at most for each agent whose words these are
	order    []partKey // of what was sent, in messages that hold sub-agents' words
	tools    map[string]*sentTool
	data     map[string]json.RawMessage
	loose    int // data parts without id
	sources  int
	files    int
}

type sentBlock struct {
	kind   chunk.PartType
	first  uint64
	text   string
	agent  string // whose words they are; "" for the agent whose message it is
	closed bool
}

func newView(o *Options) *view {
	return &view{ids: o.blockID, tools: map[string]*sentTool{}, data: map[string]json.RawMessage{}}
}

// blockID names the turn's i-th text or reasoning block, from 0.
func (o *Options) blockID(i int) string {
	if o.BlockID != nil {
		return o.BlockID(i)
	}
	return "block-" + strconv.Itoa(i+1)
}

func dataKey(p *chunk.Part) (string, bool) {
	return p.Name + "\x00" + p.ID, p.Type == chunk.PartData && p.ID != ""
}

// visible reports whether a part is anything on this wire. Blocks count from
// their first character on.
func (o *Options) visible(p *chunk.Part) bool {
	switch p.Type {
	case chunk.PartText, chunk.PartReasoning:
		return p.Text != ""
	case chunk.PartStep:
		return !o.NoStepEvents
	case chunk.PartData:
		return !(o.LiteralErrors && p.Name == "error")
	case chunk.PartTool:
		return p.Tool != nil
	case chunk.PartSource, chunk.PartFile:
		return true
	}
	return false
}

// retracted reports whether the client has what the message has not.
func (v *view) retracted(p *Projector, parts shown) bool {
	if p.o.flattens() && len(p.children) > 0 && v.misplaced(p, parts.list) {
		return true
	}
	var found tally
	for i := range parts.list {
		if part := &parts.list[i]; p.o.visible(part) && !v.find(part, &found) {
			return true
		}
	}
	return found.blocks < len(v.blocks) || found.tools < len(v.tools) || found.data < len(v.data) || found.loose < v.loose ||
		found.steps < v.steps || found.sources < v.sources || found.files < v.files
}

// tally counts parts of a message, by their kinds.
type tally struct{ blocks, steps, tools, data, loose, sources, files int }

// find counts a part of the message. It reports false if the client has other
// words in its place.
func (v *view) find(part *chunk.Part, found *tally) bool {
	switch part.Type {
	case chunk.PartText, chunk.PartReasoning:
		if found.blocks < len(v.blocks) {
			if !v.blocks[found.blocks].begins(part) {
				return false
			}
			found.blocks++
		}
	case chunk.PartTool:
		if v.tools[part.Tool.CallID] != nil {
			found.tools++
		}
	case chunk.PartData:
		if key, ok := dataKey(part); !ok {
			found.loose++
		} else if _, sent := v.data[key]; sent {
			found.data++
		}
	case chunk.PartStep:
		found.steps++
	case chunk.PartSource:
		found.sources++
	case chunk.PartFile:
		found.files++
	}
	return true
}

// begins reports whether a block can become the part.
func (b *sentBlock) begins(part *chunk.Part) bool {
	return b.kind == part.Type && strings.HasPrefix(part.Text, b.text) && (!b.closed || len(part.Text) == len(b.text))
}

// sync writes what the client lacks.
func (v *view) sync(p *Projector, parts shown) {
	v.syncOpenBlocks(p, parts.list)
	var blocks, steps, loose, sources, files int
	for i := range parts.list {
		part := &parts.list[i]
		if !p.o.visible(part) {
			continue
		}
		switch part.Type {
		case chunk.PartText, chunk.PartReasoning:
			if blocks++; blocks > len(v.blocks) {
				v.opening(p, part)
				v.openBlock(p, part, parts.agent(i))
			}
		case chunk.PartTool:
			v.syncTool(p, part)
		case chunk.PartData:
			if part.ID != "" {
				v.syncData(p, part)
			} else if loose++; loose > v.loose {
				v.writeLoose(p, part)
			}
		case chunk.PartStep:
			if steps++; steps > v.steps {
				v.startStep(p)
			}
		case chunk.PartSource:
			if sources++; sources > v.sources {
				v.opening(p, part)
				v.sources++
				p.writeSource(part, sources)
			}
		case chunk.PartFile:
			if files++; files > v.files {
				v.opening(p, part)
				v.files++
				p.w.open("file").str("url", p.o.whole(part).URL).str("mediaType", orElse(part.MediaType, octets)).close()
			}
		}
	}
	if !p.stepOn {
		v.endStep(p)
	}
	if p.o.flattens() {
		v.place(p, parts.list)
	}
}

// opening is called before a new part of a step is written. An empty step that
// it follows stays in the message; plans must have it too.
func (v *view) opening(p *Projector, part *chunk.Part) {
	if v.compact {
		if p.extra[part.First] {
			p.emptyStep(v)
			v.dangling = false
		}
	} else if v.dangling {
		v.dangling = false
		p.extra[part.First] = true
	}
}

func (v *view) startStep(p *Projector) {
	v.steps++
	if v.dangling {
		v.dangling, v.stepOn = false, true
		return
	}
	v.endStep(p)
	p.w.open("start-step").close()
	v.stepOn = true
}

func (v *view) endStep(p *Projector) {
	if v.stepOn {
		v.stepOn = false
		v.closeBlocks(p, false)
		v.finishStep(p)
	}
}

// finishStep writes what clients take as the end of all that is open, unless a
// sub-agent's words still are: they stand in the step in which they began. To
// clients a step ends with the next one's start as well.
func (v *view) finishStep(p *Projector) {
	if len(v.open) == 0 {
		p.w.open("finish-step").close()
	}
}

func (v *view) writeData(p *Projector, part *chunk.Part) {
	key, _ := dataKey(part)
	v.data[key] = part.Data
	w := p.w.open("data-" + part.Name)
	w.kind, w.about = dataEvent, key
	w.str("id", part.ID).raw("data", p.o.value(part.Data)).close()
}

// growData is sync for one data part that was set; it reports false if there is
// more to it than that.
func (v *view) growData(p *Projector, name, id string, seq uint64) bool {
	if p.o.flattens() && len(p.children) > 0 {
		return false // sync also notes where it stands
	}
	parts := p.parts()
	if id == "" {
		if part := &parts[len(parts)-1]; part.First == seq && part.Type == chunk.PartData && p.o.visible(part) {
			v.writeLoose(p, part)
			return true
		}
		return false
	}
	for i := len(parts) - 1; i >= 0; i-- {
		if part := &parts[i]; part.Type == chunk.PartData && part.Name == name && part.ID == id && p.o.visible(part) {
			v.syncData(p, part)
			return true
		}
	}
	return false
}

// syncData writes a data part with an id, if it has changed.
func (v *view) syncData(p *Projector, part *chunk.Part) {
	key, _ := dataKey(part)
	old, sent := v.data[key]
	if !sent {
		v.opening(p, part)
	}
	if !sent || !sameJSON(old, part.Data) {
		v.writeData(p, part)
	}
}

// writeLoose writes a data part without an id.
func (v *view) writeLoose(p *Projector, part *chunk.Part) {
	v.opening(p, part)
	v.loose++
	p.w.open("data-"+part.Name).raw("data", p.o.value(part.Data)).close()
}

// Blocks.

func prefix(kind chunk.PartType) string {
	if kind == chunk.PartReasoning {
		return "reasoning"
	}
	return "text"
}

func (v *view) openBlock(p *Projector, part *chunk.Part, agent string) {
	if agent == "" {
		v.closeBlocks(p, false)
	}
	n := len(v.blocks)
	v.open = append(v.open, n)
	v.blocks = append(v.blocks, sentBlock{kind: part.Type, first: part.First, agent: agent})
	v.startBlock(p, part.Type, n, agent)
	v.growBlock(p, n, part)
}

func (v *view) startBlock(p *Projector, kind chunk.PartType, n int, agent string) {
	p.w.open(prefix(kind)+"-start").str("id", v.ids(n)).rawOpt("providerMetadata", ofAgent(agent, nil)).close()
}

// growBlock brings an open block to its part.
func (v *view) growBlock(p *Projector, n int, part *chunk.Part) {
	b := &v.blocks[n]
	p.w.text(prefix(b.kind)+"-delta", "id", v.ids(n), "delta", part.Text[len(b.text):])
	b.text = part.Text
	if !part.Open {
		v.endBlock(p, n, part.ProviderMetadata)
	}
}

func (v *view) endBlock(p *Projector, n int, metadata json.RawMessage) {
	b := &v.blocks[n]
	p.w.open(prefix(b.kind)+"-end").str("id", v.ids(n))
	if b.kind == chunk.PartReasoning {
		p.w.rawOpt("providerMetadata", ofAgent(b.agent, providerMetadata(metadata)))
	}
	p.w.close()
	b.closed = true
	v.open = slices.DeleteFunc(v.open, func(i int) bool { return i == n })
}

// closeBlocks ends the open blocks of the agent whose message it is, or of all.
func (v *view) closeBlocks(p *Projector, all bool) {
	for _, n := range slices.Clone(v.open) {
		if all || v.blocks[n].agent == "" {
			v.endBlock(p, n, nil)
		}
	}
}

// syncOpenBlocks brings the open blocks to their parts before anything else is
// written: what closes a block comes after it.
func (v *view) syncOpenBlocks(p *Projector, parts []chunk.Part) {
	if len(v.open) == 0 {
		return
	}
	left := slices.Clone(v.open)
	n := 0
	for i := range parts {
		if t := parts[i].Type; t != chunk.PartText && t != chunk.PartReasoning || parts[i].Text == "" {
			continue
		}
		if n == left[0] {
			v.growBlock(p, n, &parts[i])
			if left = left[1:]; len(left) == 0 {
				return
			}
		}
		n++
	}
}

// grow is sync for a delta of an open block, given the parts of its agent; it
// reports false if there is more to it than that.
func (v *view) grow(p *Projector, parts []chunk.Part) bool {
	if len(v.open) == 0 || !p.stepOn && v.stepOn {
		return false
	}
	for i := len(parts) - 1; i >= 0; i-- {
		part := &parts[i]
		if part.Type != chunk.PartText && part.Type != chunk.PartReasoning {
			continue
		}
		for _, n := range v.open {
			if b := &v.blocks[n]; part.First == b.first && part.Type == b.kind && len(part.Text) >= len(b.text) {
				v.growBlock(p, n, part)
				return true
			}
		}
		return false
	}
	return false
}

package merlin

import (
	"strings"

	"github.com/spool-run/spool/chunk"
)

// viewV2 is what a V2 client has been sent.
type viewV2 struct {
	blocks      []block
	cites       int
	attachments []Attachment
	placed      map[int]*progress
	flat        progress // V1's
}

func (v *viewV2) begin(*Projector) {}

func (v *viewV2) grow(p *Projector, part *chunk.Part) bool {
	n := len(v.blocks) - 1
	if n < 0 || part.First != v.blocks[n].first {
		return false
	}
	kind := TypeText
	if part.Type == chunk.PartReasoning {
		kind = TypeReasoning
	}
	if v.blocks[n].kind != kind || !strings.HasPrefix(part.Text, v.blocks[n].text) {
		return false
	}
	v.words(p, n, part.Text)
	return true
}

// retracted reports whether the client has something that is not in the scene.
func (v *viewV2) retracted(s *scene, cites int) bool {
	if len(v.blocks) > len(s.blocks) || v.cites > cites {
		return true
	}
	for i := range v.blocks {
		was, is := &v.blocks[i], &s.blocks[i]
		if was.kind != is.kind || was.first != is.first || len(was.calls) > len(is.calls) ||
			was.progress.retracted(&is.progress) || !strings.HasPrefix(is.text, was.text) {
			return true
		}
		for j := range was.calls {
			if was.calls[j].id != is.calls[j].id || !is.calls[j].ready {
				return true
			}
		}
	}
	return v.flat.retracted(&s.flat)
}

func (v *viewV2) sync(p *Projector, s *scene) bool {
	attachments, quotes := p.attach(s.sources, s.files)
	cites := p.o.Literal.cited(len(s.sources))
	if v.retracted(s, cites) || p.displaced(s, v.placed) || len(attachments) == 0 && v.attachments != nil {
		return false
	}
	for i := range s.blocks {
		b := &s.blocks[i]
		at := p.index(i)
		if i == len(v.blocks) {
			v.blocks = append(v.blocks, block{kind: b.kind, first: b.first})
			if placed := v.placed[at]; placed != nil {
				v.blocks[i].progress = *placed
				delete(v.placed, at)
			}
		}
		if b.kind == TypeToolCalls {
			v.calls(p, i, b)
		}
		v.blocks[i].syncV2(p, at, &b.progress)
		switch b.kind {
		case TypeText, TypeReasoning:
			v.words(p, i, b.text)
		case TypeProgress:
			v.blocks[i].text = b.text
		case TypeToolCalls:
			v.words(p, i, b.text)
			v.results(p, i, b)
		}
	}
	v.placed = p.syncPlaced(s, v.placed)
	v.flat.syncV1(p, &s.flat)
	if !sameAttachments(v.attachments, attachments) {
		v.attachments = attachments
		p.w.message(p.index(len(v.blocks)-1), Message{Type: TypeAttachments, Attachments: attachments})
	}
	for ; v.cites < cites; v.cites++ {
		src := s.sources[v.cites]
		if src.text != "" {
			p.w.message(p.index(src.at), Message{Type: TypeCitation, Citation: &Citation{quotes[v.cites].doc, src.text}})
		}
	}
	return true
}

// index returns the content index of the i-th block. What stands before the first
// block (i is -1) has the index of the first.
func (p *Projector) index(i int) int {
	i = max(i, 0)
	at := p.o.FirstIndex + i
	for _, g := range p.gaps {
		if g.from <= i {
			at += g.size
		}
	}
	return at
}

// words writes what the client lacks of a text or of reasoning.
func (v *viewV2) words(p *Projector, i int, text string) {
	was := &v.blocks[i]
	if len(text) == len(was.text) {
		was.text = text
		return
	}
	p.w.words(text[len(was.text):], func(piece string) {
		m := Message{Type: TypeReasoning, Reasoning: piece}
		if was.kind == TypeText {
			m = Message{Type: TypeText, Text: piece}
		}
		p.w.message(p.index(i), m)
	})
	was.text = text
}

// calls writes the calls whose arguments are complete, in the order in which the
// model made them.
func (v *viewV2) calls(p *Projector, i int, b *block) {
	was := &v.blocks[i]
	var list []ToolCall
	for j := range b.calls {
		c := &b.calls[j]
		if !c.ready {
			break
		}
		if j == len(was.calls) {
			was.calls = append(was.calls, call{id: c.id})
		} else if was.calls[j].name == c.name && was.calls[j].args == c.args {
			continue
		}
		was.calls[j].name, was.calls[j].args = c.name, c.args
		list = append(list, ToolCall{Type: "function", Function: Function{c.name, c.args}, ID: c.id})
	}
	if list != nil {
		p.w.message(p.index(i), Message{Type: TypeToolCalls, ToolCalls: list})
	}
}

// results writes what the client lacks of the results of the calls that it
// knows.
func (v *viewV2) results(p *Projector, i int, b *block) {
	was := &v.blocks[i]
	for j := range was.calls {
		old, c := &was.calls[j], &b.calls[j]
		at := p.index(i)
		delta := func(piece string) {
			p.w.message(at, Message{Type: TypeToolCallResult, ToolCallResult: &ToolCallResult{Index: j, Delta: &piece}})
		}
		switch {
		case c.whole && (!old.whole || old.result != c.result || old.failed != c.failed),
			!c.whole && (old.whole || !strings.HasPrefix(c.result, old.result)):
			n := fit(c.result, maxText)
			head := c.result[:n]
			p.w.message(at, Message{Type: TypeToolCallResult, ToolCallResult: &ToolCallResult{
				Index: j, Result: &head, ToolCallID: c.id, Function: &FunctionName{c.name}, IsError: c.failed,
			}})
			p.w.words(c.result[n:], delta)
		case !c.whole:
			p.w.words(c.result[len(old.result):], delta)
		}
		old.result, old.whole, old.failed = c.result, c.whole, c.failed
	}
}

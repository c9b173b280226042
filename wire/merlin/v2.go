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
		if was.kind != is.kind || was.first != is.first || len(was.calls) > len(is.calls) || len(was.steps) > len(is.steps) ||
			was.heading != nil && is.heading == nil || !strings.HasPrefix(is.text, was.text) {
			return true
		}
		for j := range was.calls {
			if was.calls[j].id != is.calls[j].id || !is.calls[j].ready {
				return true
			}
		}
		for j := range was.steps {
			if was.steps[j].id != is.steps[j].id {
				return true
			}
		}
	}
	return false
}

func (v *viewV2) sync(p *Projector, s *scene) bool {
	attachments, quotes := p.attach(s.sources, s.files)
	cites := p.o.Literal.cited(len(s.sources))
	if v.retracted(s, cites) || len(attachments) == 0 && v.attachments != nil {
		return false
	}
	for i := range s.blocks {
		b := &s.blocks[i]
		if i == len(v.blocks) {
			v.blocks = append(v.blocks, block{kind: b.kind, first: b.first})
		}
		switch b.kind {
		case TypeText, TypeReasoning:
			v.words(p, i, b.text)
		case TypeProgress:
			v.blocks[i].text = b.text
			v.progress(p, i, b)
		case TypeToolCalls:
			v.calls(p, i, b)
			v.progress(p, i, b)
			v.words(p, i, b.text)
			v.results(p, i, b)
		}
	}
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

// progress writes the heading and the steps that the client lacks.
func (v *viewV2) progress(p *Projector, i int, b *block) {
	was := &v.blocks[i]
	if h := b.heading; h != nil {
		again := was.heading != nil
		if !again || was.heading.name != h.name || was.heading.icon != h.icon {
			e := messageAt(p.index(i), Message{Type: TypeProgress, Progress: &Progress{Name: h.name, Icon: h.icon}})
			e.again = again
			p.w.send(e)
		}
		was.heading = h
	}
	for j := range b.steps {
		st := &b.steps[j]
		again := j < len(was.steps)
		if !again {
			was.steps = append(was.steps, *st)
		} else if was.steps[j].key == st.key {
			continue
		}
		show := st.step()
		show.Index = &j
		e := messageAt(p.index(i), Message{Type: TypeProgress, Progress: &Progress{Steps: &show}})
		e.again, e.reopened = again, again && reopens(&was.steps[j], st)
		was.steps[j] = *st
		p.w.send(e)
	}
}

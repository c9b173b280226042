package merlin

import (
	"fmt"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// viewV1 is what a V1 client has been sent.
type viewV1 struct {
	pieces      []piece
	attachments []Attachment
	progress
	placed map[int]*progress // V2's
}

// piece is a stretch of the content: a text, or a citation's marker.
type piece struct {
	first uint64 // First of its part
	text  string
	cites int // of a marker: number of citations up to and including its own
}

func (v *viewV1) begin(p *Projector) { p.w.event(eventInit, struct{}{}) }

func (v *viewV1) grow(p *Projector, part *chunk.Part) bool {
	if part.Type == chunk.PartReasoning {
		return true // it is not shown
	}
	n := len(v.pieces) - 1
	if n < 0 || v.pieces[n].first != part.First || v.pieces[n].cites > 0 || !strings.HasPrefix(part.Text, v.pieces[n].text) {
		return false
	}
	v.write(p, n, part.Text)
	return true
}

// content returns the texts of the message, and behind each the markers of its
// citations. A marker is held back until a later text begins or the answer ends.
func (p *Projector) content(s *scene) []piece {
	var list []piece
	var held []int
	_, quotes := p.attach(s.sources, nil)
	flush := func() {
		for _, i := range p.o.Literal.marked(held) {
			list = append(list, piece{s.sources[i].first, marker(quotes[i]), i + 1})
		}
		held = held[:0]
	}
	next := 0
	for i := -1; i < len(s.blocks); i++ {
		if i >= 0 && s.blocks[i].kind == TypeText {
			flush()
			list = append(list, piece{s.blocks[i].first, s.blocks[i].text, 0})
		}
		for ; next < len(s.sources) && s.sources[next].at == i; next++ {
			held = append(held, next)
			if next < p.flushed {
				flush()
			}
		}
	}
	return list
}

// marker is the text that stands for a citation; a link without a quotation has none.
func marker(q quote) string {
	if q.text < 0 {
		return ""
	}
	return fmt.Sprintf("[citation: %d: %d]", q.doc+1, q.text+1)
}

// retracted reports whether the client has what the scene no longer has, or lacks
// something in the middle of the content, where nothing can be added.
func (v *viewV1) retracted(list []piece) bool {
	if len(v.pieces) > len(list) {
		return true
	}
	for i := range v.pieces {
		was, is := &v.pieces[i], &list[i]
		if was.first != is.first || was.cites != is.cites || !strings.HasPrefix(is.text, was.text) ||
			len(is.text) > len(was.text) && i < len(v.pieces)-1 {
			return true
		}
	}
	return false
}

func (v *viewV1) sync(p *Projector, s *scene) bool {
	list := p.content(s)
	now := p.allSteps(s)
	if v.retracted(list) || v.progress.retracted(&now) || p.displaced(s, v.placed) {
		return false
	}
	cites := 0
	for i := range list {
		cites = max(cites, list[i].cites)
	}
	attachments, _ := p.attach(s.sources[:cites], s.files)
	if v.attachments != nil && len(attachments) == 0 {
		return false
	}
	v.progress.syncV1(p, &now)
	v.placed = p.syncPlaced(s, v.placed)
	if !sameAttachments(v.attachments, attachments) { // before the markers that count them
		v.attachments = attachments
		p.w.event(eventAttachments, attachmentsV1{attachments})
	}
	for i := range list {
		if i == len(v.pieces) {
			v.pieces = append(v.pieces, piece{first: list[i].first, cites: list[i].cites})
		}
		v.write(p, i, list[i].text)
	}
	return true
}

// write sends what the client lacks of a piece.
func (v *viewV1) write(p *Projector, i int, text string) {
	was := &v.pieces[i]
	p.w.words(text[len(was.text):], func(s string) { p.w.event(eventMessage, Message{Content: &s}) })
	was.text = text
}

// allSteps returns the steps of all blocks in the order in which they began, and
// the latest heading. If there are steps there is a heading, empty if need be: V1's
// clients open the list of steps when it comes.
func (p *Projector) allSteps(s *scene) (all progress) {
	for i := range s.blocks {
		b := &s.blocks[i]
		all.steps = append(all.steps, b.steps...)
		if b.heading != nil {
			all.show(nil, b.heading)
		}
	}
	all.sort()
	if all.heading == nil && len(all.steps) > 0 {
		all.heading = &heading{}
	}
	return all
}

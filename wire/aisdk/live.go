package aisdk

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// SubAgentLive is the data of a transient data-subagent-live frame: what a
// sub-agent has done since its data part was told. It sets a part of the message,
// or lets one grow, or takes back those from an index on. The next data-subagent
// of the session takes the place of all of them.
type SubAgentLive struct {
	SessionID string  `json:"sessionId"`
	MessageID string  `json:"messageId"`
	Index     int     `json:"index"`               // among the message's parts
	Part      *UIPart `json:"part,omitempty"`      // set it to this
	Delta     string  `json:"delta,omitempty"`     // append to its text, or to a call's argument text
	Retracted bool    `json:"retracted,omitempty"` // it and those after it are gone
}

// live is what clients have been sent of a sub-agent beyond its data part.
type live struct {
	base int          // how many parts of the latest message the data part holds
	sent []chunk.Part // those after
}

func (l *live) restart(p *Projector, a *childAgent) {
	l.base, l.sent = 0, nil
	if a.fold != nil {
		l.base = len(p.o.visibleParts(a.fold.Message()))
	}
}

func (o *Options) visibleParts(m *chunk.Message) []*chunk.Part {
	var list []*chunk.Part
	for i := range m.Parts {
		if o.visible(&m.Parts[i]) {
			list = append(list, &m.Parts[i])
		}
	}
	return list
}

// followLive writes what the agent has said beyond what was sent.
func (p *Projector) followLive(a *childAgent, r chunk.Record) {
	if !p.o.nests() || a.fold == nil {
		return
	}
	l := &a.live
	parts := p.o.visibleParts(a.fold.Message())
	parts = parts[min(l.base, len(parts)):]
	if len(parts) < len(l.sent) {
		l.sent = l.sent[:len(parts)]
		p.writeLive(a, SubAgentLive{Index: l.base + len(parts), Retracted: true})
	}
	from := 0
	if r.Type == chunk.TypeTextDelta || r.Type == chunk.TypeThinking || r.Type == chunk.TypeToolArgStreamDelta {
		from = max(0, len(l.sent)-1)
	}
	for i := from; i < len(parts); i++ {
		part, index := parts[i], l.base+i
		if i == len(l.sent) {
			p.writePart(a, index, part)
			l.sent = append(l.sent, copyPart(part))
			continue
		}
		was := &l.sent[i]
		if samePart(was, part) {
			continue
		}
		if delta, ok := grown(was, part); ok {
			p.writeDelta(a, index, delta)
		} else {
			p.writePart(a, index, part)
		}
		*was = copyPart(part)
	}
}

// planLive writes all that a client lacks that has only the data part.
func (p *Projector) planLive(a *childAgent) {
	for i := range a.live.sent {
		p.writePart(a, a.live.base+i, &a.live.sent[i])
	}
}

// writePart sets a part. Text that still grows follows as deltas, so that no
// frame is too large.
func (p *Projector) writePart(a *childAgent, index int, part *chunk.Part) {
	part = p.o.whole(part)
	ui := convertPart(part, &p.o, 0)
	text := ui.Text
	if part.Tool != nil && part.Tool.State == chunk.ToolStreaming {
		text, ui.Input = part.Tool.InputText, nil
	}
	ui.Text = ""
	p.writeLive(a, SubAgentLive{Index: index, Part: &ui})
	p.writeDelta(a, index, text)
}

func (p *Projector) writeDelta(a *childAgent, index int, delta string) {
	for delta != "" {
		n := jsonenc.Fit(delta, maxText-4<<10)
		p.writeLive(a, SubAgentLive{Index: index, Delta: delta[:n]})
		delta = delta[n:]
	}
}

func (p *Projector) writeLive(a *childAgent, l SubAgentLive) {
	l.SessionID, l.MessageID = a.Session, a.fold.Message().ID
	data, err := json.Marshal(l)
	if err != nil {
		return
	}
	p.w.open("data-"+subAgentPart+"-live").raw("data", data).flag("transient", true).close()
}

// grown returns what was added to a part that has only grown.
func grown(was, part *chunk.Part) (delta string, ok bool) {
	if was.First != part.First || was.Type != part.Type {
		return "", false
	}
	switch {
	case part.Type == chunk.PartText, part.Type == chunk.PartReasoning:
		return strings.CutPrefix(part.Text, was.Text)
	case part.Tool != nil && part.Tool.State == chunk.ToolStreaming && was.Tool.State == chunk.ToolStreaming:
		return strings.CutPrefix(part.Tool.InputText, was.Tool.InputText)
	}
	return "", false
}

func copyPart(part *chunk.Part) chunk.Part {
	c := *part
	if part.Tool != nil {
		tool := *part.Tool
		if tool.Approval != nil {
			approval := *tool.Approval
			tool.Approval = &approval
		}
		c.Tool = &tool
	}
	return c
}

// samePart reports whether a client would see no difference.
func samePart(a, b *chunk.Part) bool {
	if a.First != b.First || a.Type != b.Type || a.ID != b.ID || a.Text != b.Text || a.Name != b.Name || a.URL != b.URL ||
		!bytes.Equal(a.Data, b.Data) || (a.Tool == nil) != (b.Tool == nil) {
		return false
	}
	return a.Tool == nil || sameCall(a.Tool, b.Tool)
}

func sameCall(a, b *chunk.ToolPart) bool {
	if a.CallID != b.CallID || a.State != b.State || a.InputText != b.InputText || a.Error != b.Error || a.Preliminary != b.Preliminary ||
		!bytes.Equal(a.Input, b.Input) || !bytes.Equal(a.Output, b.Output) || (a.Approval == nil) != (b.Approval == nil) {
		return false
	}
	return a.Approval == nil || a.Approval.ID == b.Approval.ID && (a.Approval.Approved == nil) == (b.Approval.Approved == nil)
}

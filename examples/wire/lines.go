// Package lines is a client protocol of its own, in a module of its own: it shows
// an answer's text, and nothing else, as server-sent events.
//
//	data: {"text":"It is "}
//	data: {"text":"sunny."}
//	event: end
//	data: {}
//
// A server offers it as one of wires.Options.More.
package lines

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// Wire returns the wire.
func Wire() wire.Wire {
	return wire.Wire{
		Name:    "lines",
		Send:    []string{"/lines/{session}"},
		Attach:  []string{"/lines/{session}"},
		Profile: func(wire.Request) (wire.Profile, error) { return profile, nil },
		Read: func(event string, data []byte) wire.Event {
			return wire.Event{Line: data, Last: event == "end"}
		},
	}
}

var profile = wire.Profile{
	Key:       "lines",
	Projector: func(of wire.Subject) spool.Projector { return &projector{of: of, runs: map[string]bool{}} },
	NoRun:     func(string, string) []byte { return end() },
	Header:    http.Header{"X-Lines": {"1"}},
}

// projector shows one turn.
type projector struct {
	of      wire.Subject
	runs    map[string]bool // the turn's
	message *fold.MessageFold
	sent    string // what a reader that stayed has
	ended   bool
}

// Apply appends what the text has grown by, and the end of the turn. A model call
// that was made again may take text back, which this protocol cannot say: such
// readers are cut, and come back to a new plan.
func (p *projector) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	if r.Agent != p.of.Agent && p.of.Agent != "" || chunk.IsCommand(r.Type) {
		return dst, nil
	}
	c, err := chunk.Decode(r.Data)
	if err != nil {
		return dst, err
	}
	if started, ok := c.(*chunk.RunStarted); ok && started.TurnID == p.of.Turn {
		if p.message == nil {
			p.of.Agent = r.Agent
			p.message = fold.NewMessageFold(r.Agent)
		}
		p.runs[started.RunID], p.ended = true, false
	}
	if p.message == nil || r.Agent != p.of.Agent || !p.runs[c.ChunkBase().RunID] {
		return dst, nil
	}
	p.message.Apply(r, c)
	text := p.text()
	more, grown := strings.CutPrefix(text, p.sent)
	switch {
	case !grown:
		p.sent = text
		return append(dst, spool.Frame{Data: event("cut", ""), Cut: true}), nil
	case more != "":
		p.sent = text
		dst = append(dst, spool.Frame{Data: event("", more), Seq: r.Seq})
	}
	if chunk.Is(c, chunk.TypeRunFinished, chunk.TypeRunSuspended) {
		p.ended = true
		dst = append(dst, spool.Frame{Data: end(), Seq: r.Seq, Terminal: true})
	}
	return dst, nil
}

// Plan returns the text so far.
func (p *projector) Plan() ([]spool.Frame, error) {
	var plan []spool.Frame
	if p.message != nil && p.text() != "" {
		plan = append(plan, spool.Frame{Data: event("", p.text())})
	}
	if p.ended {
		plan = append(plan, spool.Frame{Data: end(), Terminal: true})
	}
	return plan, nil
}

func (p *projector) text() string {
	var text strings.Builder
	for _, part := range p.message.Message().Parts {
		if part.Type == chunk.PartText {
			text.WriteString(part.Text)
		}
	}
	return text.String()
}

func event(name, text string) []byte {
	data, _ := json.Marshal(map[string]string{"text": text}) // strings always encode
	return wire.AppendEvent(nil, name, data)
}

func end() []byte { return wire.AppendEvent(nil, "end", []byte("{}")) }

// Package plain is a client protocol in a module of its own. It streams the words of
// an answer, and nothing else. docs/writing-a-wire.md shows this code.
package plain

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// Wire streams the words of an answer.
func Wire() wire.Wire {
	return wire.Wire{
		Name:    "plain",
		Send:    []string{"/plain/{session}"},
		Attach:  []string{"/plain/{session}"},
		Profile: func(wire.Request) (wire.Profile, error) { return Profile(), nil },
		Read:    func() func(string, []byte) wire.Event { return line },
	}
}

// line is what a program that prints a stream writes for an event.
func line(event string, data []byte) wire.Event {
	return wire.Event{Line: data, Last: event == "end"}
}

func Profile() wire.Profile {
	return wire.Profile{
		Key: "plain",
		Projector: func(s wire.Subject) spool.Projector {
			return &projector{of: s, fold: fold.NewMessageFold(s.Agent), runs: map[string]bool{}}
		},
		NoRun: func(_, finishReason string) []byte { return event("end", finishReason).Data },
	}
}

// projector is one turn: a start event for each run, text events, an end.
type projector struct {
	of   wire.Subject
	fold *fold.MessageFold
	runs map[string]bool // the turn's
	sent string          // what who never left has read
	end  []spool.Frame   // how the turn stands; empty while a run is open
}

func (p *projector) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	if r.Agent != p.of.Agent || chunk.IsCommand(r.Type) {
		return dst, nil
	}
	c, err := chunk.Decode(r.Data)
	if err != nil {
		return dst, err
	}
	run := c.ChunkBase().RunID
	if started, ok := c.(*chunk.RunStarted); ok && started.TurnID == p.of.Turn {
		p.runs[run], p.end = true, nil
		dst = append(dst, event("start", started.MessageID))
	}
	if !p.runs[run] && r.Type != chunk.TypeExecutorSuperseded {
		return dst, nil // another turn's
	}
	n := len(dst)
	p.fold.Apply(r, c)
	text := p.fold.Message().Text()
	more, grown := strings.CutPrefix(text, p.sent)
	p.sent = text
	if !grown { // a model phase was discarded
		f := event("lost", "")
		f.Cut = true
		return append(dst, f), nil
	}
	dst = words(dst, more)
	switch c := c.(type) {
	case *chunk.RunSuspended:
		p.end = []spool.Frame{event("end", c.Kind)}
	case *chunk.RunFinished:
		p.end = []spool.Frame{event("end", string(c.Outcome))}
	}
	if len(p.end) > 0 {
		p.end[0].Terminal = true
		dst = append(dst, p.end...)
	}
	if len(dst) > n || r.Type == chunk.TypeRunStarted {
		dst[len(dst)-1].Seq = r.Seq
	}
	return dst, nil
}

func (p *projector) Plan() ([]spool.Frame, error) {
	if len(p.runs) == 0 {
		return nil, nil
	}
	plan := words([]spool.Frame{event("start", p.fold.Message().ID)}, p.sent)
	return append(plan, p.end...), nil
}

// words appends a text as events that are no larger than a frame may be.
func words(dst []spool.Frame, text string) []spool.Frame {
	for text != "" {
		n := min(len(text), 32<<10)
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n--
		}
		dst = append(dst, event("text", text[:n]))
		text = text[n:]
	}
	return dst
}

func event(name, text string) spool.Frame {
	data, _ := json.Marshal(text) // strings always encode
	return spool.Frame{Data: wire.AppendEvent(nil, name, data)}
}

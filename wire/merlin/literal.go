package merlin

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The streamer that this protocol comes from contradicts its own description in
// some places and loses something in others. All of that is in this file. The
// projector writes the wire as it should be, and asks a [Literal] at the points
// that are methods here; those of the zero Literal change nothing.

// Literal brings the streamer's literal behaviour back where it contradicts its
// own description or loses something. The zero value brings nothing back.
type Literal struct {
	// End sends {"type":"DONE"} as the last message instead of an end event.
	End bool
	// Suppression suppresses only the text of what is suppressed and shows its
	// reasoning.
	Suppression bool
	// FirstCall shows only the first of the calls that a model makes at once
	// (V2).
	FirstCall bool
	// EmptyArguments leaves calls without arguments out.
	EmptyArguments bool
	// Citations: V1 writes only the last citation of a block, and none that no
	// later text follows; V2 sends no citations.
	Citations bool
	// Union writes V2 messages with the member names of the chunk union: content
	// for text, contentIndex for the index of calls and results.
	Union bool
	// Progress sends a step that is taken up again as a V1 event in V2 too, and
	// leaves its index out of all its frames but the first. In V1 it sends a
	// heading that changes as a V2 message.
	Progress bool
	// Errors ends a failed answer like any other. By default a message of type
	// error (in V1 one with empty content) comes before the end.
	Errors bool
}

// literalNames are what flags call the members.
var literalNames = []string{"end", "suppression", "first-call", "empty-arguments", "citations", "union", "progress", "errors"}

// ParseLiteral reads a list of members, by the names that flags have for them, or
// all.
func ParseLiteral(names []string) (Literal, error) {
	var l Literal
	members := []*bool{&l.End, &l.Suppression, &l.FirstCall, &l.EmptyArguments, &l.Citations, &l.Union, &l.Progress, &l.Errors}
	for _, name := range names {
		at := slices.Index(literalNames, name)
		if at < 0 && name != "all" {
			return Literal{}, fmt.Errorf("%s: want %s or all", name, strings.Join(literalNames, ", "))
		}
		for i, on := range members {
			*on = *on || i == at || name == "all"
		}
	}
	return l, nil
}

// omits reports whether a call is left out although it has a name or arguments:
// bare says that it has no arguments, and earlier is how many calls of the same
// model phase are shown before it.
func (l *Literal) omits(bare bool, earlier int) bool {
	return l.EmptyArguments && bare || l.FirstCall && earlier > 0
}

// revealsThoughts reports whether the reasoning of an agent that is suppressed is
// shown.
func (l *Literal) revealsThoughts() bool { return l.Suppression }

// cited returns how many of n citations V2 sends.
func (l *Literal) cited(n int) int {
	if l.Citations {
		return 0
	}
	return n
}

// marked returns the citations, of those that wait for a later text, whose
// markers V1 writes before it.
func (l *Literal) marked(waiting []int) []int {
	if l.Citations && len(waiting) > 1 {
		return waiting[len(waiting)-1:]
	}
	return waiting
}

// markedAtEnd returns how many of n citations V1 has marked when the answer ends,
// whether or not a later text follows them.
func (l *Literal) markedAtEnd(n int) int {
	if l.Citations {
		return 0
	}
	return n
}

// rewrite returns an event in the form in which it is sent, and false if it is not
// sent. First is the content index of the answer's first block.
func (l *Literal) rewrite(e event, first int) (event, bool) {
	if l.Progress && e.again {
		e = otherProgress(e, first)
	}
	if l.End && e.name == eventEnd {
		return event{name: eventMessage, data: Message{Type: typeDone}}, true
	}
	m, ok := e.data.(Message)
	switch {
	case ok && m.Error != nil && l.Errors:
		return event{}, false
	case ok && m.Index != nil && l.Union: // V1's messages have no index
		e.data = unionMessage(m)
	}
	return e, true
}

// otherProgress is the Progress member's form of a step or a heading that the
// client has already in an earlier state.
func otherProgress(e event, first int) event {
	switch data := e.data.(type) {
	case V1Progress:
		if data.Metadata != nil {
			return messageAt(first, Message{Type: TypeProgress, Progress: &Progress{Name: data.Payload.Name, Icon: data.Payload.Icon}})
		}
	case Message:
		if data.Progress.Steps == nil {
			break
		}
		step := *data.Progress.Steps
		if e.reopened {
			return event{name: eventProgress, data: V1Progress{Payload: step.v1()}}
		}
		step.Index = nil
		data.Progress = &Progress{Steps: &step}
		e.data = data
	}
	return e
}

// unionMessage is the Union member's form of a V2 message.
func unionMessage(m Message) Message {
	index := m.Index
	m.Content, m.Index = nil, nil
	switch m.Type {
	case TypeText:
		text := m.Text
		m.Content, m.Text, m.Index = &text, "", index
	case TypeToolCalls, TypeToolCallResult:
		m.ContentIndex = index
	case TypeReasoning, TypeProgress, TypeError:
		m.Index = index
	}
	return m
}

// fromLiteral undoes what [Literal.rewrite] does to a message that a client reads,
// and reports whether the message is the end.
func fromLiteral(m *Message) (end bool) {
	if m.Type == typeDone {
		return true
	}
	if m.Index == nil {
		m.Index = m.ContentIndex
	}
	m.ContentIndex = nil
	if m.Type == TypeText && m.Text == "" && m.Content != nil {
		m.Text, m.Content = *m.Content, new(string)
	}
	return false
}

// PacingAsDescribed is [DefaultPacing] turned around, as the streamer's description
// has it in words: it slows down when much waits, so that readers fall behind
// without bound.
func PacingAsDescribed() []Pace {
	return []Pace{
		{1, 5, 0},
		{5, 4, 5 * time.Millisecond},
		{10, 3, 10 * time.Millisecond},
		{0, 2, 15 * time.Millisecond},
	}
}

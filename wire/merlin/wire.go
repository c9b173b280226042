package merlin

import (
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
)

// WireOptions are a server's options of the wire.
type WireOptions struct {
	// Suppress says whose words are not shown, of the agents that a session's own
	// agent calls, by their type; nil for nobody's. All that serve the same logs
	// in a process must agree on it.
	Suppress func(agentType string) bool
	Literal  Literal
	// Pacing is the table by which V1 content is paced; nil is [DefaultPacing].
	// An empty one does not pace.
	Pacing []Pace
}

// Wire returns a version of the wire, with the options that all its requests
// share. A request says with ?agents= how sub-agents are shown: nest, the default,
// or summary, which shows nothing of what they say.
func Wire(v Version, o WireOptions) wire.Wire {
	if v != V1 {
		v = V2
	}
	path := fmt.Sprintf("/merlin/v%d", v)
	attach := path + "/{session}"
	return wire.Wire{
		Name:   fmt.Sprintf("merlin-v%d", v),
		Send:   []string{path, attach},
		Attach: []string{attach},
		Profile: func(r wire.Request) (wire.Profile, error) {
			agents, err := parseAgents(r.Query.Get("agents"))
			if err != nil {
				return wire.Profile{}, err
			}
			return profile(v, o, agents), nil
		},
		Read: func() func(string, []byte) wire.Event { return readEvent },
	}
}

// How sub-agents are shown. There is no flatten here: a content index is a block
// of the session's own agent, and what a sub-agent says has its place in the
// result of its call.
const (
	agentsNest    = "nest"
	agentsSummary = "summary"
)

func parseAgents(s string) (string, error) {
	switch s {
	case "":
		return agentsNest, nil
	case agentsNest, agentsSummary:
		return s, nil
	case "flatten":
		return "", chunk.ErrInvalid.Because("on the Merlin wires, agents must be nest or summary")
	}
	return "", chunk.ErrInvalid.Because("agents must be nest, summary or flatten")
}

// profile returns what a request gets. A summary suppresses every agent, whichever
// the server suppresses.
func profile(v Version, o WireOptions, agents string) wire.Profile {
	suppress := o.Suppress
	if agents == agentsSummary {
		suppress = func(string) bool { return true }
	}
	return wire.Profile{
		Key: fmt.Sprintf("merlin/%d/%s/%v", v, agents, o.Literal),
		Projector: func(s wire.Subject) spool.Projector {
			return NewProjector(s.Turn, &Options{Version: v, Suppress: suppress, Literal: o.Literal, Resolve: s.Resolve})
		},
		NoRun: func(_, _ string) []byte { return noRun(v) },
		Wrap:  pacing(v, o.Pacing),
	}
}

// noRun returns the stream of an answer that shows no run.
func noRun(v Version) []byte {
	var b []byte
	if v == V1 {
		b = wire.AppendEvent(b, eventInit, []byte("{}"))
	}
	return wire.AppendEvent(b, eventEnd, []byte("{}"))
}

// paceOf returns the table by which a version is paced, nil if it is not.
func paceOf(v Version, table []Pace) []Pace {
	if table == nil {
		table = DefaultPacing()
	}
	if v != V1 || len(table) == 0 {
		return nil
	}
	return table
}

// pacing returns what paces a stream of a version by a table, nil if nothing does.
func pacing(v Version, table []Pace) func(wire.Stream, func() time.Time) wire.Stream {
	if table = paceOf(v, table); table == nil {
		return nil
	}
	return func(s wire.Stream, now func() time.Time) wire.Stream { return Paced(s, table, now) }
}

// readEvent takes an event apart for programs that print: its data, with its name
// in front unless it is a message.
func readEvent(name string, data []byte) wire.Event {
	e, err := parse(name, data)
	if err != nil {
		return wire.Event{Last: true, Err: err}
	}
	if e.Kind != KindMessage { // what the data is depends on it
		data = append([]byte(e.Name+" "), data...)
	}
	return wire.Event{Line: data, Last: e.Kind == KindEnd}
}

package chat

import (
	"context"
	"encoding/json"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
)

// MerlinOptions are those of the Merlin wires.
type MerlinOptions struct {
	// Suppress says whose words are not shown, of the agents that a session's own
	// agent calls, by their type; nil for nobody's. All that serve the same logs
	// in a process must agree on it.
	Suppress func(agentType string) bool
	Literal  merlin.Literal
	// Pacing is the table by which V1 content is paced; nil is [MerlinPacing]. An
	// empty one does not pace.
	Pacing []Pace
}

// errMerlinAgents: on Merlin a content index is a block of the session's own
// agent, and what a sub-agent says has its place in the result of its call.
var errMerlinAgents = chunk.ErrInvalid.Because("the Merlin wires show sub-agents as nest or summary")

// wire is how an answer is shown.
type wire struct {
	ui     int             // the AI SDK wire's profile
	agents aisdk.SubAgents // how sub-agents are shown; on Merlin, nest or summary
	merlin merlin.Version  // the Merlin wire, if it is not 0
}

func (p *Params) wire() wire {
	if p.Merlin == 0 {
		return wire{ui: p.UI, agents: p.SubAgents}
	}
	if p.SubAgents == "" {
		return wire{merlin: p.Merlin, agents: aisdk.Nest}
	}
	return wire{merlin: p.Merlin, agents: p.SubAgents}
}

// settled is the stream of an answer that shows no run.
func (w wire) settled(messageID, reason string) static {
	switch w.merlin {
	case merlin.V1:
		return static(merlin.AppendEvent(merlin.AppendEvent(nil, merlin.EventInit), merlin.EventEnd))
	case merlin.V2:
		return static(merlin.AppendEvent(nil, merlin.EventEnd))
	}
	return settledFrames(messageID, reason)
}

// merlinOptions are the profile's. A summary shows nobody's words; nobody asks for
// words that the server suppresses.
func (d *Deps) merlinOptions(g subject, as wire) *merlin.Options {
	suppress := d.Merlin.Suppress
	if as.agents == aisdk.Summary {
		suppress = func(string) bool { return true }
	}
	return &merlin.Options{
		Version:  as.merlin,
		Suppress: suppress,
		Literal:  d.Merlin.Literal,
		// Shared by readers, so that none of their contexts ends it.
		Resolve: func(v json.RawMessage) (json.RawMessage, error) { return g.Blob(context.Background(), v) },
	}
}

// paced slices and paces the content of a V1 stream.
func (d *Deps) paced(src *turnSource, as wire) Source {
	table := d.Merlin.Pacing
	if table == nil {
		table = MerlinPacing()
	}
	if as.merlin != merlin.V1 || len(table) == 0 {
		return src
	}
	return newPacer(src, func() bool { return !src.planned }, table, d.Logs.Now)
}

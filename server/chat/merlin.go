package chat

import (
	"context"
	"encoding/json"

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

// wire is how an answer is shown.
type wire struct {
	ui     int             // the AI SDK wire's profile,
	agents aisdk.SubAgents // and how it shows sub-agents
	merlin merlin.Version  // the Merlin wire, if it is not 0
}

func (p *Params) wire() wire {
	if p.Merlin != 0 {
		return wire{merlin: p.Merlin}
	}
	return wire{ui: p.UI, agents: p.SubAgents}
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

func (d *Deps) merlin(g subject, v merlin.Version) *merlin.Options {
	return &merlin.Options{
		Version:  v,
		Suppress: d.Merlin.Suppress,
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

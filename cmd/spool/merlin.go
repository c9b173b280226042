package main

import (
	"slices"

	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire/merlin"
)

// merlinFlags are the options of the Merlin wires.
type merlinFlags struct {
	Literal  []string `help:"Literal behaviours of the Merlin wires, where it is mended by default: end, suppression, first-call, empty-arguments, citations, union, progress, errors, or all."`
	Suppress []string `help:"Types of sub-agents whose words are not shown on the Merlin wires; * is all."`
}

// literal reads the flag.
func (f *merlinFlags) literal() (l merlin.Literal, err error) {
	names := map[string]*bool{"end": &l.End, "suppression": &l.Suppression, "first-call": &l.FirstCall, "empty-arguments": &l.EmptyArguments,
		"citations": &l.Citations, "union": &l.Union, "progress": &l.Progress, "errors": &l.Errors}
	for _, name := range f.Literal {
		switch on := names[name]; {
		case on != nil:
			*on = true
		case name == "all":
			for _, on := range names {
				*on = true
			}
		default:
			return l, &usageError{"--merlin-literal " + name + ": want end, suppression, first-call, empty-arguments, citations, union, progress, errors or all"}
		}
	}
	return l, nil
}

// suppress reports whether the words of a type of sub-agent are not shown; nil: all
// are shown.
func (f *merlinFlags) suppress() func(agentType string) bool {
	if len(f.Suppress) == 0 {
		return nil
	}
	return func(agentType string) bool {
		return slices.Contains(f.Suppress, "*") || slices.Contains(f.Suppress, agentType)
	}
}

// merlinServe are the flags of a server's Merlin wires.
type merlinServe struct {
	merlinFlags
	Pacing string `enum:"streamer,described,none" default:"streamer" help:"Pacing of Merlin V1: streamer (slow while little waits), described (slow while much waits) or none."`
}

func (f *merlinServe) options() (chat.MerlinOptions, error) {
	l, err := f.literal()
	o := chat.MerlinOptions{Suppress: f.suppress(), Literal: l}
	switch f.Pacing {
	case "described":
		o.Pacing = chat.MerlinPacingAsDescribed()
	case "none":
		o.Pacing = []chat.Pace{}
	}
	return o, err
}

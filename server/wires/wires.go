// Package wires lists the wires that a server offers. A new wire needs its package and
// a line here.
package wires

import (
	"fmt"
	"slices"

	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
	"github.com/spool-run/spool/wire/native"
)

// Options are the options of all wires. The zero value works.
type Options struct {
	AISDK  aisdk.Options
	Merlin merlin.WireOptions
	More   []wire.Wire // further wires
}

// List returns the wires.
func List(o Options) []wire.Wire {
	return append([]wire.Wire{
		native.Wire(),
		aisdk.Wire(o.AISDK),
		merlin.Wire(merlin.V1, o.Merlin),
		merlin.Wire(merlin.V2, o.Merlin),
	}, o.More...)
}

// Find returns the wire with a name.
func Find(list []wire.Wire, name string) (wire.Wire, bool) {
	for _, w := range list {
		if w.Name == name {
			return w, true
		}
	}
	return wire.Wire{}, false
}

// Names returns the names of the wires that every server offers.
func Names() []string { return NamesOf(List(Options{})) }

// NamesOf returns the names of wires.
func NamesOf(list []wire.Wire) []string {
	var names []string
	for _, w := range list {
		names = append(names, w.Name)
	}
	return names
}

// Flags are the options that a program takes from its command line.
type Flags struct {
	Literal  []string `name:"merlin-literal" help:"Restore behaviours of the original Merlin streamer that are corrected by default: end, suppression, first-call, empty-arguments, citations, union, progress, errors, or all."`
	Suppress []string `name:"merlin-suppress" help:"Types of sub-agents to hide on the Merlin wires; * hides all."`
}

// Options reads the flags. An error names the flag and what it takes.
func (f *Flags) Options() (Options, error) {
	literal, err := merlin.ParseLiteral(f.Literal)
	if err != nil {
		return Options{}, fmt.Errorf("--merlin-literal %w", err)
	}
	return Options{Merlin: merlin.WireOptions{Literal: literal, Suppress: suppressed(f.Suppress)}}, nil
}

// suppressed returns the predicate for the agent types that are hidden; nil if none is.
func suppressed(types []string) func(agentType string) bool {
	if len(types) == 0 {
		return nil
	}
	return func(agentType string) bool {
		return slices.Contains(types, "*") || slices.Contains(types, agentType)
	}
}

// ServeFlags are the wires' flags of a server.
type ServeFlags struct {
	Flags
	UI     int    `name:"ui" enum:"6,7" default:"6" help:"Default AI SDK profile: 6 or 7."`
	Static bool   `name:"static-tools" help:"On the AI SDK wire, give tool parts the type tool-NAME, for pages that declare their tools, instead of dynamic-tool."`
	Pacing string `name:"merlin-pacing" enum:"streamer,described,none" default:"streamer" help:"Pacing of Merlin V1: streamer (slow while little waits), described (slow while much waits) or none."`
}

// Options reads the flags. An error names the flag and what it takes.
func (f *ServeFlags) Options() (Options, error) {
	o, err := f.Flags.Options()
	o.AISDK.UI7, o.AISDK.StaticTools = f.UI == 7, f.Static
	switch f.Pacing {
	case "described":
		o.Merlin.Pacing = merlin.PacingAsDescribed()
	case "none":
		o.Merlin.Pacing = []merlin.Pace{}
	}
	return o, err
}

package merlin

import "encoding/json"

// Options fix a profile of the wire. The zero value is V2.
//
// Everything in it must be deterministic: another node has to build the same
// frames from the same records.
type Options struct {
	Version Version // 0: V2
	// FirstIndex is the content index of the answer's first block.
	FirstIndex int
	// Suppress says whose words are not shown, of the agents that the session's
	// own agent calls, by their type. Without it what a sub-agent says streams as
	// the result of the call that it answers. The call's result is always shown.
	Suppress func(agentType string) bool
	Literal  Literal
	// Resolve returns the value that a stored value stands for: what a blob
	// reference refers to, anything else as it is. Nil sends values as they are
	// stored.
	Resolve func(json.RawMessage) (json.RawMessage, error)
}

// Literal has the streamer's literal behaviour where it contradicts its own
// description or loses something.
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

// value resolves a stored value. One that cannot be had is sent as its
// reference, and is not whole.
func (o *Options) value(v json.RawMessage) (resolved json.RawMessage, whole bool) {
	if o.Resolve == nil || len(v) == 0 {
		return v, true
	}
	resolved, err := o.Resolve(v)
	if err != nil {
		return v, false
	}
	return resolved, true
}

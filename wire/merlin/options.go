package merlin

import "encoding/json"

// Version is a version of the protocol.
type Version int

const (
	V1 Version = 1 // content alone, paced
	V2 Version = 2 // indexed frames
)

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

// value resolves a stored value. If that fails it returns the reference, and whole
// is false.
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

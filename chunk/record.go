package chunk

import "encoding/json"

// Class says whether a record is part of what the conversation is, or only of
// what it looked like while it streamed.
type Class uint8

const (
	// Kept records alone rebuild every wire's message. They live as long as
	// their session.
	Kept Class = iota
	// Trace records (deltas, progress) may be trimmed once their turn is
	// settled.
	Trace
)

// String returns "kept" or "trace".
func (c Class) String() string {
	if c == Trace {
		return "trace"
	}
	return "kept"
}

// Record is one committed entry of a session's log.
//
// Data is the chunk's JSON, encoded once, when it was appended. Stores and the
// native wire copy it and never look inside, because Type, Agent and Time repeat the
// chunk's fields. Records are shared between readers: treat Data as read-only.
type Record struct {
	Seq   uint64 // 1, 2, 3, … in the session's log
	Type  Type   // the chunk's "type"
	Agent string // the chunk's "agentId": the session id of the agent that wrote it
	Time  int64  // the chunk's "timestamp", Unix milliseconds; for display, never for order
	Class Class
	Data  json.RawMessage
}

// ChunkType returns the record's type.
func (r Record) ChunkType() Type { return r.Type }

package spool

import "github.com/spool-run/spool/chunk"

// Frame is a piece of a client protocol's byte stream, ready to be sent. Shared code
// knows only its flags; only the wire's own package looks into its bytes.
type Frame struct {
	// Data is the whole frame with its line ends, but without an SSE id: that depends
	// on the reader.
	Data []byte
	// Seq is the record's sequence on the record's last frame, and 0 on its other
	// frames. A reader that has received this frame has seen the record.
	Seq uint64
	// Terminal frames tell that the turn has ended or paused. They are sent only if
	// their record is the log's last, and the stream is closed after them.
	Terminal bool
	// Cut frames are made when content is retracted that the wire cannot retract. The
	// reader is disconnected after the last of them, without a terminal frame, so that
	// it reconnects and gets a new plan. They carry no Seq: the reader's cursor stays
	// inside the retracted content.
	Cut bool
	// Since is the first record whose content a cut frame retracts; 0 is the log's
	// first. A cursor before it can be served. A cursor from it up to the cut fails
	// with [ErrCursorRetracted].
	Since uint64
	// Echo frames, of a run's first record, repeat to a client what its own request has
	// just sent.
	Echo bool
	// Uncounted frames are not counted by clients that count frames.
	Uncounted bool
}

// Projector is a client protocol as a fold over a log. It is a deterministic function
// of the records: it uses no clock, no random ids, and nothing that another node could
// not rebuild. Readers that attach at any position, and those that were there from the
// beginning, must end with the same content. Package wiretest proves this for a wire.
//
// A Projector is used by one goroutine at a time. After an error it is discarded; a new
// one may succeed.
type Projector interface {
	// Apply folds the next record and appends its frames to dst.
	Apply(dst []Frame, r chunk.Record) ([]Frame, error)
	// Plan returns the fewest frames that bring a new reader to the projector's present
	// state. The frames of the following records continue from there. Frames of a plan
	// carry no Seq.
	Plan() ([]Frame, error)
}

// Rejoiner is a [Projector] whose clients can answer a call while its run is open and
// then receive the frames after the answer.
type Rejoiner interface {
	// Rejoin returns the frames of the plan that such a client may lack: the start of
	// the message, the outcomes of the open step's calls, except those in answered, and
	// data that is replaced by its id.
	Rejoin(answered func(callID string) bool) ([]Frame, error)
}

// Renderer is a [Projector] of a stateless projection. A record has one frame or none,
// which is neither terminal nor cut. A reader that catches up has the frames written where
// they are sent from.
type Renderer interface {
	// Render is Apply that appends the Data of the record's frame to dst, if it has one.
	Render(dst []byte, r *chunk.Record) []byte
}

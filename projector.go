package spool

import "github.com/spool-run/spool/chunk"

// Frame is a piece of a client protocol's byte stream, ready to be sent. Its
// flags are all that shared code knows of it: nobody outside the wire's package
// looks into its bytes.
type Frame struct {
	// Data is the whole frame with its line ends, but without an SSE id, which
	// depends on how a reader came to it.
	Data []byte
	// Seq is the record's sequence on the last frame that the record became, and
	// 0 on the others: a reader that saw this frame has seen the record.
	Seq uint64
	// Terminal frames say that the turn has ended or paused. They are sent only
	// if the record that made them is where the log stands, and the stream is
	// closed after the last.
	Terminal bool
	// Cut frames take back something that was sent and that the wire cannot
	// retract. The reader is disconnected after the last of them, without an
	// end, so that it comes back and is given a new plan. They carry no Seq: the
	// reader's cursor stays inside what was retracted.
	Cut bool
	// Since narrows what a cut frame takes back: to what was sent of the records
	// from this sequence on. A reader before it is served; one at it or behind it,
	// but before the cut, is told that its cursor was retracted. 0 is everything.
	Since uint64
	// Echo frames, of a run's first record, tell a client what its own request
	// has just told the server.
	Echo bool
	// Uncounted frames are not counted by clients that count frames.
	Uncounted bool
}

// Projector is a client protocol as a fold over a log. It is a deterministic
// function of the records: no clock, no random ids, nothing that another node
// could not rebuild. A reader that attaches anywhere must end with what the log
// says, and so must one that stayed from the beginning; package wiretest proves
// it for a wire.
//
// A Projector is used by one goroutine at a time. After an error it is not used
// any more; another one may have more luck.
type Projector interface {
	// Apply folds the next record and appends the frames that it becomes to dst.
	Apply(dst []Frame, r chunk.Record) ([]Frame, error)
	// Plan returns frames that bring a reader who has seen nothing to the
	// projector's present state, as few as possible. Applying the following
	// records goes on from there. Frames of a plan carry no Seq.
	Plan() ([]Frame, error)
}

// Rejoiner is a [Projector] whose clients answer a call while its run is open,
// and are then sent what follows the answer.
type Rejoiner interface {
	// Rejoin returns the frames of the plan that such a client may lack: the
	// start of the message, and the outcomes of the open step's calls but for
	// those that answered names.
	Rejoin(answered func(callID string) bool) ([]Frame, error)
}

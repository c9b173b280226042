// Package wire is the contract between client protocols and the servers that
// speak them.
//
// A wire is one package that exports one value, a [Wire]. A request fixes the wire's
// options. The result is a [Profile]: the projector that turns records into frames, and
// the few facts that shared code needs besides. All other code treats frames as opaque.
// Package wiretest tests profiles; a server takes wires in a list.
package wire

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Wire is a client protocol.
type Wire struct {
	// Name is the wire's name in flags and documents.
	Name string
	// Send and Attach are the patterns of its routes, like "/chat/{session}": a POST to
	// a route of Send brings a message or answers and streams the run that answers it;
	// a GET of a route of Attach streams an existing turn or log. A route of Send
	// without {session} takes the session from the body.
	Send, Attach []string
	// Profile returns the profile for a request.
	Profile func(Request) (Profile, error)
	// Body reads the body of a POST. It fails with [ErrMalformed]. nil: bodies are
	// those of the AI SDK's clients.
	Body func(data []byte) (*Body, error)
	// Refusal returns the text with which a POST is refused, for wires whose clients
	// show the body of an error answer to their user. A client that accepts
	// application/json gets JSON all the same. nil: always JSON.
	Refusal func(*chunk.Error) string
	// Position reads the position of a GET. nil: [ReadPosition].
	Position func(Request) (Position, error)
	// Follow is the query that keeps a stream open after the turn's end; "" if the wire
	// has none.
	Follow string
	// Read returns a parser of the events of a stream, for programs that print them. It is
	// called with all of them, in order, also after the client has reconnected.
	Read func() func(event string, data []byte) Event
}

// Request holds the parts of a request that a wire reads.
type Request struct {
	Query  url.Values
	Header http.Header
}

// Profile is a wire with its options fixed.
type Profile struct {
	// Key identifies the profile: readers of a log whose profiles have the same key
	// share one projection.
	Key string
	// Projector returns a projector that has applied no record.
	Projector func(Subject) spool.Projector
	// Log is set if streams show the log, from any cursor on. nil: a stream shows one
	// turn.
	Log *LogView
	// NoRun returns the whole stream of a response that shows no run. It gets the
	// message id, which may be "", and why the stream ends: "tool-calls" (other calls
	// still wait for answers) or "other".
	NoRun func(messageID, finishReason string) []byte
	// Header is added to the response.
	Header http.Header
	// MediaType is that of the stream. "": text/event-stream.
	MediaType string
	// Wrap can pace or change the stream of a turn for one reader. nil: the stream is
	// sent as it is.
	Wrap func(s Stream, now func() time.Time) Stream
	// Continuing returns the profile for readers that have the turn's message already,
	// from a snapshot that was taken while it was written: their streams continue it and
	// never begin it. Its projector may be a [Reopener]. nil: this profile serves them, too.
	Continuing func() Profile
}

// Reopener is a [spool.Projector] whose clients cannot continue a part that is open
// unless its start is repeated.
type Reopener interface {
	// Reopen returns the frames that a client with the present message, from a snapshot,
	// gets before the frames of later records. begun is false if the message has no part
	// yet: snapshots leave it out, and the client gets it from its start.
	Reopen() (frames []spool.Frame, begun bool, err error)
}

// Subject identifies what a projector shows.
type Subject struct {
	Turn  string // id of the turn; "" of a [LogView]
	Agent string // session of the agent whose turn or log it is: a root's or a child's
	// Resolve returns the original of a stored value: the content of a blob reference,
	// and any other value unchanged. nil shows values in their stored form.
	Resolve func(json.RawMessage) (json.RawMessage, error)
}

// LogView is a profile whose streams show a log record by record. Its projector's
// frames depend on their record alone, unless Chained is set.
type LogView struct {
	// Chained: they depend also on the latest record before it that had frames. Those of a
	// projector's first such record depend on it alone. See
	// [spool.ProjectionOptions].
	Chained bool
	// Follow keeps streams open when the log becomes quiet.
	Follow bool
	// Wait opens a stream on a session that does not exist yet, and waits for it.
	// Without it such a request is refused with [spool.ErrNotFound].
	Wait bool
	// End returns the event that closes the stream of a log that has become quiet,
	// without its id; nil while the status is active.
	End func(status chunk.Status, reason, errText string) []byte
	// Lost returns the stream for a position that cannot be served: the reason is
	// "trimmed", "ahead" or "incarnation".
	Lost func(reason string) []byte
}

// Stream is one reader's view of a log as bytes.
type Stream interface {
	// Next returns the next events and blocks until there are some. The bytes are valid
	// until the next call and must not be changed; they may come with an error. It
	// fails with io.EOF once it has returned the terminal frame, with ctx's error,
	// after which it may be called again, and with another error if the reader must be
	// disconnected without a terminal frame.
	Next(ctx context.Context) ([]byte, error)
	// Replaying reports whether the last result of Next belongs to a replay: frames
	// that bring the reader to the present state.
	Replaying() bool
}

// Event is an event as a program prints it.
type Event struct {
	Line []byte // what to print; nil for nothing
	Last bool   // the stream has ended
	Err  error  // with Last: why it did not end well
}

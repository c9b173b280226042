// Package wire is the contract between client protocols and the servers that
// speak them.
//
// A wire is one package that exports one value, a [Wire]. What a request asks for
// fixes its options and gives a [Profile]: the projector that turns records into
// frames, and the few things that shared code must know beside it. Frames are
// opaque to everybody else. Package wiretest proves a profile; a server takes the
// value in its list of wires.
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
	// Name is what flags and documents call it.
	Name string
	// Send and Attach are the patterns of its routes, like "/chat/{session}": a POST
	// to one of Send brings something and streams the run that answers it, a GET of
	// one of Attach streams what there is. A pattern of Send without {session} takes
	// the session from the body.
	Send, Attach []string
	// Profile returns what a request gets.
	Profile func(Request) (Profile, error)
	// Body reads what is posted. It fails with [ErrMalformed]. nil: bodies are those
	// of the AI SDK's clients.
	Body func(data []byte) (*Body, error)
	// Position reads where the client of a GET stands. nil: [ReadPosition].
	Position func(Request) (Position, error)
	// Follow is the query with which a stream outlives the turn, "" if none does.
	Follow string
	// Read takes an event of one of its streams apart, for programs that print.
	Read func(event string, data []byte) Event
}

// Request is what a wire sees of a request.
type Request struct {
	Query  url.Values
	Header http.Header
}

// Profile is a wire with its options fixed.
type Profile struct {
	// Key tells the profile from all others: readers of a log whose profiles have
	// the same key share one projection.
	Key string
	// Projector returns a projector that has seen nothing.
	Projector func(Subject) spool.Projector
	// Log makes a stream show the log, from any cursor on. nil: a stream shows one
	// turn.
	Log *LogView
	// NoRun returns the whole stream of an answer that shows no run: its message id,
	// which may be "", and why it ends, "tool-calls" (other calls still wait for
	// their answers) or "other".
	NoRun func(messageID, finishReason string) []byte
	// Header is added to the answer.
	Header http.Header
	// MediaType is that of the stream. "": text/event-stream.
	MediaType string
	// Wrap may slow down or reshape what a reader is sent of a turn. nil: nothing does.
	Wrap func(s Stream, now func() time.Time) Stream
}

// Subject is what a projector shows.
type Subject struct {
	Turn  string // id of the turn; "" of a [LogView]
	Agent string // session of the agent whose turn or log it is: a root's or a child's
	// Resolve returns the value that a stored value stands for: what a blob
	// reference refers to, anything else as it is. nil shows values as they are
	// stored.
	Resolve func(json.RawMessage) (json.RawMessage, error)
}

// LogView is a profile whose streams show a log record by record. Its projector's
// frames depend on their record alone.
type LogView struct {
	// Follow lets streams outlive the log's quiet.
	Follow bool
	// End returns the event that closes the stream of a log that has become quiet;
	// nil while the status is active.
	End func(status chunk.Status, reason, errText string) []byte
	// Lost returns the stream for a position that cannot be served: the reason is
	// "trimmed", "ahead" or "incarnation".
	Lost func(reason string) []byte
}

// Stream is one reader's view of a log as bytes.
type Stream interface {
	// Next returns the next events and blocks until there are some. The bytes are
	// valid until the next call and must not be changed; they may come with an
	// error. It fails with io.EOF once the terminal frame was given; with ctx's
	// error, after which it may be called again; and with another error when the
	// reader must be cut off without a terminal frame.
	Next(ctx context.Context) ([]byte, error)
	// Replaying reports whether what Next gave last only brings the reader to the
	// present.
	Replaying() bool
}

// Event is what an event says to a program that prints streams.
type Event struct {
	Line []byte // what to print; nil for nothing
	Last bool   // the stream has ended
	Err  error  // with Last: why it did not end well
}

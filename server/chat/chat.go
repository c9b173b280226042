// Package chat turns requests of any wire into commands of a session's log, and
// logs into what a wire's clients read: a run's answer, a turn, the log. It knows
// no protocol and no HTTP; package server is the handler that uses it, and package
// server/frontend the AI SDK's own request bodies and snapshots.
package chat

import (
	"context"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
)

// Options are what a program decides about its chats. The zero value works.
type Options struct {
	// Agent is the agent type of sessions created here; "" for any.
	Agent string
	// Agents are those of the runners, if they are known here: so that a stop that
	// their owner does not obey ends what their providers do in the background, and
	// results of clients are checked against what their tools declare.
	Agents []*agent.Agent
	// AllowOverrides lets a request replace the session's history or state.
	AllowOverrides bool
	// ReplayGrace is how long a settled turn is still replayed to a reader
	// without a position. 0: see the program that takes these options.
	ReplayGrace time.Duration
	// ForceStop is how long a run's owner may take to obey a stop before the run
	// is taken from it. 0: 4 s, of which the owner gives half to its tools.
	ForceStop time.Duration
}

// Deps are what chat requests are handled with. A ReplayGrace of 0 is none.
type Deps struct {
	Logs *spool.Logs
	Options
	// ContentReplay leaves a live turn's assistant message out of snapshots and
	// replays it on the stream. Off, the snapshot holds it (its id ends in
	// "-partial") and the stream goes on after it.
	ContentReplay bool
}

// Params are one request: with a body it is a POST, else a GET.
type Params struct {
	Session   string // "": a POST takes the body's, or mints one
	Principal string
	Body      *wire.Body
	Profile   wire.Profile
	Position  wire.Position
	Run       string // of a counted position: which run; from [SplitRunID]
}

// The names of the views.
const (
	ViewSegment = "segment"
	ViewReplay  = "replay"
	ViewCursor  = "cursor"
	ViewCounted = "counted"
	ViewLog     = "log"
)

// Response is the answer to a request.
type Response struct {
	Session     string
	Incarnation uint64
	View        string
	Stream      Source // nil: there is nothing to stream (204)
	RunID       string // names the session and the run, for clients that count
	Tail        *int   // index of the newest counted frame
}

// Source is one reader's view of a log: [wire.Stream]. It fails with [ErrCut] when
// the reader must come back.
type Source = wire.Stream

// Handle answers a request: a POST appends what it brings and streams the run that
// answers it, a GET attaches to the session.
//
// Errors: those of this package, a [*BusyError], the cursor errors of package
// spool, and the store's.
func Handle(ctx context.Context, d *Deps, p Params) (*Response, error) {
	if p.Body != nil {
		return d.post(ctx, p)
	}
	return d.attach(ctx, p)
}

// CheckSession checks the id of a session that a request names.
func CheckSession(id string) error { return chunk.CheckSessionID(id) }

// CheckReadable checks the id of a session that is read: a root's or a child's.
func CheckReadable(session string) error {
	if err := chunk.CheckID(session); err != nil {
		return err
	}
	return chunk.CheckSessionID(chunk.RootID(session))
}

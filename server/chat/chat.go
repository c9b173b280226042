// Package chat turns requests of any wire into commands in a session's log, and logs
// into the streams that a wire's clients read: of a run, a turn or the log. It knows no
// protocol and no HTTP. Package server is the HTTP handler on it; package
// server/frontend has the AI SDK's request bodies and snapshots.
package chat

import (
	"context"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
)

// Options configure chats. The zero value works.
type Options struct {
	// Agent is the agent type of sessions created here; "" for any.
	Agent string
	// Agents are the runners' agents, if they are known here. With them, results of
	// clients are checked against the tools' schemas, and a stop that an owner does not
	// obey cancels the provider's background work.
	Agents []*agent.Agent
	// AllowOverrides lets a request replace the session's history or state.
	AllowOverrides bool
	// ReplayGrace is how long a settled turn is still replayed to a reader without a
	// position. 0: the default of the program that takes these options.
	ReplayGrace time.Duration
	// ForceStop is how long a run's owner may take to obey a stop. After that, the
	// session is claimed and its run settled by force. 0: 4 s; the owner gives its
	// tools half of that.
	ForceStop time.Duration
}

// Deps are the dependencies of chat requests. A ReplayGrace of 0 is no grace period.
type Deps struct {
	Logs *spool.Logs
	Options
	// ContentReplay leaves a live turn's assistant message out of snapshots and replays
	// it on the stream. Without it, the snapshot contains the message (its id ends in
	// [PartialSuffix]) and the stream continues after it, with the starts of what is open
	// and without a start of the message.
	ContentReplay bool
}

// Params are one request: with a body it is a POST, else a GET.
type Params struct {
	Session   string // "": the one in a POST's body, or a new one
	Principal string
	Body      *wire.Body
	Profile   wire.Profile
	Position  wire.Position
	Run       string // of a counted position: the run, from [SplitRunID]
	// Admit decides again about a reader that has waited for its session, once the
	// session exists and may belong to somebody else. nil: such a reader is admitted.
	Admit func(ctx context.Context) error
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
	RunID       string // identifies session and run for clients that count frames
	Tail        *int   // index of the newest counted frame
}

// Source is one reader's view of a log: [wire.Stream]. It fails with [ErrCut] if the
// reader must reconnect.
type Source = wire.Stream

// Polled is a source that can also be asked without waiting, so that readers who have
// nothing to read need no goroutine each.
type Polled interface {
	Source
	// Poll is Next without waiting. If it returns neither bytes nor an error, there is
	// nothing to read yet.
	Poll(ctx context.Context) ([]byte, error)
	// Await blocks until the log has changed since Poll has found nothing. What changes for
	// one source of a log changes for all that have found nothing at the same head. It may
	// be called by another goroutine than Poll, but not at the same time.
	Await(ctx context.Context) error
	// Root is the session whose log it shows.
	Root() string
}

// Handle answers a request. A POST appends commands and streams the run that answers
// them; a GET attaches to the session.
//
// Errors: those of this package, a [*BusyError], [spool.ErrQuota], the cursor errors of package
// spool, and the store's.
func Handle(ctx context.Context, d *Deps, p Params) (*Response, error) {
	if p.Body != nil {
		return d.post(ctx, p)
	}
	return d.attach(ctx, p)
}

// CheckSession checks a session id in a request that writes.
func CheckSession(id string) error { return chunk.CheckSessionID(id) }

// CheckReadable checks the id of a session that is read: a root's or a child's.
func CheckReadable(session string) error {
	if err := chunk.CheckID(session); err != nil {
		return err
	}
	return chunk.CheckSessionID(chunk.RootID(session))
}

// Package chat turns chat requests into commands of a session's log, and logs
// into what chat clients read: streams on the AI SDK wire, snapshots, histories.
// It knows nothing of HTTP servers beyond header names, so that a program with
// its own handler can use it; package server is such a handler.
package chat

import (
	"context"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
)

// Deps are what chat requests are handled with.
type Deps struct {
	Logs *spool.Logs
	// ContentReplay leaves a live turn's assistant message out of snapshots and
	// replays it on the stream. Off, the snapshot holds it (its id ends in
	// "-partial") and the stream goes on after it.
	ContentReplay bool
	// UI is the AI SDK profile of requests that ask for none: 6 (also 0) or 7.
	UI int
	// ReplayGrace is how long a settled turn is still replayed to a reader
	// without a position; 0 for not at all.
	ReplayGrace time.Duration
	// ForceStop is how long a run's owner may take to obey a stop before the run
	// is taken from it. 0: 4 s, of which the owner gives half to its tools.
	ForceStop time.Duration
	// Agents are those of the runners, if they are known here: so that a stop that
	// their owner does not obey ends what their providers do in the background, and
	// results of clients are checked against what their tools declare.
	Agents []*agent.Agent
	// AllowOverrides lets a request replace the session's history or state.
	AllowOverrides bool
	// Agent is the agent type of sessions created here; "" for any.
	Agent string
	// Transformer are options of the AI SDK wire, the same for everyone.
	Transformer TransformerOptions
	// SubAgents says how sub-agents are shown to requests that do not say; "" is
	// nested.
	SubAgents aisdk.SubAgents
	Merlin    MerlinOptions
}

// TransformerOptions are those of the AI SDK wire that a program sets for all its
// readers, streams and snapshots alike: see [aisdk.Options]. What goes into
// metadata is the agent's: see [agent.Agent].
type TransformerOptions struct {
	StaticTools   bool                   // tool-{name} parts instead of dynamic-tool
	NoStepEvents  bool                   // no start-step and finish-step
	LiteralErrors bool                   // every error chunk is an error frame
	ChunkFilter   func(chunk.Chunk) bool // drops what it returns false for
}

// Params are one chat request.
type Params struct {
	Method     string // POST or GET
	Session    string // "": POST takes the body's, or mints one
	Principal  string
	Body       *Body // POST
	Position   Position
	UI         int             // 0: Deps.UI
	SubAgents  aisdk.SubAgents // "": Deps.SubAgents; of Merlin, nest (also "") or summary
	StartIndex *int            // GET: count frames from the run's start
	Run        string          // GET with StartIndex: which run; from [SplitRunID]
	// Merlin asks for that version of the Merlin wire instead of the AI SDK's.
	Merlin merlin.Version
}

// The names of the views.
const (
	ViewSegment = "segment"
	ViewReplay  = "replay"
	ViewCursor  = "cursor"
	ViewCounted = "counted"
	ViewNative  = "native"
)

// Response is the answer to a chat request.
type Response struct {
	Session     string
	Incarnation uint64
	View        string
	Stream      Source         // nil: there is nothing to stream (204)
	RunID       string         // names the session and the run, for clients that count
	Tail        *int           // index of the newest counted frame
	Merlin      merlin.Version // which Merlin wire the stream is; 0 for none
}

// Source is one reader's view of a log as SSE bytes.
type Source interface {
	// Next returns the next events and blocks until there are some. The bytes
	// are valid until the next call and must not be changed; they may come with
	// an error. It fails with io.EOF once the terminal frame was given; with
	// ctx's error, after which it may be called again; and with [ErrCut] or
	// another error when the reader must be cut off without a terminal frame.
	Next(ctx context.Context) ([]byte, error)
}

// HandleChatStream answers a chat request: POST appends what it brings and
// streams the run that answers it, GET attaches to the session.
//
// Errors: those of this package, a [*BusyError], the cursor errors of package
// spool, and the store's.
func HandleChatStream(ctx context.Context, d *Deps, p Params) (*Response, error) {
	if p.UI == 0 {
		p.UI = d.UI
	}
	if p.UI != 7 {
		p.UI = 6
	}
	switch {
	case p.Merlin == 0:
		p.SubAgents = d.agents(p.SubAgents)
	case p.SubAgents == aisdk.Flatten:
		return nil, errMerlinAgents
	}
	handle := d.get
	if p.Method == "POST" {
		handle = d.post
	}
	res, err := handle(ctx, p)
	if res != nil {
		res.Merlin = p.Merlin
	}
	return res, err
}

// CheckSession checks the id of a session that a request names.
func CheckSession(id string) error { return chunk.CheckSessionID(id) }

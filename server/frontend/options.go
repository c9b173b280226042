package frontend

import (
	"context"
	"log/slog"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/stream"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

// Options configure a [Handler]. A zero ReplayGrace is 60 s.
type Options struct {
	// Logs are the sessions. A program that has them as streams sets Streams instead,
	// and State for snapshots and histories, which fail with [ConfigurationError]
	// without it.
	Logs    *spool.Logs
	Streams *stream.Manager
	State   *stream.StateStore

	// Runner executes the runs that POSTs ask for. The program calls its Run. Without a
	// runner POSTs fail with [ConfigurationError], unless RunsElsewhere says that
	// another process, or a loop of the program's own, answers the messages.
	Runner        *runner.Runner
	RunsElsewhere bool

	chat.Options
	// NoContentReplay puts a live turn's partial message into snapshots instead
	// of replaying it on the stream.
	NoContentReplay bool
	AISDK           aisdk.Options

	// StartMetadata and FinishMetadata return what is stored with a run and shown in
	// its start and finish frames: a value whose JSON is an object, or nil. They are
	// for agents that have no metadata of their own. GenerateMessageID names the
	// assistant messages. Each is called once for each run or turn with the session's
	// id, by Runner, which they need; see [runner.Annotations]. [Static] makes a
	// function of a value.
	StartMetadata     func(agentID string) any
	FinishMetadata    func(agentID string) any
	GenerateMessageID func(agentID string) string

	Logger *slog.Logger // nil: none
}

// Static is a metadata function that returns the same value for every run.
func Static(value any) func(agentID string) any { return func(string) any { return value } }

// Handler serves chats for callers that have their own HTTP framework: it turns
// requests into responses. Callers own their history: a request may replace the
// session's messages and state.
type Handler struct {
	deps     Deps
	wire     wire.Wire
	logger   *slog.Logger
	executes bool // somebody executes the runs
	hasState bool // snapshots and histories can be loaded
}

// New returns a handler. It fails with [ConfigurationError] without logs or streams, and
// if there are metadata or id functions and no runner to call them.
func New(o Options) (*Handler, error) {
	h := &Handler{logger: o.Logger, wire: aisdk.Wire(o.AISDK), executes: o.Runner != nil || o.RunsElsewhere, hasState: o.Logs != nil || o.State != nil}
	switch {
	case o.Logs != nil:
	case o.Streams != nil:
		o.Logs = o.Streams.Logs()
	default:
		return nil, ConfigurationError.With("a frontend handler needs logs or streams", nil)
	}
	if err := o.annotate(); err != nil {
		return nil, err
	}
	if o.ReplayGrace == 0 {
		o.ReplayGrace = time.Minute
	}
	if h.logger == nil {
		h.logger = slog.New(slog.DiscardHandler)
	}
	o.AllowOverrides = true
	h.deps = Deps{Deps: chat.Deps{Logs: o.Logs, Options: o.Options, ContentReplay: !o.NoContentReplay}, AISDK: o.AISDK}
	return h, nil
}

// annotate hands the metadata and id functions to the runner, who calls them.
func (o *Options) annotate() error {
	if o.StartMetadata == nil && o.FinishMetadata == nil && o.GenerateMessageID == nil {
		return nil
	}
	if o.Runner == nil {
		return ConfigurationError.With("metadata and message ids are made by the runner: set Options.Runner, or the annotations of the runner in the other process", nil)
	}
	of := func(metadata func(string) any) func(context.Context, agent.RunInfo) any {
		if metadata == nil {
			return nil
		}
		return func(_ context.Context, r agent.RunInfo) any { return metadata(r.Session) }
	}
	o.Runner.Annotate(runner.Annotations{StartMetadata: of(o.StartMetadata), FinishMetadata: of(o.FinishMetadata), MessageID: o.GenerateMessageID})
	return nil
}

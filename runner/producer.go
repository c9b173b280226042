package runner

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// What an external producer may be told.
var (
	// ErrProducerGap: chunks before these are missing (HTTP 409).
	ErrProducerGap = &chunk.Error{Code: "producer_gap", Message: "chunks before these are missing", Hint: "send again from the number that the error names"}
	// ErrProducerFenced: the claim is over (HTTP 403).
	ErrProducerFenced = &chunk.Error{Code: "producer_fenced", Message: "this claim is over: the run ended, or another owner has the session", Hint: "claim again to begin a new run"}
	// ErrProducerStopped: a stop command ended the run (HTTP 409).
	ErrProducerStopped = &chunk.Error{Code: "producer_stopped", Message: "the run was stopped", Hint: "claim again to begin a new run"}
	// ErrProducerKind: a chunk that producers must not write (HTTP 422).
	ErrProducerKind = &chunk.Error{Code: "chunk_not_allowed", Message: "producers must not write this chunk", Hint: "the server writes the lifecycle of a run, and commands have routes of their own"}
)

// The chunks that end a producer's run, beside the vocabulary of the log:
// {"type":"end","finishReason":…}, {"type":"fail","error":…,"code":…} and
// {"type":"pause"}. Each is the last of its append.
const (
	TypeEnd   chunk.Type = "end"
	TypeFail  chunk.Type = "fail"
	TypePause chunk.Type = "pause"
)

// ExternalOptions are the settings of [External]; the zero value works.
type ExternalOptions struct {
	// TTL is how long a claim lasts without an append. 0: 30 s.
	TTL time.Duration
}

// External lets processes outside write runs: programs in other languages that
// speak HTTP to this one. Such a run has the mode "external". Another node may
// serve it at every request: the log is the only memory.
type External struct {
	logs *spool.Logs
	ttl  time.Duration

	mu        sync.Mutex
	producers map[string]*producer // by session; a cache
}

// NewExternal returns the producers' door to these logs.
func NewExternal(logs *spool.Logs, o *ExternalOptions) *External {
	e := &External{logs: logs, ttl: defaultTTL, producers: map[string]*producer{}}
	if o != nil && o.TTL > 0 {
		e.ttl = o.TTL
	}
	return e
}

// ExternalRun is a producer's claim.
type ExternalRun struct {
	Session   string        `json:"session"`
	Epoch     uint64        `json:"epoch"` // goes with every append
	RunID     string        `json:"runId"`
	TurnID    string        `json:"turnId"`
	MessageID string        `json:"messageId"`
	TTL       time.Duration `json:"-"`
}

// Claim opens an external run in a session, which need not exist. If a user's
// message waits there, the run answers it; if the last run was paused by its
// producer, the turn goes on. It fails with [spool.ErrBusy] while a run is open
// or about to be.
func (e *External) Claim(ctx context.Context, session string, row spool.Row, agentType string) (ExternalRun, error) {
	if err := chunk.CheckSessionID(session); err != nil {
		return ExternalRun{}, err
	}
	lease, err := e.claim(ctx, session)
	if err != nil {
		return ExternalRun{}, err
	}
	x, err := e.open(ctx, lease, row, agentType)
	if err != nil {
		if leaser, ok := e.logs.Store().(spool.Leaser); ok {
			_ = leaser.Release(context.WithoutCancel(ctx), lease)
		}
	}
	return x, err
}

func (e *External) claim(ctx context.Context, session string) (spool.Lease, error) {
	claim := spool.Claim{Owner: "producer-" + e.logs.NewID(), TTL: e.ttl, Session: session}
	lease, err := e.logs.Claim(ctx, claim)
	if !errors.Is(err, spool.ErrNothingDue) && !errors.Is(err, spool.ErrNotFound) {
		return lease, err
	}
	g, err := e.logs.Log(session)
	if err != nil {
		return spool.Lease{}, err
	}
	head, err := g.Head(ctx)
	if err != nil && !errors.Is(err, spool.ErrNotFound) {
		return spool.Lease{}, err
	}
	if err == nil && (!head.Status.Quiet() || head.Due != 0 && head.Due <= e.logs.Now().UnixMilli()) {
		return spool.Lease{}, spool.ErrBusy.With(session, nil)
	}
	claim.Force = true // nothing is due and nothing runs
	return e.logs.Claim(ctx, claim)
}

func (e *External) open(ctx context.Context, lease spool.Lease, row spool.Row, agentType string) (ExternalRun, error) {
	g, err := e.logs.Log(lease.Session)
	if err != nil {
		return ExternalRun{}, err
	}
	w := g.Writer(lease, spool.WriterOptions{Name: "claim", AgentType: agentType})
	defer w.Close()
	s := &session{lease: lease, log: g, w: w}
	p, err := s.plan(ctx)
	if err != nil && !errors.Is(err, spool.ErrNotFound) {
		return ExternalRun{}, err
	}
	if p.open != nil {
		if err := s.abandon(ctx, p); err != nil {
			return ExternalRun{}, err
		}
		if p, err = s.plan(ctx); err != nil {
			return ExternalRun{}, err
		}
	}
	x := ExternalRun{Session: lease.Session, Epoch: lease.Epoch, TTL: e.ttl,
		RunID: e.logs.NewID(), TurnID: e.logs.NewID(), MessageID: e.logs.NewID()}
	start := &chunk.RunStarted{Mode: chunk.ModeExternal}
	switch {
	case p.work != nil:
		x.TurnID, start.Commands, row.Title = p.work.ID, []string{p.work.ID}, p.title
	case p.paused != nil:
		x.TurnID, x.MessageID = p.paused.ID, p.paused.MessageID
	}
	start.TurnID, start.MessageID = x.TurnID, x.MessageID
	row.Status = chunk.StatusActive
	w.SetRun(x.RunID)
	step := &chunk.StepStarted{StepID: stepID(x.RunID, 1)}
	step.Step = 1
	_, err = w.Commit(ctx, row, nil, start, step)
	return x, err
}

func stepID(run string, n int) string { return run + "-s" + strconv.Itoa(n) }

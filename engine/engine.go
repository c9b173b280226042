// Package engine executes what a claimed session needs, one piece at a time: it plans,
// begins a run or takes one over, runs its phases, pauses it, settles it or hands it over.
// It claims nothing, renews nothing and has no loop, timer, goroutine or clock of its own:
// whatever has claimed the session drives it, as package runner does in a process.
//
//	p, err := e.Plan(ctx)
//	// by p.Next:
//	run, err := e.Begin(ctx, p)   // or Recover; or Settle, Expire, Rest, and plan again
//	for phase := run.Next(); phase != fold.PhaseNone; phase = run.Next() {
//		run.Phase(phase)
//	}
//	over, err := run.End()
//
// All state is in the log. So another process may do each next piece, under a lease of its
// own: see [Run.HandOver].
package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/fold"
)

// CodeExecutorLost is the code of a run that failed because its process was lost. One
// whose producer was lost has [stream.CodeProducerLost].
const CodeExecutorLost = "executor_lost"

// Options say what an engine works on, and how.
type Options struct {
	Logs  *spool.Logs
	Lease spool.Lease  // on the session. The caller renews it, and releases it at the end
	Agent *agent.Agent // of the session. nil: the engine can only plan and settle

	// Seams are the engine's and its agent's clock, ids and goroutines. If Now is nil,
	// all but Ready are those of Logs.
	Seams agent.Seams
	// Background runs what may go on after the session was released: telling providers
	// that nobody waits for their answers. nil: Seams.Go.
	Background func(func())

	// StopGrace is the time that the model and the tools of a stopped run have to
	// return. After it, the run ends without them. 0: 2 s.
	StopGrace time.Duration
	// Linger is how long a delta waits for more of its block before it is appended, at
	// most 50 ms. Deltas that come while an append is under way become one record anyway.
	// Negative: each delta is a record of its own.
	Linger time.Duration
	// FailLost makes runs fail with [CodeExecutorLost] if their owner was lost. The
	// partial answer is kept.
	FailLost bool
	// MaxRecoveries is how many times in a row a run is recovered without completing a
	// step. After that it fails, as with FailLost. 0: 5.
	MaxRecoveries int
	// Hooks are called in every run, after those of its agent.
	Hooks *agent.Hooks
	// Forced says that the session was claimed from an owner that did not obey a stop.
	// An open run is only settled.
	Forced bool

	// MessageID names the assistant message of a session's next turn. If the session has
	// that id already, a number is appended to it; an id that is not valid is replaced by
	// a new one. nil: all ids are new ones.
	MessageID func(session string) string
	Observer  Observer
}

const (
	defaultGrace      = 2 * time.Second
	defaultRecoveries = 5
)

// Observer is told what becomes of runs. Each member may be nil.
type Observer struct {
	agent.Observer // steps, model calls and tool calls

	RunStarted    func(r agent.RunInfo)
	RunRecovered  func(r agent.RunInfo)              // its owner was lost; it goes on here
	RunHandedOver func(r agent.RunInfo)              // the next owner goes on with it
	RunSuspended  func(r agent.RunInfo, kind string) // it waits for answers
	// RunFinished: err says why it failed, and may hold what its log must not.
	RunFinished func(r agent.RunInfo, err error)
}

// Engine is the owner's side of one claimed session. Use it from one goroutine.
type Engine struct {
	o   Options
	log *spool.Log
	w   *spool.Writer
}

// New returns an engine. Close it before the lease is released.
func New(o Options) (*Engine, error) {
	log, err := o.Logs.Log(o.Lease.Session)
	if err != nil {
		return nil, err
	}
	if o.Seams.Now == nil {
		l := o.Logs
		o.Seams = agent.Seams{Now: l.Now, NewID: l.NewID, Go: l.Go, Sleep: l.Sleep, Ready: o.Seams.Ready, Logger: l.Logger()}
	}
	if o.Seams.StoreTime == nil {
		lease := o.Lease
		o.Seams.StoreTime = lease.Time
	}
	if o.StopGrace <= 0 {
		o.StopGrace = defaultGrace
	}
	if o.MaxRecoveries <= 0 {
		o.MaxRecoveries = defaultRecoveries
	}
	if o.Background == nil {
		o.Background = o.Seams.Go
	}
	writer := spool.WriterOptions{Name: "owner", Merge: o.Linger >= 0, Linger: o.Linger}
	switch {
	case o.Forced:
		writer.Name = "stop"
	case o.Agent != nil:
		writer.AgentType = o.Agent.Name
	}
	return &Engine{o: o, log: log, w: log.Writer(o.Lease, writer)}, nil
}

// Close ends the engine. What it has not appended yet is lost.
func (e *Engine) Close() { e.w.Close() }

// agentRun is a run as the agent sees it.
func (e *Engine) agentRun(info agent.RunInfo) *agent.Run {
	return &agent.Run{Info: info, Log: ownLog{e.w, e.log}, Seams: e.o.Seams, Hooks: e.o.Hooks, Observer: &e.o.Observer.Observer, Grace: e.o.StopGrace}
}

// ownLog is a session's log as its owner's runs see it.
type ownLog struct {
	*spool.Writer
	log *spool.Log
}

func (l ownLog) View(ctx context.Context, fn func(*fold.Fold) error) error {
	return l.log.View(ctx, fn)
}

func (l ownLog) Blob(ctx context.Context, ref json.RawMessage) (json.RawMessage, error) {
	return l.log.Blob(ctx, ref)
}

// tell calls a member of the observer that has nothing to say but the run.
func tell(member func(agent.RunInfo), r agent.RunInfo) {
	if member != nil {
		member(r)
	}
}

func (e *Engine) finished(r agent.RunInfo, err error) {
	if e.o.Observer.RunFinished != nil {
		e.o.Observer.RunFinished(r, err)
	}
}

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// How a run's steps end other than by themselves.
var (
	ErrStopped = errors.New("agent: the run was stopped")

	errLeft = errors.New("agent: the run is over")
)

// Drive runs a run's steps until it is done, pauses, fails, reaches a limit of
// time, or ctx ends; then the error is ctx's cause. With goesOn it takes the run
// up where the log has left it. It returns what the run has come to; r must not be
// used after it.
//
// When ctx ends, the model and the tools have r.Grace to come to an end. What goes on
// longer is left behind and can write nothing any more.
func (a *Agent) Drive(ctx context.Context, r *Run, goesOn bool) (Result, RunInfo, error) {
	begun, g := r.Info, &gate{Log: r.Log}
	r.Log = g
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopClock, err := a.limitRun(ctx, r, cancel)
	if err != nil {
		return Result{}, begun, err
	}
	defer stopClock()
	type end struct {
		result Result
		info   RunInfo
		err    error
	}
	done := make(chan end, 1)
	r.Seams.Go(func() {
		result, err := a.drive(ctx, cancel, r, goesOn)
		done <- end{result, r.Info, err}
	})
	var e end
	select {
	case e = <-done:
	case <-ctx.Done():
		var over <-chan time.Time
		if !r.patient() {
			grace := time.NewTimer(r.Grace)
			defer grace.Stop()
			over = grace.C
		}
		select {
		case e = <-done:
		case <-over:
			g.shut()
			return Result{}, begun, context.Cause(ctx)
		}
	}
	if e.err != nil && ctx.Err() != nil {
		e.err = context.Cause(ctx)
	}
	return e.result, e.info, e.err
}

// drive runs steps. A panic of the model fails the run, not the process.
func (a *Agent) drive(ctx context.Context, cancel context.CancelCauseFunc, r *Run, goesOn bool) (result Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = r.crashed(v)
		}
	}()
	defer r.Leave()
	for next := a.Step; ; next = a.Step {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		if goesOn {
			next, goesOn = a.Recover, false
		} else if result, err = r.boundary(ctx); err != nil || result.over() {
			return result, err
		}
		inTime := limit(ctx, r, a.StepTimeout, func() { cancel(LimitStepTime) })
		result, err = next(ctx, r)
		inTime()
		if err != nil || result.over() {
			return result, err
		}
	}
}

// patient reports whether this is a child's run whose parent's run is ending. Then
// it has no grace of its own: the parent's limits both.
func (r *Run) patient() bool {
	return r.alive != nil && r.alive.Err() != nil && !errors.Is(context.Cause(r.alive), errLeft)
}

// over reports whether no step follows.
func (r Result) over() bool { return r.Done || r.Suspended != "" }

// boundary says what a run does between two steps: go on, make room for a message
// that steers it, pause because somebody interrupted it, or end because nothing is
// left of what it may use.
//
// An interrupt is for the companions at work as well: the run pauses when each of
// them has come to a step boundary of its own.
func (r *Run) boundary(ctx context.Context) (result Result, err error) {
	var steered, interrupted bool
	if r.parent == nil {
		err = r.Log.View(ctx, func(f *fold.Fold) error {
			steered, interrupted = f.Boundary()
			return nil
		})
	} else {
		interrupted = r.parent.crew.pauses()
	}
	spent := r.limit()
	switch {
	case err != nil:
	case steered:
		result = Result{Done: true, Outcome: chunk.OutcomeSteered, FinishReason: "other"}
	case interrupted:
		result = Result{Suspended: chunk.SuspendedInterrupted}
		if r.crew != nil {
			err = r.crew.pause()
		}
	case spent != nil:
		result = spent.reached()
	}
	return result, err
}

// limitRun cancels a run when its time is up. The time counts from the log's
// run_started, by any owner, and includes the runs before its pauses.
func (a *Agent) limitRun(ctx context.Context, r *Run, cancel context.CancelCauseFunc) (stop func(), err error) {
	if a.RunTimeout <= 0 {
		return func() {}, nil
	}
	left := a.RunTimeout
	err = r.Log.View(ctx, func(f *fold.Fold) error {
		left = max(left-f.Spent(r.Seams.Now()), 1)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return limit(ctx, r, left, func() { cancel(LimitRunTime) }), nil
}

// limit calls fn after d unless stop is called before; with a d of 0 it does nothing.
// Time is measured by the run's seams.
func limit(ctx context.Context, r *Run, d time.Duration, fn func()) (stop func()) {
	if d <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	r.Seams.Go(func() {
		defer close(done)
		if r.Seams.Sleep(ctx, d) == nil {
			fn()
		}
	})
	return func() { cancel(); <-done }
}

// hookLimit is how long the hooks of a run's end may take, unless somebody waits
// for it.
const hookLimit = 30 * time.Second

// Conclude calls the hooks of a run's end and returns the run's last record. result
// and err are what [Agent.Drive] returned. r is a run with the Info that Drive
// returned and a log that takes records; afterwards its Info says how the run ended.
// Conclude fails if the log takes no more.
func (a *Agent) Conclude(ctx context.Context, r *Run, result Result, err error) (*chunk.RunFinished, error) {
	i, failure := &r.Info, chunk.ErrorInfo{Code: result.Code}
	i.Outcome, i.FinishReason = result.Outcome, result.FinishReason
	reached, _ := errors.AsType[*Limit](err)
	switch {
	case err == nil:
	case errors.Is(err, ErrStopped):
		i.Outcome, i.FinishReason = chunk.OutcomeStopped, "other"
	case reached != nil:
		i.Outcome, i.FinishReason, failure.Code = chunk.OutcomeLimit, "length", reached.Code
	case errors.Is(err, spool.ErrSuperseded), errors.Is(err, spool.ErrClosed), errors.Is(err, spool.ErrUnavailable):
		return nil, err
	default:
		i.Outcome, i.FinishReason = chunk.OutcomeFailed, "error"
		failure = Describe(err)
	}
	i.Code = failure.Code
	over := RunEnd{Outcome: i.Outcome, FinishReason: i.FinishReason, Code: i.Code}
	if i.Outcome == chunk.OutcomeFailed {
		over.Err = err
	}
	a.AfterRun(ctx, r, over)
	end := a.Finish(ctx, *i)
	end.Error, end.Code, end.Recoverable = failure.Error, failure.Code, failure.Recoverable
	return end, nil
}

// AfterRun calls the hooks of a run that is over or pauses. It waits for them and for
// what they append, but not for ever; r must not be used after it.
func (a *Agent) AfterRun(ctx context.Context, r *Run, e RunEnd) {
	after := func(k *Hooks) func(HookContext) error {
		if k.AfterRun == nil {
			return nil
		}
		return func(h HookContext) error { k.AfterRun(h, e); return nil }
	}
	s := &step{agent: a, run: r, number: r.Info.Steps}
	if len(s.hooks()) == 0 {
		return
	}
	g := &gate{Log: r.Log}
	r.Log = g
	patience := hookLimit
	if e.Outcome == chunk.OutcomeStopped {
		patience = r.Grace
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(chan error, 1)
	r.Seams.Go(func() {
		done <- errors.Join(s.callHooks(ctx, nil, ownerPhase, "AfterRun", after), g.Flush(ctx))
	})
	select {
	case err := <-done:
		if err == nil {
			return
		}
	case <-ctx.Done():
	}
	g.shut() // a hook that ignores its context is left behind
	if log := r.Seams.Logger; log != nil {
		log.Warn("AfterRun hooks failed", "session", r.Info.Session, "run", r.Info.RunID)
	}
}

// gate is a run's way to its log. Once it is shut, what the run has left behind can
// write nothing.
type gate struct {
	Log
	mu     sync.RWMutex
	closed bool
}

func (g *gate) Append(ctx context.Context, chunks ...chunk.Chunk) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return errLeft
	}
	return g.Log.Append(ctx, chunks...)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

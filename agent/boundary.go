package agent

import (
	"context"
	"errors"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// patient reports whether this is a child's run whose parent's run is ending. Then
// it has no grace of its own: the parent's limits both.
func (r *Run) patient() bool {
	return r.alive != nil && r.alive.Err() != nil && !errors.Is(context.Cause(r.alive), errLeft)
}

// Over reports whether no phase follows.
func (r Result) Over() bool { return r.Done || r.Suspended != "" }

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

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

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
	ctx, cancel := r.Seams.within(ctx, patience, context.DeadlineExceeded)
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

package engine

import (
	"cmp"
	"context"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// What ends a run's phases, other than the run itself.
var (
	errSteered = errors.New("engine: steered") // a message is to take the run's place
	errLeft    = errors.New("engine: the run is over")
)

// Run is an open run of the engine's session. Use it from one goroutine. It reads the
// session's commands while it lives, so that a stop cancels a phase in its middle.
type Run struct {
	e      *Engine
	ctx    context.Context // as long as the session is ours
	info   agent.RunInfo
	seq    uint64 // of the plan's fold
	seen   uint64 // commands after it are for this run
	goesOn bool   // another owner, or the turn's last run, has left it in the middle

	driver *agent.Driver // nil until the first phase, and after the last
	leave  func()        // ends the reading of commands

	over   bool // no phase follows: result and err say why
	result agent.Result
	err    error
}

// run returns an open run. from is the sequence from which on commands count for a run that
// goes on where the log has left it; 0: it begins.
func (e *Engine) run(ctx context.Context, p *Plan, info agent.RunInfo, from uint64) *Run {
	r := &Run{e: e, ctx: ctx, info: info, seq: p.seq, seen: cmp.Or(from, p.seq), goesOn: from > 0}
	if p.stop {
		r.over, r.err = true, agent.ErrStopped
	}
	return r
}

// Next returns the phase that comes next, or [fold.PhaseNone] if the run is to be ended.
// At this point the run can be handed over instead.
func (r *Run) Next() fold.Phase {
	if r.over || !r.drives() {
		return fold.PhaseNone
	}
	phase, result, err := r.driver.Next()
	if phase == fold.PhaseNone {
		r.came(result, err, true)
	}
	return phase
}

// Phase runs the phase that Next has returned, to its end.
func (r *Run) Phase(phase fold.Phase) {
	if phase == fold.PhaseModel {
		r.ModelPhase()
	} else {
		r.ToolPhase()
	}
}

// ModelPhase asks the model, and stores its answer as it comes. Call it when Next says so.
func (r *Run) ModelPhase() {
	result, err := r.driver.ModelPhase()
	r.came(result, err, false)
}

// ToolPhase makes the calls that the model has asked for, and commits the step. Call it
// when Next says so.
func (r *Run) ToolPhase() {
	result, err := r.driver.ToolPhase()
	r.came(result, err, false)
}

// came notes what the run has come to.
func (r *Run) came(result agent.Result, err error, over bool) {
	if over || err != nil || result.Over() {
		r.over, r.result, r.err = true, result, err
	}
}

// drives makes sure that the run has a driver.
func (r *Run) drives() bool {
	if r.driver != nil {
		return true
	}
	ctx, cancel := context.WithCancelCause(r.ctx)
	run := r.e.agentRun(r.info)
	driver, err := r.e.o.Agent.Driver(ctx, run, r.goesOn)
	if err != nil {
		cancel(errLeft)
		r.came(agent.Result{}, err, true)
		return false
	}
	watched, seen := make(chan struct{}), r.seen
	r.e.o.Seams.Go(func() {
		defer close(watched)
		r.e.watch(ctx, seen, cancel, run)
	})
	r.driver, r.leave = driver, func() { cancel(errLeft); <-watched }
	return true
}

// leaves ends the driver, if there is one.
func (r *Run) leaves() {
	if r.driver != nil {
		r.info = r.driver.Leave()
		r.leave()
		r.driver = nil
	}
}

// HandOver leaves the run to the session's next owner, between two phases. The caller
// releases the lease then. The next owner continues the run without a notice, and that
// does not count as a recovery. HandOver does nothing and returns false if somebody is at
// work who would be cut off, or if the rest of the run is not worth another owner: no
// calls are to be made, and no model is to be asked.
func (r *Run) HandOver() (bool, error) {
	phase := r.Next()
	if phase == fold.PhaseNone || phase == fold.PhaseTools && !r.driver.Calls() || !r.driver.Alone() {
		return false, nil
	}
	r.leaves()
	if r.ctx.Err() != nil {
		return false, context.Cause(r.ctx)
	}
	return r.handOver(r.ctx)
}

// HandOverAnswer is [Run.HandOver] of a run that was cut off in the middle of a model phase,
// for an answer that the provider goes on with by itself: the next owner takes it up. The
// run's own context has ended then; ctx is for what is written. It does nothing and returns
// false if the next owner would have to ask the model again.
func (r *Run) HandOverAnswer(ctx context.Context) (bool, error) {
	if r.driver == nil || !r.driver.Alone() {
		return false, nil
	}
	r.leaves()
	resumes := false
	err := r.e.log.View(ctx, func(f *fold.Fold) error {
		resumes = r.e.o.Agent.Resumes(f)
		return nil
	})
	if err != nil || !resumes {
		return false, err
	}
	return r.handOver(ctx)
}

// handOver writes that the run is handed over.
func (r *Run) handOver(ctx context.Context) (bool, error) {
	r.e.w.SetStep(0)
	_, err := r.e.w.Commit(ctx, spool.Row{}, nil, &chunk.ExecutorHandedOver{Epoch: r.e.o.Lease.Epoch})
	r.e.w.SetRun("")
	if err == nil {
		tell(r.e.o.Observer.RunHandedOver, r.info)
	}
	return err == nil, err
}

// End pauses the run, or settles it. It returns false if the run goes on, since all that
// it would wait for was answered meanwhile: then Next says how. It fails with the cause if
// the run's context has ended: the session is not ours any more, and nothing is written.
func (r *Run) End() (over bool, err error) {
	r.leaves()
	if r.err == nil && r.result.Suspended != "" && r.ctx.Err() == nil {
		if r.err = r.pause(); r.err == nil {
			return true, nil
		}
		if errors.Is(r.err, agent.ErrAnswered) {
			r.over, r.result, r.err = false, agent.Result{}, nil
			r.goesOn, r.seen = true, max(r.seen, r.seq) // the open step is taken up as it stands
			return false, nil
		}
	}
	if r.ctx.Err() != nil {
		return false, context.Cause(r.ctx)
	}
	if errors.Is(r.err, errSteered) {
		r.result, r.err = agent.Result{Outcome: chunk.OutcomeSteered, FinishReason: "other"}, nil
	}
	run := r.e.agentRun(r.info)
	end, lost := r.e.o.Agent.Conclude(r.ctx, run, r.result, r.err)
	if lost == nil {
		lost = r.e.settle(r.ctx, run.Info, end)
	}
	if lost != nil {
		return false, lost
	}
	if end.Outcome != chunk.OutcomeFailed {
		r.err = nil
	}
	r.e.finished(run.Info, r.err)
	return true, nil
}

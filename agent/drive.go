package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/spool-run/spool/fold"
)

// How a run's steps end other than by themselves.
var (
	ErrStopped = errors.New("agent: the run was stopped")

	errLeft = errors.New("agent: the run is over")
)

// Drive runs a run's phases until it is done, pauses, fails, reaches a limit of
// time, or ctx ends; then the error is ctx's cause. It returns what the run has come to.
// See [Agent.Driver] for the rest.
func (a *Agent) Drive(ctx context.Context, r *Run, goesOn bool) (Result, RunInfo, error) {
	d, err := a.Driver(ctx, r, goesOn)
	if err != nil {
		return Result{}, r.Info, err
	}
	result, err := d.all()
	return result, d.Leave(), err
}

func (d *Driver) all() (Result, error) {
	for {
		phase, result, err := d.Next()
		switch phase {
		case fold.PhaseModel:
			result, err = d.ModelPhase()
		case fold.PhaseTools:
			result, err = d.ToolPhase()
		default:
			return result, err
		}
		if err != nil || result.Over() {
			return result, err
		}
	}
}

// Driver runs a run's phases, one call a phase. Use it from one goroutine, and leave it.
//
// When its context ends, the model and the tools have [Run.Grace] to come to an end. What
// goes on longer is left behind and can write nothing any more.
type Driver struct {
	agent *Agent
	run   *Run
	gate  *gate

	ctx       context.Context // as long as the run is driven here
	cancel    context.CancelCauseFunc
	stopClock func()        // of the run's limit,
	stopStep  func()        // and of the step's; nil between steps
	overdue   chan struct{} // closed when the grace is over; nil: it has not begun
	stopGrace func()        // ends its timer

	info   RunInfo // as of the last phase that came back
	goesOn bool    // where the log has left the run is not known yet
	resume bool    // it is in a model phase whose answer can be heard again
	late   bool    // the tool phase is another process's or run's
	step   *step   // whose tool phase comes next
	left   bool    // something was left behind
}

// Driver returns a driver of a run, which lives until ctx ends. With goesOn it takes the
// run up where the log has left it: a tool phase is finished, and a model phase continues
// with the answer that was asked for, if the model is a [model.Resumer] and the log names
// the answer. Otherwise [Agent.TakeOver] must have discarded what the phase has shown; with
// [Agent.FailPartial] it has not, and the error is [ErrLost]. r must not be used after the
// driver was left.
func (a *Agent) Driver(ctx context.Context, r *Run, goesOn bool) (*Driver, error) {
	d := &Driver{agent: a, run: r, gate: &gate{Log: r.Log}, info: r.Info, goesOn: goesOn}
	r.Log = d.gate
	d.ctx, d.cancel = context.WithCancelCause(ctx)
	var err error
	if d.stopClock, err = a.limitRun(d.ctx, r, d.cancel); err != nil {
		d.cancel(nil)
		return nil, err
	}
	return d, nil
}

// Next returns the phase that comes next. It is [fold.PhaseNone] if none does: the run is
// done or pauses, as the result says, or the error says what ends it. Between two steps
// Next is where the run makes room for a message that steers it, and where it pauses for
// an interrupt.
func (d *Driver) Next() (phase fold.Phase, result Result, err error) {
	switch {
	case d.ctx.Err() != nil:
		return fold.PhaseNone, Result{}, context.Cause(d.ctx)
	case d.step != nil:
		return fold.PhaseTools, Result{}, nil
	case d.resume:
		return fold.PhaseModel, Result{}, nil
	}
	var next fold.Phase
	result, err = d.guard(func() (result Result, err error) {
		next, result, err = d.look()
		return result, err
	})
	if err != nil {
		return fold.PhaseNone, Result{}, err
	}
	return next, result, nil
}

// look finds out which phase comes next.
func (d *Driver) look() (fold.Phase, Result, error) {
	if !d.goesOn {
		return d.boundary()
	}
	d.goesOn = false
	a, r := d.agent, d.run
	if err := r.Log.Flush(d.ctx); err != nil {
		return fold.PhaseNone, Result{}, err
	}
	if err := a.begin(d.ctx, r); err != nil {
		return fold.PhaseNone, Result{}, err
	}
	err := r.Log.View(d.ctx, func(f *fold.Fold) error {
		d.resume = a.Resumes(f)
		return nil
	})
	if err != nil || d.resume {
		return fold.PhaseModel, Result{}, err
	}
	return d.stand()
}

// boundary decides between two steps whether another one follows.
func (d *Driver) boundary() (fold.Phase, Result, error) {
	result, err := d.run.boundary(d.ctx)
	if err != nil || result.Over() {
		return fold.PhaseNone, result, err
	}
	return fold.PhaseModel, Result{}, nil
}

// ModelPhase runs the next step's model phase. The step's tool phase follows, unless the
// result is done or suspended. An error leaves the step open.
func (d *Driver) ModelPhase() (Result, error) {
	d.limitStep()
	result, err := d.guard(d.modelPhase)
	if err != nil || d.step == nil {
		d.endStep()
	}
	return result, err
}

func (d *Driver) modelPhase() (Result, error) {
	a, r := d.agent, d.run
	if d.resume {
		d.resume = false
		s, err := a.reattach(d.ctx, r)
		if err != nil || s != nil {
			d.step = s
			return Result{}, err
		}
		if phase, result, err := d.stand(); phase != fold.PhaseModel {
			return result, err
		}
	}
	if err := a.begin(d.ctx, r); err != nil {
		return Result{}, err
	}
	s, result, err := a.modelPhase(d.ctx, r)
	if d.step = s; s != nil {
		return Result{}, nil
	}
	return a.join(d.ctx, r, result, err)
}

// ToolPhase runs the tool phase of the step whose model phase is over, and commits the
// step, or leaves it open because somebody must answer first. An error leaves it open,
// too.
func (d *Driver) ToolPhase() (Result, error) {
	s, late := d.step, d.late
	d.step, d.late = nil, false
	d.limitStep()
	defer d.endStep()
	return d.guard(func() (Result, error) {
		if late && d.run.begun == "" {
			if err := s.beforeRun(d.ctx, ownerRun); err != nil {
				return Result{}, err
			}
		}
		result, err := s.toolPhase(d.ctx)
		return d.agent.join(d.ctx, d.run, result, err)
	})
}

// Calls reports whether the tool phase that comes next has calls to make.
func (d *Driver) Calls() bool {
	return d.step != nil && slices.ContainsFunc(d.step.calls, func(c *call) bool {
		return !c.providerExecuted && (c.part == nil || !c.part.State.Done())
	})
}

// Alone reports whether no companion of the run is at work.
func (d *Driver) Alone() bool { return d.run.crew == nil || d.run.crew.idle() }

// Leave ends what the run's companions do, waits for that as for a phase, and returns what
// is known of the run.
func (d *Driver) Leave() RunInfo {
	d.endStep()
	if !d.left {
		_, _ = d.await(func() (Result, error) { d.run.leave(); return Result{}, nil })
	}
	d.stopClock()
	d.cancel(nil)
	if d.stopGrace != nil {
		d.stopGrace()
	}
	return d.info
}

// guard runs a phase, unless the run is to end.
func (d *Driver) guard(phase func() (Result, error)) (Result, error) {
	if d.ctx.Err() != nil {
		return Result{}, context.Cause(d.ctx)
	}
	return d.await(phase)
}

// await runs fn. Once the run's context has ended, it waits for the grace at most.
func (d *Driver) await(fn func() (Result, error)) (Result, error) {
	type end struct {
		result Result
		info   RunInfo
		err    error
	}
	done := make(chan end, 1)
	d.run.Seams.Go(func() {
		result, err := d.contain(fn)
		done <- end{result, d.run.Info, err}
	})
	var e end
	select {
	case e = <-done:
	case <-d.ctx.Done():
		select {
		case e = <-done:
		case <-d.grace():
			d.gate.shut()
			d.left = true
			return Result{}, context.Cause(d.ctx)
		}
	}
	d.info = e.info
	if e.err != nil && d.ctx.Err() != nil {
		e.err = context.Cause(d.ctx)
	}
	return e.result, e.err
}

// contain runs fn. A panic of the model fails the run, not the process.
func (d *Driver) contain(fn func() (Result, error)) (result Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = d.run.crashed(v)
		}
	}()
	return fn()
}

// grace returns a channel that is closed when the run's grace is over. It begins with the
// first call.
func (d *Driver) grace() <-chan struct{} {
	if d.overdue == nil && !d.run.patient() {
		ctx, stop := context.WithCancel(context.WithoutCancel(d.ctx))
		d.overdue, d.stopGrace = make(chan struct{}), stop
		over, s, grace := d.overdue, d.run.Seams, d.run.Grace
		s.Go(func() {
			if s.Sleep(ctx, grace) == nil {
				close(over)
			}
		})
	}
	return d.overdue
}

// limitStep begins the time of a step, unless it has begun.
func (d *Driver) limitStep() {
	if d.stopStep == nil {
		d.stopStep = limit(d.ctx, d.run, d.agent.StepTimeout, func() { d.cancel(LimitStepTime) })
	}
}

func (d *Driver) endStep() {
	if d.stopStep != nil {
		d.stopStep()
		d.stopStep = nil
	}
}

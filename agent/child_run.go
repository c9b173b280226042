package agent

import (
	"context"
	"errors"
	"time"

	"github.com/spool-run/spool"
)

// childGrace is what the model and the tools of a child that has run out of time
// get to come to an end.
const childGrace = 2 * time.Second

// execute brings one run to its end, or to its next pause.
func (c *child) execute(alive, late context.Context, p childPlan) error {
	if p.begin {
		p.first = append([]spool.Chunk{c.agent.Start(alive, p.info, p.commands)}, p.first...)
	}
	for _, chunk := range p.first {
		chunk.ChunkBase().RunID = p.info.RunID
	}
	err := c.log.Append(alive, p.first...)
	if err == nil {
		err = c.log.Flush(alive)
	}
	if err != nil {
		return err
	}
	run := &Run{Info: p.info, Log: c.log, Seams: c.parent.Seams, Hooks: c.parent.Hooks, Inherited: c.inherited, Observer: c.parent.Observer, maxDepth: c.parent.maxDepth, root: c.parent.top()}
	result, info := Result{}, p.info
	err = errChildStopped
	if !p.over {
		result, info, err = c.steps(alive, late, run, p.goesOn)
	}
	if err == nil && result.Suspended != "" {
		c.afterRun(alive, info, RunEnd{Suspended: result.Suspended})
		err = c.suspend(alive, info, result)
		if err == nil || errors.Is(err, errChildAnswered) { // what it does next is in the log
			return nil
		}
	}
	if alive.Err() != nil {
		return context.Cause(alive) // whoever settles the parent's run settles the child's
	}
	info.Outcome, info.FinishReason = result.Outcome, result.FinishReason
	failure := spool.ErrorInfo{Code: result.Code}
	limit, _ := errors.AsType[*Limit](err)
	switch {
	case err == nil:
	case errors.Is(err, spool.ErrSuperseded), errors.Is(err, spool.ErrClosed), errors.Is(err, spool.ErrUnavailable):
		return err
	case limit != nil:
		info.Outcome, info.FinishReason, failure.Code = spool.OutcomeLimit, "length", limit.Code
	case errors.Is(err, errChildStopped), late.Err() != nil:
		info.Outcome, info.FinishReason = spool.OutcomeStopped, "other"
	default:
		info.Outcome, info.FinishReason = spool.OutcomeFailed, "error"
		failure = Describe(err)
		c.parent.failed("a sub-agent failed", info, failure, err)
	}
	over := RunEnd{Outcome: info.Outcome, FinishReason: info.FinishReason, Code: failure.Code}
	if info.Outcome == spool.OutcomeFailed {
		over.Err = err
	}
	c.afterRun(alive, info, over)
	end := c.agent.Finish(alive, info)
	end.Error, end.Code, end.Recoverable = failure.Error, failure.Code, failure.Recoverable
	return c.settle(alive, end)
}

// afterRun calls the hooks that end a run. They get as long as a child does that
// is stopped.
func (c *child) afterRun(ctx context.Context, info RunInfo, e RunEnd) {
	run := &Run{Info: info, Log: c.log, Seams: c.parent.Seams, Hooks: c.parent.Hooks, Inherited: c.inherited}
	if run.Hooks == nil && c.agent.Hooks == nil && len(run.Inherited) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, childGrace)
	defer cancel()
	done := make(chan error, 1)
	run.Seams.Go(func() { done <- c.agent.AfterRun(ctx, run, e) })
	select {
	case err := <-done:
		if err == nil {
			return
		}
	case <-ctx.Done():
	}
	c.leave() // a hook that ignores its context
	if log := run.Seams.Logger; log != nil {
		log.Warn("the hooks of a child's end failed", "session", c.session, "run", info.RunID)
	}
}

// leave shuts the log on what ignores its context.
func (c *child) leave() {
	c.log.shut()
	c.log = &childLog{Log: c.log.Log, session: c.session, agentType: c.agent.Name}
}

// settle ends the open run as the fold says.
func (c *child) settle(ctx context.Context, end *spool.RunFinished) error {
	if err := c.log.Flush(ctx); err != nil {
		return err
	}
	why := end.Error
	if why == "" {
		why = "the run was " + string(end.Outcome)
		if end.Outcome == spool.OutcomeLimit {
			why = "the run reached its limit"
		}
	}
	var (
		chunks []spool.Chunk
		answer string
	)
	err := c.log.View(ctx, func(f *spool.Fold) error {
		chunks, answer = f.Unsettled(why), f.Answer()
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.log.Append(ctx, append(chunks, end)...); err != nil {
		return err
	}
	_ = c.agent.Abandon(ctx, answer) // nobody waits for it any more
	return c.log.Flush(ctx)
}

// suspend pauses the open run, unless it was asked to end.
func (c *child) suspend(ctx context.Context, info RunInfo, result Result) error {
	var expires int64
	if c.agent.WaitLimit > 0 {
		expires = c.parent.Seams.Now().Add(c.agent.WaitLimit).UnixMilli()
	}
	var chunks []spool.Chunk
	err := c.log.View(ctx, func(f *spool.Fold) error {
		if f.Stop != nil {
			return errChildStopped
		}
		if result = Missing(f, result); len(result.Waiting)+len(result.Children) == 0 {
			return errChildAnswered
		}
		chunks = Suspension(f, result, expires)
		return nil
	})
	if err != nil {
		return err
	}
	for _, chunk := range chunks {
		chunk.ChunkBase().RunID = info.RunID
	}
	if err := c.log.Append(ctx, chunks...); err != nil {
		return err
	}
	return c.log.Flush(ctx)
}

// steps runs the child's steps until it is done, waits, fails or is stopped.
func (c *child) steps(alive, late context.Context, run *Run, goesOn bool) (Result, RunInfo, error) {
	type end struct {
		result Result
		info   RunInfo
		err    error
	}
	begun := run.Info
	timed, cancel := context.WithCancelCause(late)
	defer cancel(nil)
	defer run.top().stops.enter(c.session, cancel)()
	stopClock, err := c.limitRun(timed, cancel)
	if err != nil {
		return Result{}, begun, err
	}
	defer stopClock()
	done := make(chan end, 1)
	run.Seams.Go(func() {
		result, err := c.drive(timed, cancel, run, goesOn)
		done <- end{result, run.Info, err}
	})
	var e end
	select {
	case e = <-done:
	case <-timed.Done():
		if alive.Err() != nil && !errors.Is(context.Cause(alive), errChildLeft) { // how long that may take is the parent's business
			e = <-done
			break
		}
		grace := time.NewTimer(childGrace)
		defer grace.Stop()
		select {
		case e = <-done:
		case <-grace.C:
			c.leave()
			return Result{}, begun, context.Cause(timed)
		}
	}
	if e.err != nil && timed.Err() != nil {
		e.err = context.Cause(timed)
	}
	return e.result, e.info, e.err
}

// limitRun ends the child's run when its time is up, which counts as for a run
// of its own.
func (c *child) limitRun(ctx context.Context, cancel context.CancelCauseFunc) (stop func(), err error) {
	left := c.agent.RunTimeout
	if left <= 0 {
		return func() {}, nil
	}
	err = c.log.View(ctx, func(f *spool.Fold) error {
		left -= f.Spent(c.parent.Seams.Now())
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c.alarm(ctx, max(left, 0), func() { cancel(LimitRunTime) }), nil
}

// alarm calls fn after d unless stop was called.
func (c *child) alarm(ctx context.Context, d time.Duration, fn func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	c.parent.Seams.Go(func() {
		defer close(done)
		if d == 0 || c.parent.Seams.Sleep(ctx, d) == nil {
			fn()
		}
	})
	return func() { cancel(); <-done }
}

// drive runs steps. A panic of the model fails the child, not the process.
func (c *child) drive(ctx context.Context, cancel context.CancelCauseFunc, run *Run, goesOn bool) (result Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = run.Panicked(v)
		}
	}()
	defer run.Leave()
	next := c.agent.Step
	if goesOn {
		next = c.agent.Recover
	}
	for {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		err := c.log.View(ctx, func(f *spool.Fold) error {
			if f.Stop != nil {
				return errChildStopped
			}
			return nil
		})
		if err != nil {
			return Result{}, err
		}
		over := func() {}
		if c.agent.StepTimeout > 0 {
			over = c.alarm(ctx, c.agent.StepTimeout, func() { cancel(LimitStepTime) })
		}
		result, err = next(ctx, run)
		over()
		if err != nil || result.Done || result.Suspended != "" {
			return result, err
		}
		next = c.agent.Step
	}
}

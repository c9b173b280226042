package agent

import (
	"context"
	"errors"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// run returns a run of the child's.
func (c *child) run(alive context.Context, info RunInfo) *Run {
	p := c.parent
	return &Run{Info: info, Log: c.log, Seams: p.Seams, Hooks: p.Hooks, Inherited: c.inherited, Observer: p.Observer, Grace: p.Grace,
		maxDepth: p.maxDepth, parent: p, alive: alive}
}

// begin writes what a plan wants to be written before anything else.
func (c *child) begin(ctx context.Context, p childPlan) error {
	if p.begin {
		p.first = append([]chunk.Chunk{c.agent.Start(ctx, p.info, p.commands)}, p.first...)
	}
	return c.write(ctx, p.info, p.first...)
}

// execute brings one run to its end, or to its next pause.
func (c *child) execute(alive, late context.Context, p childPlan) error {
	if err := c.begin(alive, p); err != nil {
		return err
	}
	result, info, err := Result{}, p.info, ErrStopped
	if !p.over {
		result, info, err = c.steps(alive, late, c.run(alive, p.info), p.goesOn)
	}
	if err == nil && result.Suspended != "" {
		c.agent.AfterRun(alive, c.run(alive, info), RunEnd{Suspended: result.Suspended})
		err = c.suspend(alive, info, result)
		if err == nil || errors.Is(err, ErrAnswered) { // what it does next is in the log
			return nil
		}
	}
	if alive.Err() != nil {
		return context.Cause(alive) // what settles the parent's run settles the child's
	}
	if errors.Is(err, errTimeout) {
		err = ErrStopped // and the call says why
	}
	run := c.run(alive, info)
	end, lost := c.agent.Conclude(alive, run, result, err)
	if lost != nil {
		return lost
	}
	if end.Outcome == chunk.OutcomeFailed {
		c.parent.failed("a sub-agent failed", run.Info, err)
	}
	return c.settle(alive, end)
}

// write appends a run's chunks and waits until they are committed.
func (c *child) write(ctx context.Context, info RunInfo, chunks ...chunk.Chunk) error {
	for _, c := range chunks {
		c.ChunkBase().RunID = info.RunID
	}
	if err := c.log.Append(ctx, chunks...); err != nil {
		return err
	}
	return c.log.Flush(ctx)
}

// settle ends the open run as the fold says.
func (c *child) settle(ctx context.Context, end *chunk.RunFinished) error {
	if err := c.log.Flush(ctx); err != nil {
		return err
	}
	var (
		chunks []chunk.Chunk
		answer string
	)
	err := c.log.View(ctx, func(f *fold.Fold) error {
		chunks, answer = f.Owed().Settle(end), f.Answer()
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.log.Append(ctx, chunks...); err != nil {
		return err
	}
	_ = c.agent.Abandon(ctx, c.parent.Seams, answer) // nobody waits for it any more
	return c.log.Flush(ctx)
}

// suspend pauses the open run, unless it was asked to end.
func (c *child) suspend(ctx context.Context, info RunInfo, result Result) error {
	var expires int64
	if c.agent.WaitLimit > 0 {
		expires = c.parent.Seams.StoreTime() + c.agent.WaitLimit.Milliseconds()
	}
	var chunks []chunk.Chunk
	err := c.log.View(ctx, func(f *fold.Fold) (err error) {
		if f.Stop != nil {
			return ErrStopped
		}
		chunks, err = Suspension(f, result, expires)
		return err
	})
	if err != nil {
		return err
	}
	return c.write(ctx, info, chunks...)
}

// steps runs the child's steps until it is done, waits, fails or is stopped.
func (c *child) steps(alive, late context.Context, run *Run, goesOn bool) (Result, RunInfo, error) {
	ctx, cancel := context.WithCancelCause(late)
	defer cancel(nil)
	defer run.top().stops.enter(c.session, cancel)()
	err := c.log.View(alive, func(f *fold.Fold) error {
		if f.Stop != nil { // from before
			return ErrStopped
		}
		return nil
	})
	if err != nil {
		return Result{}, run.Info, err
	}
	return c.agent.Drive(ctx, run, goesOn)
}

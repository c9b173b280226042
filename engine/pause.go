package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// pause suspends a run, unless all that it would wait for was answered meanwhile. A
// paused run exists in the log only.
func (r *Run) pause() error {
	e, ctx, result := r.e, r.ctx, r.result
	err := e.log.View(ctx, func(f *fold.Fold) error {
		_, err := agent.Suspension(f, result, 0)
		return err
	})
	if err != nil {
		return err
	}
	e.o.Agent.AfterRun(ctx, e.agentRun(r.info), agent.RunEnd{Suspended: result.Suspended})
	return e.suspend(ctx, r.info, result)
}

// suspend fails with agent.ErrStopped or errSteered if something has asked the run
// to end, and with agent.ErrAnswered if all that it would wait for was answered
// meanwhile.
func (e *Engine) suspend(ctx context.Context, info agent.RunInfo, result agent.Result) error {
	var expires int64
	if e.o.Agent.WaitLimit > 0 {
		expires = e.o.Seams.StoreTime() + e.o.Agent.WaitLimit.Milliseconds()
	}
	var (
		chunks []chunk.Chunk
		settle *spool.Settle
	)
	err := e.log.View(ctx, func(f *fold.Fold) (err error) {
		if err := asked(f); err != nil {
			return err
		}
		if chunks, err = agent.Suspension(f, result, expires); err != nil {
			return err
		}
		if result.Suspended == chunk.SuspendedInterrupted {
			if len(f.Waiting) == 0 { // else that is next
				settle = &spool.Settle{Seen: f.Seq}
			}
			return nil
		}
		settle = &spool.Settle{Seen: f.Seq, Next: expires}
		for _, c := range f.PendingCalls() { // of children, too
			if c.Expires != 0 && (settle.Next == 0 || c.Expires < settle.Next) {
				settle.Next = c.Expires
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = e.w.Commit(ctx, spool.Row{Status: chunk.StatusPaused}, settle, chunks...)
	e.w.SetRun("")
	if told := e.o.Observer.RunSuspended; err == nil && told != nil {
		told(info, result.Suspended)
	}
	return err
}

// asked returns agent.ErrStopped or errSteered if something has asked the open run to
// end, else nil. It is looked for last before a run pauses.
func asked(f *fold.Fold) error {
	if f.Stop != nil {
		return agent.ErrStopped
	}
	for _, w := range f.Waiting {
		if w.Seq > f.OpenRun().Start && w.WhenBusy == chunk.BusyInterrupt {
			return agent.ErrStopped
		}
	}
	if steered, _ := f.Boundary(); steered {
		return errSteered
	}
	return nil
}

// watch reads the commands that arrive while a run is open and cancels it, or a
// child of it, when one of them asks for that.
func (e *Engine) watch(ctx context.Context, seen uint64, cancel context.CancelCauseFunc, run *agent.Run) {
	reader := e.log.Reader(spool.ReadOptions{
		After:  spool.Cursor{Seq: seen, Incarnation: e.o.Lease.Head.Incarnation},
		Follow: true,
	})
	look := func() (stop bool, err error) {
		err = e.log.View(ctx, func(f *fold.Fold) error {
			stop = f.Stop != nil
			run.Heed(f)
			for _, w := range f.Waiting {
				stop = stop || w.Seq > seen && w.WhenBusy == chunk.BusyInterrupt
			}
			return nil
		})
		return stop, err
	}
	commands := true // a run that was taken over may have been asked before
	for {
		if commands {
			stop, err := look()
			switch {
			case stop:
				cancel(agent.ErrStopped)
				return
			case ctx.Err() != nil:
				return
			case errors.Is(err, spool.ErrClosed):
				cancel(err)
				return
			case err != nil: // try again; until then no command is seen
				_ = e.o.Seams.Sleep(ctx, time.Second)
				continue
			}
		}
		records, err := reader.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, spool.ErrClosed), errors.Is(err, spool.ErrCursorAhead), errors.Is(err, spool.ErrTrimmed):
			cancel(err)
			return
		case err != nil:
			_ = e.o.Seams.Sleep(ctx, time.Second)
		}
		commands = slices.ContainsFunc(records, func(r chunk.Record) bool { return chunk.IsCommand(r.Type) })
	}
}

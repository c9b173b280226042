package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/engine"
	"github.com/spool-run/spool/fold"
)

// serve does all there is to do in a claimed session and releases it.
func (r *Runner) serve(lease spool.Lease) {
	r.tell.Claimed(lease.Session, waited(lease))
	defer r.tell.Released(lease.Session)
	ctx, release := r.hold(lease)
	err := r.work(ctx, lease)
	if cause := context.Cause(ctx); cause != nil && err != nil {
		err = cause
	}
	release()
	if errors.Is(err, errLeaseLost) && r.superseded(lease) {
		err = spool.ErrSuperseded.With(lease.Session, err)
	}
	if err != nil && !errors.Is(err, errDetached) {
		// The lease is left to expire, so that the session is tried again later and
		// not at once.
		r.failed(lease.Session, err)
		return
	}
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.LeaseTTL)
	defer cancel()
	if err := r.leaser.Release(rctx, lease); err != nil {
		r.failed(lease.Session, err)
	}
}

// superseded reports whether somebody else has claimed a session since.
func (r *Runner) superseded(lease spool.Lease) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.o.LeaseTTL)
	defer cancel()
	h, err := r.logs.Store().Head(ctx, lease.Session)
	return err == nil && h.Epoch > lease.Epoch
}

func (r *Runner) work(ctx context.Context, lease spool.Lease) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("runner: panic: %v\n%s", v, debug.Stack())
		}
	}()
	e, err := r.engine(lease)
	if err != nil {
		return err
	}
	defer e.Close()
	for {
		p, err := e.Plan(ctx)
		if err != nil {
			return err
		}
		if r.draining() && p.Next != engine.Rest && p.Next != engine.Expire {
			return nil // it is still open, or due: somebody else goes on
		}
		done := false
		switch p.Next {
		case engine.Begin:
			done, err = r.execute(ctx, p, e.Begin)
		case engine.Recover:
			done, err = r.execute(ctx, p, e.Recover)
		case engine.Settle:
			err = e.Settle(ctx, p)
		case engine.Expire:
			err = e.Expire(ctx)
		case engine.Rest:
			done, err = e.Rest(ctx, p)
		}
		if err != nil || done {
			return err
		}
	}
}

// engine returns the engine of a claimed session.
func (r *Runner) engine(lease spool.Lease) (*engine.Engine, error) {
	a, err := r.agent(lease.Row.Agent)
	if err != nil {
		return nil, err
	}
	o := engine.Options{Logs: r.logs, Lease: lease, Agent: a, StopGrace: r.o.StopGrace, Linger: r.o.Linger, FailLost: r.o.FailLost, MaxRecoveries: r.o.MaxRecoveries,
		Hooks: r.o.Hooks, MessageID: r.annotations.Load().MessageID, Observer: r.tell.engine(), Background: r.background}
	return engine.New(o)
}

// background runs what Close waits for.
func (r *Runner) background(fn func()) {
	r.wg.Add(1)
	r.logs.Go(func() { defer r.wg.Done(); fn() })
}

// execute opens a run and brings it to its end, to its next pause, or, while the runner
// drains, to a place at which its next owner can continue it.
func (r *Runner) execute(ctx context.Context, p *engine.Plan, open func(context.Context, *engine.Plan) (*engine.Run, error)) (handed bool, err error) {
	run, err := open(ctx, p)
	if err != nil {
		return false, err
	}
	for over := false; !over; {
		for phase := run.Next(); phase != fold.PhaseNone; phase = run.Next() {
			if r.draining() {
				if handed, err = run.HandOver(); handed || err != nil {
					return handed, err
				}
			}
			run.Phase(phase)
		}
		if over, err = run.End(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// hold keeps a lease alive until release is called. The context ends with the runner,
// and when the lease was taken or could not be renewed for two thirds of its time.
// Then nothing more may be started.
func (r *Runner) hold(lease spool.Lease) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	done := make(chan struct{})
	third := r.o.LeaseTTL / 3
	r.logs.Go(func() {
		defer close(done)
		renew, deadline := time.NewTimer(third), time.NewTimer(2*third)
		defer renew.Stop()
		defer deadline.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-deadline.C:
				cancel(errLeaseLost)
				return
			case <-renew.C:
			}
			begun := r.logs.Now()
			rctx, stop := context.WithTimeout(ctx, third)
			err := r.leaser.Renew(rctx, lease)
			stop()
			switch {
			case err == nil:
				deadline.Reset(2*third - r.logs.Now().Sub(begun))
				renew.Reset(third)
			case errors.Is(err, spool.ErrSuperseded):
				cancel(spool.ErrSuperseded)
				return
			default:
				renew.Reset(third / 8)
			}
		}
	})
	return ctx, func() { cancel(errLeft); <-done }
}

package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/engine"
	"github.com/spool-run/spool/fold"
)

// serve does all there is to do in a claimed session and releases it.
func (r *Runner) serve(lease spool.Lease) {
	r.tell.Claimed(lease.Session, waited(lease))
	defer r.tell.Released(lease.Session)
	h, ctx := r.hold(lease)
	err := r.work(ctx, lease, h)
	if cause := context.Cause(ctx); cause != nil && err != nil {
		err = cause
	}
	h.release()
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

func (r *Runner) work(ctx context.Context, lease spool.Lease, h *hold) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("runner: panic: %v\n%s", v, debug.Stack())
		}
	}()
	e, err := r.engine(lease, h)
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
func (r *Runner) engine(lease spool.Lease, h *hold) (*engine.Engine, error) {
	a, err := r.agent(lease.Row.Agent)
	if err != nil {
		return nil, err
	}
	o := engine.Options{Logs: r.logs, Lease: lease, Agent: a, Seams: agent.Seams{Ready: h.ready}, StopGrace: r.o.StopGrace, Linger: r.o.Linger, FailLost: r.o.FailLost, MaxRecoveries: r.o.MaxRecoveries,
		Hooks: r.o.Hooks, MessageID: r.annotations.Load().MessageID, Observer: r.tell.engine(), Background: r.background}
	return engine.New(o)
}

// background runs what Close waits for.
func (r *Runner) background(fn func()) {
	r.wg.Add(1)
	r.logs.Go(func() { defer r.wg.Done(); fn() })
}

// detach leaves a run in the middle of a phase, whose context has ended. It is handed over if
// the provider goes on with the answer, and otherwise recovered by the next owner.
func (r *Runner) detach(ctx context.Context, run *engine.Run) (handed bool, err error) {
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimEnds)
	defer cancel()
	if handed, err = run.HandOverAnswer(left); handed {
		return true, err
	}
	_, err = run.End()
	return false, err
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
			if errors.Is(context.Cause(ctx), errDetached) {
				return r.detach(ctx, run)
			}
		}
		if over, err = run.End(); err != nil {
			return false, err
		}
	}
	return false, nil
}

package runner

import (
	"context"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// agentRun is a run as the agent sees it.
func (s *session) agentRun(info agent.RunInfo, g *gate) *agent.Run {
	l := s.r.logs
	return &agent.Run{Info: info, Log: g, Hooks: s.r.o.Hooks, Observer: &s.r.tell.Observer,
		Seams: agent.Seams{Now: l.Now, NewID: l.NewID, Go: l.Go, Sleep: l.Sleep, Logger: l.Logger()}}
}

// limitRun ends a run when its time is up. The time counts from the log's
// run_started, whoever wrote it, and includes the runs before its pauses.
func (s *session) limitRun(ctx context.Context, cancel context.CancelCauseFunc) (stop func(), err error) {
	left := s.agent.RunTimeout
	if left <= 0 {
		return func() {}, nil
	}
	err = s.log.View(ctx, func(f *spool.Fold) error {
		left -= f.Spent(s.r.logs.Now())
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.r.alarm(ctx, left, func() { cancel(agent.LimitRunTime) }), nil
}

// limitStep ends a run when its step's time is up.
func (r *Runner) limitStep(ctx context.Context, cancel context.CancelCauseFunc, limit time.Duration) (stop func()) {
	if limit <= 0 {
		return func() {}
	}
	return r.alarm(ctx, limit, func() { cancel(agent.LimitStepTime) })
}

// alarm calls fn after d unless stop was called. It is the seam's clock that
// counts.
func (r *Runner) alarm(ctx context.Context, d time.Duration, fn func()) (stop func()) {
	if d <= 0 {
		fn()
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	r.logs.Go(func() {
		defer close(done)
		if r.logs.Sleep(ctx, d) == nil {
			fn()
		}
	})
	return func() { cancel(); <-done }
}

// afterRunLimit is how long the hooks of a run's end may take.
const afterRunLimit = 30 * time.Second

// afterRun calls the hooks that end a run. They may still write.
func (s *session) afterRun(ctx context.Context, info agent.RunInfo, e agent.RunEnd) {
	if s.r.o.Hooks == nil && s.agent.Hooks == nil {
		return
	}
	limit := afterRunLimit
	if e.Outcome == spool.OutcomeStopped {
		limit = s.r.o.StopGrace // somebody waits for it
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	g := &gate{Writer: s.w, log: s.log}
	done := make(chan error, 1)
	s.r.logs.Go(func() { done <- s.agent.AfterRun(ctx, s.agentRun(info, g), e) })
	select {
	case err := <-done:
		if err == nil {
			return
		}
	case <-ctx.Done():
	}
	g.shut() // a hook that ignores its context is left behind
	s.r.logs.Logger().Warn("the hooks of a run's end failed", "session", info.Session, "run", info.RunID)
}

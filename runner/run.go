package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// The modes of runs.
const (
	ModeStart    = "start"
	ModeExternal = "external"
)

// run executes the run that a command opens, to its end.
func (s *session) run(ctx context.Context, p plan) error {
	r, a := s.r, s.agent
	info := agent.RunInfo{
		Session:   s.lease.Session,
		RunID:     r.logs.NewID(),
		TurnID:    p.work.ID,
		MessageID: r.logs.NewID(),
		Mode:      ModeStart,
	}
	s.w.SetRun(info.RunID)
	row := spool.Row{Status: spool.StatusActive, Agent: a.Name, Title: p.title}
	if _, err := s.w.Commit(ctx, row, nil, a.Start(ctx, info, []string{p.work.ID})); err != nil {
		return err
	}
	if r.o.Observer.RunStarted != nil {
		r.o.Observer.RunStarted(info)
	}
	result, err := agent.Result{}, error(errStopped)
	if !p.stop {
		result, err = s.steps(ctx, p, &info)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // not ours any more: not a word
	}
	info.Outcome, info.FinishReason = result.Outcome, result.FinishReason
	var failure spool.ErrorInfo
	switch {
	case err == nil:
	case errors.Is(err, errStopped):
		info.Outcome, info.FinishReason = spool.OutcomeStopped, "other"
	case errors.Is(err, spool.ErrSuperseded), errors.Is(err, spool.ErrClosed), errors.Is(err, spool.ErrUnavailable):
		return err // the log takes no more from us
	default:
		info.Outcome, info.FinishReason = spool.OutcomeFailed, "error"
		failure = agent.Describe(err)
	}
	end := a.Finish(ctx, info)
	end.Error, end.Code, end.Recoverable = failure.Error, failure.Code, failure.Recoverable
	serr := s.settle(ctx, info, end)
	if serr == nil && r.o.Observer.RunFinished != nil {
		if info.Outcome != spool.OutcomeFailed {
			err = nil
		}
		r.o.Observer.RunFinished(info, err)
	}
	return serr
}

// steps runs the agent's steps until it is done, is stopped, or fails.
func (s *session) steps(ctx context.Context, p plan, info *agent.RunInfo) (agent.Result, error) {
	r := s.r
	runCtx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	r.logs.Go(func() {
		defer close(watched)
		s.watch(runCtx, p.seq, cancel)
	})
	defer func() { cancel(errLeft); <-watched }()

	g := &gate{Writer: s.w, log: s.log}
	run := &agent.Run{Info: *info, Log: g, Seams: agent.Seams{Now: r.logs.Now, NewID: r.logs.NewID, Go: r.logs.Go, Sleep: r.logs.Sleep, Logger: r.logs.Logger()}}
	type end struct {
		result agent.Result
		err    error
	}
	done := make(chan end, 1)
	r.logs.Go(func() {
		result, err := r.drive(runCtx, s.agent, run)
		done <- end{result, err}
	})
	var e end
	select {
	case e = <-done:
	case <-runCtx.Done():
		grace := time.NewTimer(r.o.StopGrace)
		defer grace.Stop()
		select {
		case e = <-done:
		case <-grace.C:
			// A model or tool that ignores its context is left behind; it can
			// write nothing any more.
			g.shut()
			return agent.Result{}, context.Cause(runCtx)
		}
	}
	info.Steps, info.Usage = run.Info.Steps, run.Info.Usage
	if e.err != nil && runCtx.Err() != nil {
		e.err = context.Cause(runCtx)
	}
	return e.result, e.err
}

// drive runs steps. A panic of the model fails the run, not the process.
func (r *Runner) drive(ctx context.Context, a *agent.Agent, run *agent.Run) (result agent.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			r.logs.Logger().Error("the agent panicked", "session", run.Info.Session, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("the agent panicked: %v", v)
		}
	}()
	for {
		if ctx.Err() != nil {
			return agent.Result{}, context.Cause(ctx)
		}
		result, err = a.Step(ctx, run)
		if err != nil || result.Done {
			return result, err
		}
	}
}

// watch reads the commands that arrive while a run is open and cancels it when
// one of them asks for that.
func (s *session) watch(ctx context.Context, seen uint64, cancel context.CancelCauseFunc) {
	reader := s.log.Reader(spool.ReadOptions{
		After:  spool.Cursor{Seq: seen, Incarnation: s.lease.Head.Incarnation},
		Follow: true,
	})
	for {
		records, err := reader.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, spool.ErrClosed), errors.Is(err, spool.ErrCursorAhead), errors.Is(err, spool.ErrTrimmed):
			cancel(err)
			return
		case err != nil: // it will pass; until then no command is seen
			_ = s.r.logs.Sleep(ctx, time.Second)
			continue
		}
		commands := false
		for _, rec := range records {
			commands = commands || spool.IsCommand(rec.Type)
		}
		if !commands {
			continue
		}
		stop := false
		err = s.log.View(ctx, func(f *spool.Fold) error {
			stop = f.Stop != nil
			for _, w := range f.Waiting {
				stop = stop || w.Seq > seen && w.WhenBusy == spool.BusyInterrupt
			}
			return nil
		})
		if err == nil && stop {
			cancel(errStopped)
			return
		}
	}
}

// gate is a run's way to its log, which can be shut on it.
type gate struct {
	*spool.Writer
	log *spool.Log

	mu     sync.RWMutex
	closed bool
}

func (g *gate) Append(ctx context.Context, chunks ...spool.Chunk) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return errLeft
	}
	return g.Writer.Append(ctx, chunks...)
}

func (g *gate) View(ctx context.Context, fn func(*spool.Fold) error) error {
	return g.log.View(ctx, fn)
}

func (g *gate) Blob(ctx context.Context, ref json.RawMessage) (json.RawMessage, error) {
	return g.log.Blob(ctx, ref)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// run executes the run that a command opens, to its end.
func (s *session) run(ctx context.Context, p plan) error {
	r, a := s.r, s.agent
	info := agent.RunInfo{
		Session:   s.lease.Session,
		Agent:     s.agent.Name,
		Started:   r.logs.Now(),
		RunID:     r.logs.NewID(),
		TurnID:    p.work.ID,
		MessageID: r.logs.NewID(),
		Mode:      spool.ModeStart,
	}
	if p.work.Mode != "" {
		info.Mode = p.work.Mode
	}
	s.w.SetRun(info.RunID)
	row := spool.Row{Status: spool.StatusActive, Agent: a.Name, Title: p.title}
	chunks := append([]spool.Chunk{a.Start(ctx, info, []string{p.work.ID})}, resumed(p, info.Mode)...)
	if _, err := s.w.Commit(ctx, row, nil, chunks...); err != nil {
		return err
	}
	r.tell.RunStarted(info)
	return s.execute(ctx, p, info, 0)
}

// goOn executes the run that lets a paused turn go on, or that only ends it.
func (s *session) goOn(ctx context.Context, p plan) error {
	r := s.r
	info := agent.RunInfo{
		Session:   s.lease.Session,
		Agent:     s.agent.Name,
		Started:   r.logs.Now(),
		RunID:     r.logs.NewID(),
		TurnID:    p.turn.ID,
		MessageID: p.turn.MessageID,
		Mode:      p.cont.Mode,
	}
	commands := p.answers
	switch p.cont.Mode {
	case spool.ModeStop, spool.ModeContinue:
		commands = append(commands, p.cont.ID)
	case spool.ModeSuperseded: // the message opens a turn of its own
	}
	s.w.SetRun(info.RunID)
	chunks := []spool.Chunk{s.agent.Start(ctx, info, commands)}
	if !p.stop {
		chunks = append(chunks, resumed(p, info.Mode)...)
	}
	row := spool.Row{Status: spool.StatusActive, Agent: s.agent.Name}
	if _, err := s.w.Commit(ctx, row, nil, chunks...); err != nil {
		return err
	}
	r.tell.RunStarted(info)
	return s.execute(ctx, p, info, p.seq)
}

// execute brings an open run to its end or to its next pause. With recovered
// set, the sequence from which on commands count for it, it goes on where the
// log has left it.
func (s *session) execute(ctx context.Context, p plan, info agent.RunInfo, recovered uint64) error {
	r, a := s.r, s.agent
	result, err := agent.Result{}, error(errStopped)
	for again := !p.stop; again; {
		result, err = s.steps(ctx, p, &info, recovered)
		if err == nil && result.Suspended != "" && ctx.Err() == nil {
			if err = s.pause(ctx, info, result); err == nil {
				return nil
			}
		}
		again = errors.Is(err, errAnswered)
		recovered = max(recovered, p.seq) // the open step is taken up as it stands
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // not ours any more: not a word
	}
	info.Outcome, info.FinishReason = result.Outcome, result.FinishReason
	failure := spool.ErrorInfo{Code: result.Code}
	limit, _ := errors.AsType[*agent.Limit](err)
	switch {
	case err == nil:
	case errors.Is(err, errStopped):
		info.Outcome, info.FinishReason = spool.OutcomeStopped, "other"
	case errors.Is(err, errSteered):
		info.Outcome, info.FinishReason = spool.OutcomeSteered, "other"
	case limit != nil:
		info.Outcome, info.FinishReason, failure.Code = spool.OutcomeLimit, "length", limit.Code
	case errors.Is(err, spool.ErrSuperseded), errors.Is(err, spool.ErrClosed), errors.Is(err, spool.ErrUnavailable):
		return err // the log takes no more from us
	default:
		info.Outcome, info.FinishReason = spool.OutcomeFailed, "error"
		failure = agent.Describe(err)
	}
	info.Code = failure.Code
	over := agent.RunEnd{Outcome: info.Outcome, FinishReason: info.FinishReason, Code: failure.Code}
	if info.Outcome == spool.OutcomeFailed {
		over.Err = err
	}
	s.afterRun(ctx, info, over)
	end := a.Finish(ctx, info)
	end.Error, end.Code, end.Recoverable = failure.Error, failure.Code, failure.Recoverable
	serr := s.settle(ctx, info, end)
	if serr == nil {
		if info.Outcome != spool.OutcomeFailed {
			err = nil
		}
		r.tell.RunFinished(info, err)
	}
	return serr
}

// pause suspends a run, unless that has become needless.
func (s *session) pause(ctx context.Context, info agent.RunInfo, result agent.Result) error {
	if result.Suspended == spool.SuspendedInterrupted {
		s.afterRun(ctx, info, agent.RunEnd{Suspended: result.Suspended})
		return s.interrupt(ctx, info)
	}
	err := s.log.View(ctx, func(f *spool.Fold) error {
		if result = agent.Missing(f, result); len(result.Waiting)+len(result.Children) == 0 {
			return errAnswered
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.afterRun(ctx, info, agent.RunEnd{Suspended: result.Suspended})
	return s.suspend(ctx, info, result)
}

// steps runs the agent's steps until it is done, is stopped, or fails.
func (s *session) steps(ctx context.Context, p plan, info *agent.RunInfo, recovered uint64) (agent.Result, error) {
	r := s.r
	seen := p.seq
	if recovered > 0 {
		seen = recovered
	}
	runCtx, cancel := context.WithCancelCause(ctx)
	g := &gate{Writer: s.w, log: s.log}
	run := s.agentRun(*info, g)
	watched := make(chan struct{})
	r.logs.Go(func() {
		defer close(watched)
		s.watch(runCtx, seen, cancel, run)
	})
	defer func() { cancel(errLeft); <-watched }()

	if stopClock, err := s.limitRun(runCtx, cancel); err != nil {
		return agent.Result{}, err
	} else {
		defer stopClock()
	}
	type end struct {
		result agent.Result
		err    error
	}
	done := make(chan end, 1)
	r.logs.Go(func() {
		result, err := s.drive(runCtx, cancel, run, recovered > 0)
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
func (s *session) drive(ctx context.Context, cancel context.CancelCauseFunc, run *agent.Run, recovered bool) (result agent.Result, err error) {
	r, a := s.r, s.agent
	defer func() {
		if v := recover(); v != nil {
			err = run.Panicked(v)
		}
	}()
	defer run.Leave()
	if recovered {
		over := r.limitStep(ctx, cancel, a.StepTimeout)
		result, err = a.Recover(ctx, run)
		over()
	}
	for err == nil && !result.Done && result.Suspended == "" {
		if ctx.Err() != nil {
			return agent.Result{}, context.Cause(ctx)
		}
		if result, err = s.boundary(ctx); err == nil && !result.Done && result.Suspended == "" {
			over := r.limitStep(ctx, cancel, a.StepTimeout)
			result, err = a.Step(ctx, run)
			over()
		} else if err == nil && result.Suspended != "" {
			err = a.Rest(ctx, run)
		}
	}
	return result, err
}

// suspend pauses the run: from here on nothing of it is anywhere but in the log.
// It fails with errStopped or errSteered if something has asked the run to end,
// and with errAnswered if all that it would wait for was answered meanwhile.
func (s *session) suspend(ctx context.Context, info agent.RunInfo, result agent.Result) error {
	var expires int64
	if s.agent.WaitLimit > 0 {
		expires = s.r.logs.Now().Add(s.agent.WaitLimit).UnixMilli()
	}
	var (
		chunks []spool.Chunk
		settle *spool.Settle
	)
	err := s.log.View(ctx, func(f *spool.Fold) error {
		if err := asked(f); err != nil {
			return err
		}
		if result = agent.Missing(f, result); len(result.Waiting)+len(result.Children) == 0 {
			return errAnswered
		}
		chunks = agent.Suspension(f, result, expires)
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
	_, err = s.w.Commit(ctx, spool.Row{Status: spool.StatusPaused}, settle, chunks...)
	s.w.SetRun("")
	if err == nil {
		s.r.tell.RunSuspended(info, result.Suspended)
	}
	return err
}

// expire answers what nobody has answered in time. The answers are commands like
// any other: one that came first wins.
func (s *session) expire(ctx context.Context) error {
	const late = "nobody answered in time"
	var chunks []spool.Chunk
	err := s.log.View(ctx, func(f *spool.Fold) error {
		now := s.r.logs.Now().UnixMilli()
		for _, t := range f.PendingCalls() {
			base := spool.Base{AgentID: t.Agent}
			switch {
			case t.Expires == 0 || t.Expires > now:
			case t.Approval != nil:
				chunks = append(chunks, &spool.ToolApprovalResponse{Base: base, CommandID: s.r.logs.NewID(), ApprovalID: t.Approval.ID, Reason: late})
			default:
				chunks = append(chunks, &spool.ToolResultSubmitted{Base: base, CommandID: s.r.logs.NewID(), ToolCallID: t.CallID, Error: late})
			}
		}
		return nil
	})
	if err != nil || len(chunks) == 0 {
		return err
	}
	_, err = s.log.Command(ctx, spool.Row{}, chunks...)
	return err
}

// watch reads the commands that arrive while a run is open and cancels it, or a
// child of it, when one of them asks for that.
func (s *session) watch(ctx context.Context, seen uint64, cancel context.CancelCauseFunc, run *agent.Run) {
	reader := s.log.Reader(spool.ReadOptions{
		After:  spool.Cursor{Seq: seen, Incarnation: s.lease.Head.Incarnation},
		Follow: true,
	})
	look := func() (stop bool) {
		err := s.log.View(ctx, func(f *spool.Fold) error {
			stop = f.Stop != nil
			run.StopChildren(f)
			for _, w := range f.Waiting {
				stop = stop || w.Seq > seen && w.WhenBusy == spool.BusyInterrupt
			}
			return nil
		})
		return err == nil && stop
	}
	if look() { // a run that was taken over may have been asked before
		cancel(errStopped)
		return
	}
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
		if look() {
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

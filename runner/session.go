package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/stream"
)

// session is one claimed session while this runner owns it.
type session struct {
	r     *Runner // nil: it is forced to stop
	logs  *spool.Logs
	lease spool.Lease
	agent *agent.Agent
	log   *spool.Log
	w     *spool.Writer
}

// plan is what a session's owner is to do next, as the fold says.
type plan struct {
	seq      uint64        // of the fold
	open     *fold.Run     // a run that somebody left open
	external bool          // the open run is a producer's
	work     *fold.Command // the next command that opens a run
	stop     bool          // the run is only to be ended
	first    bool          // the run is the session's first

	turn      *fold.Turn       // the open run's, or the one that waits for answers
	cont      *fold.Command    // the command that lets the turn go on, or ends it
	answers   []string         // ids of the answers that the turn got
	expires   int64            // when the turn stops waiting; 0: never
	lost      bool             // the open run was taken over too often
	failed    bool             // the open run was about to fail
	fromStep  int              // where the turn goes on
	fromPoint *string          // and after which checkpoint
	rollback  *fold.Checkpoint // to which the command has brought the history back
	row       spool.Row        // what the session's row must say if there is nothing to do
}

// serve does all there is to do in a claimed session and releases it.
func (r *Runner) serve(lease spool.Lease) {
	r.tell.Claimed(lease.Session, waited(lease, r.logs.Now()))
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
	s := &session{r: r, logs: r.logs, lease: lease}
	if s.log, err = r.logs.Log(lease.Session); err != nil {
		return err
	}
	if s.agent, err = r.agent(ctx, lease.Session); err != nil {
		return err
	}
	s.w = s.log.Writer(lease, spool.WriterOptions{Name: "owner", AgentType: s.agent.Name})
	defer s.w.Close()
	for {
		p, err := s.plan(ctx)
		if err != nil {
			return err
		}
		switch {
		case p.open != nil && r.draining():
			return nil // somebody else recovers it
		case p.open != nil:
			err = s.recover(ctx, p)
		case (p.cont != nil || p.work != nil) && r.draining():
			return nil // still due: somebody else goes on
		case p.cont != nil:
			err = s.goOn(ctx, p)
		case p.work != nil:
			err = s.run(ctx, p)
		case p.expires != 0 && p.expires <= r.logs.Now().UnixMilli():
			err = s.expire(ctx)
		default:
			done, serr := s.clearDue(ctx, p)
			if serr != nil || done {
				return serr
			}
		}
		if err != nil {
			return err
		}
	}
}

// plan finds out what the owner is to do next.
func (s *session) plan(ctx context.Context) (plan, error) {
	var p plan
	err := s.log.View(ctx, func(f *fold.Fold) error {
		p.seq, p.stop = f.Seq, f.Stop != nil
		switch {
		case f.OpenRun() != nil:
			p.takeUp(f)
			p.lost = s.r == nil || s.r.o.FailLost || p.open.Recoveries >= s.r.o.MaxRecoveries
		case f.Continue != nil:
			p.goOn(f)
		case f.Asks() && len(f.Pending()) > 0: // what is queued waits, too
			p.expires = f.Expires()
		case len(f.Waiting) > 0:
			p.begin(f)
		default:
			p.stay(f)
		}
		return nil
	})
	return p, err
}

// takeUp plans to go on with the open run, or to end it.
func (p *plan) takeUp(f *fold.Fold) {
	run := *f.OpenRun()
	turn := *f.Turn(run.TurnID)
	p.open, p.external, p.turn, p.failed = &run, run.Mode == chunk.ModeExternal, &turn, f.Failure() != nil
}

// goOn plans the run that lets the paused turn go on, or that only ends it.
func (p *plan) goOn(f *fold.Fold) {
	c, turn := *f.Continue, *f.LastTurn()
	p.cont, p.turn, p.answers = &c, &turn, slices.Clone(f.Answers)
	p.stop = p.stop || c.Mode == chunk.ModeStop || c.Mode == chunk.ModeSuperseded
	p.fromStep = turn.LastRun().Step
	p.from(f)
}

// begin plans the run of the first command that waits.
func (p *plan) begin(f *fold.Fold) {
	first := *f.Waiting[0]
	p.work = &first
	if first.Mode != "" {
		p.from(f)
	}
	if at := f.Checkpoint(first.CheckpointID); at != nil {
		copied := *at
		p.rollback = &copied
	}
	p.first = len(f.Turns) == 0
}

// stay plans nothing: no run is open and no command waits.
func (p *plan) stay(f *fold.Fold) {
	if f.Rolled != "" {
		p.row.Status = f.Status
	}
}

// from notes the checkpoint that the session stands at.
func (p *plan) from(f *fold.Fold) {
	if c := f.Checkpoint(f.CheckpointID); c != nil {
		id := c.ID
		p.fromPoint = &id
		if p.work != nil {
			p.fromStep = c.StepCount
		}
	}
}

// clearDue takes the due mark from a session in which nothing waits. It returns false
// if something came meanwhile.
func (s *session) clearDue(ctx context.Context, p plan) (done bool, err error) {
	res, err := s.w.Commit(ctx, p.row, &spool.Settle{Seen: p.seq, Next: p.expires})
	if err != nil {
		return false, err
	}
	due := res.Head.Due
	return due == 0 || due > s.r.logs.Now().UnixMilli(), nil
}

// recover takes up a run that is open when a new owner claims the session: the former
// owner is gone. The run goes on where it was, in the same message, or is ended.
func (s *session) recover(ctx context.Context, p plan) error {
	over := p.open.Mode == chunk.ModeStop || p.open.Mode == chunk.ModeSuperseded
	if p.lost || p.failed || p.external || p.stop || over {
		p.stop = p.stop || over
		return s.abandon(ctx, p)
	}
	info := agent.RunInfo{Session: s.lease.Session, Agent: s.agent.Name, RunID: p.open.ID, TurnID: p.open.TurnID,
		MessageID: p.turn.MessageID, Mode: p.open.Mode, Started: time.UnixMilli(p.open.StartTime)}
	s.w.SetRun(p.open.ID)
	chunks := []chunk.Chunk{s.superseded(p)}
	discarded := 0
	err := s.log.View(ctx, func(f *fold.Fold) error {
		var first []chunk.Chunk
		first, discarded = s.agent.TakeOver(f)
		chunks = append(chunks, first...)
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := s.w.Commit(ctx, spool.Row{Status: chunk.StatusActive}, nil, chunks...); err != nil {
		return err
	}
	s.r.tell.RunRecovered(info)
	if discarded > 0 {
		s.r.tell.StepDiscarded(info, discarded, agent.CrashRecovery)
	}
	return s.execute(ctx, p, info, p.open.Start)
}

// superseded returns the notice that the open run, which may be a producer's, has another
// owner.
func (s *session) superseded(p plan) *chunk.ExecutorSuperseded {
	notice := &chunk.ExecutorSuperseded{Reason: chunk.LeaseEnded}
	if notice.AgentType = p.open.AgentType; s.r == nil {
		notice.Reason = chunk.OwnerForced
	}
	return notice
}

// abandon ends a run that somebody left open. What it showed becomes the answer.
func (s *session) abandon(ctx context.Context, p plan) error {
	s.w.SetRun(p.open.ID)
	s.w.SetStep(0)
	chunks := []chunk.Chunk{s.superseded(p)}
	text, code := agent.ErrLost.Message, CodeExecutorLost
	if p.external {
		text, code = stream.ProducerLost, stream.CodeProducerLost
	}
	var end *chunk.RunFinished
	err := s.log.View(ctx, func(f *fold.Fold) error {
		chunks, end = append(chunks, f.Owed().First()...), f.Owed().Lost(text, code)
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := s.w.Commit(ctx, spool.Row{}, nil, chunks...); err != nil {
		return err
	}
	info := agent.RunInfo{Session: s.lease.Session, Agent: p.open.AgentType, RunID: p.open.ID, TurnID: p.open.TurnID, Mode: p.open.Mode,
		Started: time.UnixMilli(p.open.StartTime), Outcome: end.Outcome, FinishReason: end.FinishReason, Code: end.Code, Steps: p.open.Steps, Usage: p.open.Usage}
	err = s.settle(ctx, info, end)
	if err == nil && s.r != nil {
		var lost error
		if end.Outcome == chunk.OutcomeFailed {
			lost = &chunk.Error{Code: end.Code, Message: end.Error}
		}
		s.r.tell.RunFinished(info, lost)
	}
	return err
}

// CodeExecutorLost is the code of a run that failed because its process was lost. One
// whose producer was lost has [stream.CodeProducerLost].
const CodeExecutorLost = "executor_lost"

// settle ends the open run: first what the open step lacks, then the end, with
// the row and, if nothing waits, the due mark.
func (s *session) settle(ctx context.Context, info agent.RunInfo, end *chunk.RunFinished) error {
	if err := s.w.Flush(ctx); err != nil {
		return err
	}
	var (
		chunks  []chunk.Chunk
		settle  *spool.Settle
		answers []openAnswer
	)
	err := s.log.View(ctx, func(f *fold.Fold) error {
		chunks, answers = f.Owed().Settle(end), openAnswers(f)
		if len(f.Waiting) == 0 {
			settle = &spool.Settle{Seen: f.Seq}
		}
		return nil
	})
	if err != nil {
		return err
	}
	status := chunk.StatusEnded
	if end.Outcome == chunk.OutcomeFailed {
		status = chunk.StatusFailed
	}
	s.w.SetStep(0)
	end.RunID = info.RunID
	_, err = s.w.Commit(ctx, spool.Row{Status: status}, settle, chunks...)
	s.w.SetRun("")
	for i := 0; err == nil && i < len(answers); i++ {
		s.abandonAnswer(ctx, answers[i])
	}
	return err
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

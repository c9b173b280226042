package runner

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// run executes the run that a command opens, to its end.
func (s *session) run(ctx context.Context, p plan) error {
	r, a := s.r, s.agent
	runID := r.logs.NewID()
	messageID, err := s.messageID(ctx)
	if err != nil {
		return err
	}
	info := agent.RunInfo{
		Session:   s.lease.Session,
		Agent:     s.agent.Name,
		Started:   r.logs.Now(),
		RunID:     runID,
		TurnID:    p.work.ID,
		MessageID: messageID,
		Mode:      chunk.ModeStart,
	}
	if p.work.Mode != "" {
		info.Mode = p.work.Mode
	}
	s.w.SetRun(info.RunID)
	row := spool.Row{Status: chunk.StatusActive, Agent: a.Name}
	if p.first {
		if row.Title, err = s.log.NewTitle(ctx, p.work.Message); err != nil {
			return err
		}
	}
	chunks := append([]chunk.Chunk{a.Start(ctx, info, []string{p.work.ID})}, resumed(p, info.Mode)...)
	if err := s.begin(ctx, info, row, chunks); err != nil {
		return err
	}
	return s.execute(ctx, p, info, 0)
}

// begin writes a run's first records, and the checkpoint that it owes, if any.
func (s *session) begin(ctx context.Context, info agent.RunInfo, row spool.Row, chunks []chunk.Chunk) error {
	if _, err := s.w.Commit(ctx, row, nil, chunks...); err != nil {
		return err
	}
	s.r.tell.RunStarted(info)
	var owed []chunk.Chunk
	err := s.log.View(ctx, func(f *fold.Fold) error {
		owed = f.Owed().First()
		return nil
	})
	if err != nil || len(owed) == 0 {
		return err
	}
	_, err = s.w.Commit(ctx, spool.Row{}, nil, owed...)
	return err
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
	case chunk.ModeStop, chunk.ModeContinue:
		commands = append(commands, p.cont.ID)
	case chunk.ModeSuperseded: // the message opens a turn of its own
	}
	s.w.SetRun(info.RunID)
	chunks := []chunk.Chunk{s.agent.Start(ctx, info, commands)}
	if !p.stop {
		chunks = append(chunks, resumed(p, info.Mode)...)
	}
	row := spool.Row{Status: chunk.StatusActive, Agent: s.agent.Name}
	if err := s.begin(ctx, info, row, chunks); err != nil {
		return err
	}
	return s.execute(ctx, p, info, p.seq)
}

// agentRun is a run as the agent sees it.
func (s *session) agentRun(info agent.RunInfo) *agent.Run {
	l := s.r.logs
	return &agent.Run{Info: info, Log: ownLog{s.w, s.log}, Hooks: s.r.o.Hooks, Observer: &s.r.tell.Observer, Grace: s.r.o.StopGrace,
		Seams: agent.Seams{Now: l.Now, NewID: l.NewID, Go: l.Go, Sleep: l.Sleep, Logger: l.Logger()}}
}

// ownLog is a session's log as its owner's runs see it.
type ownLog struct {
	*spool.Writer
	log *spool.Log
}

func (l ownLog) View(ctx context.Context, fn func(*fold.Fold) error) error {
	return l.log.View(ctx, fn)
}

func (l ownLog) Blob(ctx context.Context, ref json.RawMessage) (json.RawMessage, error) {
	return l.log.Blob(ctx, ref)
}

// execute brings an open run to its end or to its next pause. With recovered
// set, the sequence from which on commands count for it, it goes on where the
// log has left it.
func (s *session) execute(ctx context.Context, p plan, info agent.RunInfo, recovered uint64) error {
	result, err := agent.Result{}, agent.ErrStopped
	for again := !p.stop; again; {
		result, info, err = s.steps(ctx, p, info, recovered)
		if err == nil && result.Suspended != "" && ctx.Err() == nil {
			if err = s.pause(ctx, info, result); err == nil {
				return nil
			}
		}
		again = errors.Is(err, agent.ErrAnswered)
		recovered = max(recovered, p.seq) // the open step is taken up as it stands
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // the session is not ours any more: write nothing
	}
	if errors.Is(err, errSteered) {
		result, err = agent.Result{Outcome: chunk.OutcomeSteered, FinishReason: "other"}, nil
	}
	run := s.agentRun(info)
	end, lost := s.agent.Conclude(ctx, run, result, err)
	if lost == nil {
		lost = s.settle(ctx, run.Info, end)
	}
	if lost == nil {
		if end.Outcome != chunk.OutcomeFailed {
			err = nil
		}
		s.r.tell.RunFinished(run.Info, err)
	}
	return lost
}

// steps runs the agent's steps until it is done, is stopped, or fails.
func (s *session) steps(ctx context.Context, p plan, info agent.RunInfo, recovered uint64) (agent.Result, agent.RunInfo, error) {
	seen := p.seq
	if recovered > 0 {
		seen = recovered
	}
	ctx, cancel := context.WithCancelCause(ctx)
	run := s.agentRun(info)
	watched := make(chan struct{})
	s.r.logs.Go(func() {
		defer close(watched)
		s.watch(ctx, seen, cancel, run)
	})
	defer func() { cancel(errLeft); <-watched }()
	return s.agent.Drive(ctx, run, recovered > 0)
}

// pause suspends a run, unless all that it would wait for was answered meanwhile. A
// paused run exists in the log only.
func (s *session) pause(ctx context.Context, info agent.RunInfo, result agent.Result) error {
	err := s.log.View(ctx, func(f *fold.Fold) error {
		_, err := agent.Suspension(f, result, 0)
		return err
	})
	if err != nil {
		return err
	}
	s.agent.AfterRun(ctx, s.agentRun(info), agent.RunEnd{Suspended: result.Suspended})
	return s.suspend(ctx, info, result)
}

// suspend fails with agent.ErrStopped or errSteered if something has asked the run
// to end, and with agent.ErrAnswered if all that it would wait for was answered
// meanwhile.
func (s *session) suspend(ctx context.Context, info agent.RunInfo, result agent.Result) error {
	var expires int64
	if s.agent.WaitLimit > 0 {
		expires = s.r.logs.Now().Add(s.agent.WaitLimit).UnixMilli()
	}
	var (
		chunks []chunk.Chunk
		settle *spool.Settle
	)
	err := s.log.View(ctx, func(f *fold.Fold) (err error) {
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
	_, err = s.w.Commit(ctx, spool.Row{Status: chunk.StatusPaused}, settle, chunks...)
	s.w.SetRun("")
	if err == nil {
		s.r.tell.RunSuspended(info, result.Suspended)
	}
	return err
}

// expire answers what nobody has answered in time. Its answers are commands like any
// other: if somebody answers at the same time, the first command counts.
func (s *session) expire(ctx context.Context) error {
	const late = "no answer within the wait limit"
	var chunks []chunk.Chunk
	err := s.log.View(ctx, func(f *fold.Fold) error {
		now := s.r.logs.Now().UnixMilli()
		for _, t := range f.PendingCalls() {
			base := chunk.Base{AgentID: t.Agent}
			switch {
			case t.Expires == 0 || t.Expires > now:
			case t.Approval != nil:
				chunks = append(chunks, &chunk.ToolApprovalResponse{Base: base, CommandID: s.r.logs.NewID(), ApprovalID: t.Approval.ID, Reason: late})
			default:
				chunks = append(chunks, &chunk.ToolResultSubmitted{Base: base, CommandID: s.r.logs.NewID(), ToolCallID: t.CallID, Error: late})
			}
		}
		return nil
	})
	if err != nil || len(chunks) == 0 {
		return err
	}
	_, err = s.log.Command(ctx, spool.Row{Principal: s.lease.Head.Principal}, chunks...)
	return err
}

// watch reads the commands that arrive while a run is open and cancels it, or a
// child of it, when one of them asks for that.
func (s *session) watch(ctx context.Context, seen uint64, cancel context.CancelCauseFunc, run *agent.Run) {
	reader := s.log.Reader(spool.ReadOptions{
		After:  spool.Cursor{Seq: seen, Incarnation: s.lease.Head.Incarnation},
		Follow: true,
	})
	look := func() (stop bool, err error) {
		err = s.log.View(ctx, func(f *fold.Fold) error {
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
				_ = s.r.logs.Sleep(ctx, time.Second)
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
			_ = s.r.logs.Sleep(ctx, time.Second)
		}
		commands = slices.ContainsFunc(records, func(r chunk.Record) bool { return chunk.IsCommand(r.Type) })
	}
}

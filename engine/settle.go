package engine

import (
	"context"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/stream"
)

// Settle ends the open run of a plan, which somebody has left. What it showed becomes the
// answer.
func (e *Engine) Settle(ctx context.Context, p *Plan) error {
	e.w.SetRun(p.open.ID)
	e.w.SetStep(0)
	chunks := e.superseded(p)
	text, code := agent.ErrLost.Message, CodeExecutorLost
	if p.external {
		text, code = stream.ProducerLost, stream.CodeProducerLost
	}
	var end *chunk.RunFinished
	err := e.log.View(ctx, func(f *fold.Fold) error {
		chunks, end = append(chunks, f.Owed().First()...), f.Owed().Lost(text, code)
		return nil
	})
	if err == nil && len(chunks) > 0 {
		_, err = e.w.Commit(ctx, spool.Row{}, nil, chunks...)
	}
	if err != nil {
		return err
	}
	info := agent.RunInfo{Session: e.o.Lease.Session, Agent: p.open.AgentType, RunID: p.open.ID, TurnID: p.open.TurnID, Mode: p.open.Mode,
		Started: time.UnixMilli(p.open.StartTime), Outcome: end.Outcome, FinishReason: end.FinishReason, Code: end.Code, Steps: p.open.Steps, Usage: p.open.Usage}
	if err := e.settle(ctx, info, end); err != nil {
		return err
	}
	var lost error
	if end.Outcome == chunk.OutcomeFailed {
		lost = &chunk.Error{Code: end.Code, Message: end.Error}
	}
	e.finished(info, lost)
	return nil
}

// settle ends the open run: first what the open step lacks, then the end, with
// the row and, if nothing waits, the due mark.
func (e *Engine) settle(ctx context.Context, info agent.RunInfo, end *chunk.RunFinished) error {
	if err := e.w.Flush(ctx); err != nil {
		return err
	}
	var (
		chunks  []chunk.Chunk
		settle  *spool.Settle
		answers []openAnswer
	)
	err := e.log.View(ctx, func(f *fold.Fold) error {
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
	e.w.SetStep(0)
	end.RunID = info.RunID
	_, err = e.w.Commit(ctx, spool.Row{Status: status}, settle, chunks...)
	e.w.SetRun("")
	for i := 0; err == nil && i < len(answers); i++ {
		e.abandonAnswer(ctx, answers[i])
	}
	return err
}

// abandonAnswer ends the provider's work on the answer of a run that is over. Otherwise it
// would be finished and paid, and nobody would hear it. Nobody waits for the attempt, and
// if it fails, that is only logged.
func (e *Engine) abandonAnswer(ctx context.Context, a openAnswer) {
	of := e.o.Agent
	if of != nil && a.child != "" {
		of = of.Find(a.child)
	}
	if of == nil {
		return
	}
	e.o.Background(func() {
		if err := of.Abandon(ctx, e.o.Seams, a.cursor); err != nil {
			e.o.Logs.Logger().Warn("the provider's work on an answer was not ended", "session", e.o.Lease.Session, "error", err)
		}
	})
}

// openAnswer is an answer that a provider still works on.
type openAnswer struct {
	child  string // the agent type of a child; "" for the session's own agent
	cursor string
}

// openAnswers returns those of an open run and of its children.
func openAnswers(f *fold.Fold) []openAnswer {
	var open []openAnswer
	if cursor := f.Answer(); cursor != "" {
		open = append(open, openAnswer{f.AgentType, cursor})
	}
	for _, c := range f.Children {
		open = append(open, openAnswers(c)...)
	}
	return open
}

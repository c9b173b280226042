package engine

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Begin begins the run of a plan: for a message, to continue a paused turn, or only to end
// one. The run lives until ctx ends, which it does when the lease is lost. The caller must
// end it or hand it over.
func (e *Engine) Begin(ctx context.Context, p *Plan) (*Run, error) {
	info := agent.RunInfo{Session: e.o.Lease.Session, Agent: e.o.Agent.Name, RunID: e.o.Seams.NewID()}
	row := spool.Row{Status: chunk.StatusActive, Agent: e.o.Agent.Name}
	var commands []string
	var seen uint64
	var err error
	if p.work != nil {
		commands = []string{p.work.ID}
		info.TurnID, info.Mode = p.work.ID, cmp.Or(p.work.Mode, chunk.ModeStart)
		if info.MessageID, err = e.messageID(ctx); err == nil && p.first {
			row.Title, err = e.log.NewTitle(ctx, p.work.Message)
		}
	} else {
		info.TurnID, info.MessageID, info.Mode = p.turn.ID, p.turn.MessageID, p.cont.Mode
		commands, seen = p.answers, p.seq
		switch p.cont.Mode {
		case chunk.ModeStop, chunk.ModeContinue:
			commands = append(commands, p.cont.ID)
		case chunk.ModeSuperseded: // the message opens a turn of its own
		}
	}
	if err != nil {
		return nil, err
	}
	info.Started = e.o.Seams.Now()
	e.w.SetRun(info.RunID)
	chunks := []chunk.Chunk{e.o.Agent.Start(ctx, info, commands)}
	if p.work != nil || !p.stop {
		chunks = append(chunks, resumed(p, info.Mode)...)
	}
	if err := e.begin(ctx, info, row, chunks); err != nil {
		return nil, err
	}
	return e.run(ctx, p, info, seen), nil
}

// begin writes a run's first records, and the checkpoint that it owes, if any.
func (e *Engine) begin(ctx context.Context, info agent.RunInfo, row spool.Row, chunks []chunk.Chunk) error {
	if _, err := e.w.Commit(ctx, row, nil, chunks...); err != nil {
		return err
	}
	tell(e.o.Observer.RunStarted, info)
	var owed []chunk.Chunk
	err := e.log.View(ctx, func(f *fold.Fold) error {
		owed = f.Owed().First()
		return nil
	})
	if err != nil || len(owed) == 0 {
		return err
	}
	_, err = e.w.Commit(ctx, spool.Row{}, nil, owed...)
	return err
}

// resumed returns the first records of a run that does not begin a turn: they say where
// it goes on, and, after a rollback, that what came since the checkpoint is void.
func resumed(p *Plan, mode string) []chunk.Chunk {
	if mode == chunk.ModeStart {
		return nil
	}
	c := &chunk.RunResumed{Mode: mode, FromStepCount: p.fromStep, FromCheckpointID: p.fromPoint}
	if p.rollback == nil {
		return []chunk.Chunk{c}
	}
	at := p.rollback
	c.FromStepCount, c.FromCheckpointID = at.StepCount, &at.ID
	return []chunk.Chunk{c, &chunk.StreamResync{CheckpointID: at.ID, StepCount: at.StepCount, MessageCount: at.MessageCount,
		FromSequence: at.Seq, Reason: "rollback"}}
}

// Recover takes up the open run of a plan where the log has left it, in the same message.
// The log says so, unless the former owner has handed the run over. See [Engine.Begin].
func (e *Engine) Recover(ctx context.Context, p *Plan) (*Run, error) {
	info := agent.RunInfo{Session: e.o.Lease.Session, Agent: e.o.Agent.Name, RunID: p.open.ID, TurnID: p.open.TurnID,
		MessageID: p.turn.MessageID, Mode: p.open.Mode, Started: time.UnixMilli(p.open.StartTime)}
	e.w.SetRun(p.open.ID)
	chunks := e.superseded(p)
	discarded := 0
	err := e.log.View(ctx, func(f *fold.Fold) error {
		var first []chunk.Chunk
		first, discarded = e.o.Agent.TakeOver(f)
		chunks = append(chunks, first...)
		return nil
	})
	if err == nil && len(chunks) > 0 {
		_, err = e.w.Commit(ctx, spool.Row{Status: chunk.StatusActive}, nil, chunks...)
	}
	if err != nil {
		return nil, err
	}
	if !p.handed {
		tell(e.o.Observer.RunRecovered, info)
	}
	if told := e.o.Observer.StepDiscarded; discarded > 0 && told != nil {
		told(info, discarded, agent.CrashRecovery)
	}
	return e.run(ctx, p, info, p.open.Start), nil
}

// superseded returns the notice that the open run, which may be a producer's, has another
// owner. There is none of a run that was handed over.
func (e *Engine) superseded(p *Plan) []chunk.Chunk {
	if p.handed {
		return nil
	}
	notice := &chunk.ExecutorSuperseded{Reason: chunk.LeaseEnded}
	if notice.AgentType = p.open.AgentType; e.o.Forced {
		notice.Reason = chunk.OwnerForced
	}
	return []chunk.Chunk{notice}
}

// messageID returns the id of the assistant message of a new turn.
func (e *Engine) messageID(ctx context.Context) (string, error) {
	fresh := e.o.Seams.NewID()
	if e.o.MessageID == nil {
		return fresh, nil
	}
	id := call(e.o.MessageID, e.o.Lease.Session)
	err := e.log.View(ctx, func(f *fold.Fold) error {
		first := id
		for i := 2; taken(f, id); i++ {
			id = first + "-" + strconv.Itoa(i)
		}
		return nil
	})
	if chunk.CheckID(id) != nil {
		id = fresh
	}
	return id, err
}

// call calls a function of the program's. If it panics the result is "".
func call(of func(string) string, session string) (id string) {
	defer func() {
		if recover() != nil {
			id = ""
		}
	}()
	return of(session)
}

// taken reports whether a message or a command of the session has this id.
func taken(f *fold.Fold, id string) bool {
	return f.Message(id) != nil || f.Assistant(id) || f.Verdict(id).State != fold.VerdictUnknown
}

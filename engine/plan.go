package engine

import (
	"context"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Next is what a session needs next.
type Next int

const (
	// Rest: nothing, until a command comes or a wait is over: [Engine.Rest].
	Rest Next = iota
	// Begin: a run that a command opens: [Engine.Begin].
	Begin
	// Recover: its open run continues: [Engine.Recover].
	Recover
	// Settle: its open run is only to be ended: [Engine.Settle].
	Settle
	// Expire: answers that did not come in time: [Engine.Expire].
	Expire
)

// Plan is what an owner is to do next, as the fold says. It is good for one call.
type Plan struct {
	Next Next

	seq      uint64        // of the fold
	open     *fold.Run     // a run that somebody left open
	external bool          // the open run is a producer's
	handed   bool          // the open run was handed over to this owner
	work     *fold.Command // the next command that opens a turn
	stop     bool          // the run is only to be ended
	first    bool          // the run is the session's first

	turn      *fold.Turn       // the open run's, or the one that waits for answers
	cont      *fold.Command    // the command that lets the turn go on, or ends it
	answers   []string         // ids of the answers that the turn got
	expires   int64            // when the turn stops waiting; 0: never
	fromStep  int              // where the turn goes on
	fromPoint *string          // and after which checkpoint
	rollback  *fold.Checkpoint // to which the command has brought the history back
	row       spool.Row        // what the session's row must say if there is nothing to do
}

// Plan finds out what the session needs next.
func (e *Engine) Plan(ctx context.Context) (*Plan, error) {
	p := new(Plan)
	err := e.log.View(ctx, func(f *fold.Fold) error {
		p.seq, p.stop = f.Seq, f.Stop != nil
		switch {
		case f.OpenRun() != nil:
			p.takeUp(f, &e.o)
		case f.Continue != nil:
			p.goOn(f)
		case f.Asks() && len(f.Pending()) > 0: // what is queued waits, too
			if p.expires = f.Expires(); p.expires != 0 && p.expires <= e.o.Seams.StoreTime() {
				p.Next = Expire
			}
		case len(f.Waiting) > 0:
			p.begin(f)
		case f.Rolled != "":
			p.row.Status = f.Status
		}
		return nil
	})
	return p, err
}

// takeUp plans to go on with the open run, or to end it.
func (p *Plan) takeUp(f *fold.Fold, o *Options) {
	run := *f.OpenRun()
	turn := *f.Turn(run.TurnID)
	p.open, p.turn, p.external, p.handed = &run, &turn, run.Mode == chunk.ModeExternal, f.HandedOver(o.Lease.Epoch)
	p.stop = p.stop || run.Mode == chunk.ModeStop || run.Mode == chunk.ModeSuperseded
	lost := !p.handed && (o.FailLost || run.Recoveries >= o.MaxRecoveries)
	if p.Next = Recover; lost || o.Forced || p.external || p.stop || f.Failure() != nil {
		p.Next = Settle
	}
}

// goOn plans the run that lets the paused turn go on, or that only ends it.
func (p *Plan) goOn(f *fold.Fold) {
	c, turn := *f.Continue, *f.LastTurn()
	p.Next, p.cont, p.turn, p.answers = Begin, &c, &turn, slices.Clone(f.Answers)
	p.stop = p.stop || c.Mode == chunk.ModeStop || c.Mode == chunk.ModeSuperseded
	p.fromStep = turn.LastRun().Step
	p.from(f)
}

// begin plans the run of the first command that waits.
func (p *Plan) begin(f *fold.Fold) {
	first := *f.Waiting[0]
	p.Next, p.work = Begin, &first
	if first.Mode != "" {
		p.from(f)
	}
	if at := f.Checkpoint(first.CheckpointID); at != nil {
		copied := *at
		p.rollback = &copied
	}
	p.first = len(f.Turns) == 0
}

// from notes the checkpoint that the session stands at.
func (p *Plan) from(f *fold.Fold) {
	if c := f.Checkpoint(f.CheckpointID); c != nil {
		id := c.ID
		p.fromPoint = &id
		if p.work != nil {
			p.fromStep = c.StepCount
		}
	}
}

// Stops reports whether the plan is to end a run that was asked to stop.
func (p *Plan) Stops() bool { return p.open != nil && p.stop }

// Rest takes the due mark from a session in which nothing waits. It returns false if
// something came meanwhile.
func (e *Engine) Rest(ctx context.Context, p *Plan) (rests bool, err error) {
	res, err := e.w.Commit(ctx, p.row, &spool.Settle{Seen: p.seq, Next: p.expires})
	if err != nil {
		return false, err
	}
	return !res.Head.Pending && (p.expires == 0 || p.expires > e.o.Seams.StoreTime()), nil
}

// Expire answers what nobody has answered in time. Its answers are commands like any
// other: if somebody answers at the same time, the first command counts.
func (e *Engine) Expire(ctx context.Context) error {
	const late = "no answer within the wait limit"
	var chunks []chunk.Chunk
	err := e.log.View(ctx, func(f *fold.Fold) error {
		now := e.o.Seams.StoreTime()
		for _, t := range f.PendingCalls() {
			base := chunk.Base{AgentID: t.Agent}
			switch {
			case t.Expires == 0 || t.Expires > now:
			case t.Approval != nil:
				chunks = append(chunks, &chunk.ToolApprovalResponse{Base: base, CommandID: e.o.Seams.NewID(), ApprovalID: t.Approval.ID, Reason: late})
			default:
				chunks = append(chunks, &chunk.ToolResultSubmitted{Base: base, CommandID: e.o.Seams.NewID(), ToolCallID: t.CallID, Error: late})
			}
		}
		return nil
	})
	if err != nil || len(chunks) == 0 {
		return err
	}
	_, err = e.log.Command(ctx, spool.Row{Principal: e.o.Lease.Head.Principal}, chunks...)
	return err
}

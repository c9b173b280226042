package chat

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire/aisdk"
)

// cursor is the view of a reader that has seen everything up to c and splices
// what follows: the frames after c, uncompacted, of c's own turn, to that turn's
// end. No source: it has seen the end. The turn is the one that c's frame was
// of, or, for a position that comes from a snapshot, the one that was live.
func (a *attach) cursor(ctx context.Context, c spool.Cursor, frame bool) (Source, error) {
	session := a.g.Session()
	if c != (spool.Cursor{}) {
		if err := checkCursor(c, a.h); err != nil {
			return nil, spool.ErrCursorAhead.With(session, nil)
		}
	}
	pick := func(f *fold.Fold) (*fold.Turn, string, error) {
		id, live := f.LiveAt(c.Seq)
		t := f.Turn(id)
		if own := f.TurnAt(c.Seq); frame && own != nil {
			t = own
		}
		switch {
		case live && t == nil:
			return nil, id, nil
		case t != nil:
		case len(f.Turns) > 0: // before the first turn
			t = f.Turns[0]
		case len(f.Waiting) > 0:
			return nil, f.Waiting[0].ID, nil
		default:
			return nil, "", nil
		}
		last := t.LastRun()
		quiet := !(f.Status == chunk.StatusPaused && a.due(f))
		if last.End != 0 && last.End <= c.Seq && turnOver(f, t.ID, quiet) && !c.InPlan {
			return nil, "", nil
		}
		switch {
		case c.Seq < t.Rolled: // what it has seen is not what was said any more
			return nil, "", spool.ErrCursorRetracted.With(session, nil)
		case c.Seq < a.h.TraceFloor:
			return nil, "", spool.ErrTrimmed.With(session, nil)
		}
		return t, "", nil
	}
	return a.choose(ctx, pick, func(ctx context.Context, t *fold.Turn) (Source, error) { return a.after(ctx, t, c) })
}

// after reads a turn after a cursor, which may lie inside an attach plan: the
// same plan is made again and its first frames left out.
func (a *attach) after(ctx context.Context, t *fold.Turn, c spool.Cursor) (Source, error) {
	if a.as.ui < 7 {
		inside, err := retracted(ctx, a.d.Logs.Store(), a.g, c.Seq)
		if err != nil {
			return nil, err
		}
		if inside {
			return nil, spool.ErrCursorRetracted.With(a.g.Session(), nil)
		}
	}
	p := a.d.projection(a.g, a.h.Incarnation, t, a.as)
	if c.Seq > t.Start() && (a.as.ui >= 7 || a.as.merlin != 0 || a.as.agents == aisdk.Flatten) {
		cut, err := p.CutSince(ctx, c.Seq) // all that retracted does not know of
		if err != nil {
			return nil, err
		}
		if cut {
			return nil, spool.ErrCursorRetracted.With(a.g.Session(), nil)
		}
	}
	src := &turnSource{g: a.g, f: p.Follow(c.Seq), turn: t.ID, incarnation: a.h.Incarnation}
	if c.InPlan {
		plan, err := p.At(ctx, c.Seq)
		if err != nil {
			return nil, err
		}
		n := min(c.PlanFrames, uint64(len(plan)))
		src.plan, src.planAt, src.planN = plan[n:], c.Seq, n
	}
	return a.d.paced(src, a.as), nil
}

// retracted says whether a sequence lies inside a model phase that was discarded
// later: the next thing that its agent settled is the discarding of a step that
// had begun by then.
func retracted(ctx context.Context, store spool.Store, g subject, seq uint64) (bool, error) {
	if seq == 0 {
		return false, nil
	}
	var step string
	after := seq
	for step == "" {
		recs, err := store.ReadKept(ctx, g.Log.Session(), spool.KeptQuery{After: after, Max: 16})
		if err != nil || len(recs) == 0 {
			return false, err
		}
		for _, r := range recs {
			after = r.Seq
			if r.Agent != g.agent {
				continue
			}
			switch r.Type {
			case chunk.TypeStepDiscarded:
				c, err := chunk.Decode(r.Data)
				if err != nil {
					return false, err
				}
				if d, ok := c.(*chunk.StepDiscarded); ok {
					step = d.StepID
				}
			case chunk.TypeAssistantMessage, chunk.TypeStepStarted, chunk.TypeRunStarted, chunk.TypeRunFinished, chunk.TypeRunSuspended:
				return false, nil
			}
			if step != "" {
				break
			}
		}
	}
	before := seq + 1
	for {
		recs, err := store.ReadKept(ctx, g.Log.Session(), spool.KeptQuery{Backwards: true, Before: before, Max: 16})
		if err != nil || len(recs) == 0 {
			return false, err
		}
		for _, r := range recs {
			before = r.Seq
			if r.Agent != g.agent {
				continue
			}
			switch r.Type {
			case chunk.TypeStepStarted:
				c, err := chunk.Decode(r.Data)
				if err != nil {
					return false, err
				}
				s, ok := c.(*chunk.StepStarted)
				return ok && s.StepID == step, nil
			case chunk.TypeAssistantMessage, chunk.TypeStepDiscarded, chunk.TypeRunFinished, chunk.TypeRunSuspended, chunk.TypeRunStarted:
				return false, nil
			}
		}
	}
}

package chat

import (
	"context"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// attach chooses the view for the request's position.
func (d *Deps) attach(ctx context.Context, p Params) (*Response, error) {
	g, err := d.Visit(ctx, p.Session)
	if err == nil && g.Child() {
		err = g.View(ctx, func(*fold.Fold) error { return nil }) // the root's log may not contain the child
	}
	switch {
	case !errors.Is(err, spool.ErrNotFound):
	case p.Profile.Log == nil:
		return &Response{Session: p.Session}, nil // nothing to resume
	case p.Profile.Log.Wait:
		return &Response{Session: p.Session, View: ViewLog, Stream: d.unborn(p)}, nil
	}
	if err != nil {
		return nil, err
	}
	res := &Response{Session: p.Session, Incarnation: g.At.Incarnation}
	a := attach{d: d, g: g, as: &p.Profile}
	cursor := p.Position.Cursor
	switch {
	case p.Profile.Log != nil:
		res.View = ViewLog
		res.Stream, err = a.log(ctx, cursor)
	case p.Position.Kind == wire.Counted:
		res.View = ViewCounted
		err = a.counted(ctx, res, p.Run, p.Position.Frames)
	case p.Position.Kind == wire.Seen:
		res.View = ViewCursor
		res.Stream, err = a.cursor(ctx, cursor)
	case p.Position.Kind == wire.Snapshot && !d.ContentReplay:
		// The snapshot contained the partial message: continue after it.
		res.View = ViewCursor
		res.Stream, err = a.pageLoad(ctx, a.ofSnapshot(cursor), a.continued)
	case p.Position.Kind == wire.Snapshot:
		res.View = ViewReplay
		res.Stream, err = a.pageLoad(ctx, a.ofSnapshot(cursor), func(ctx context.Context, t *fold.Turn, _ spool.Cursor) (Source, error) {
			return a.whole(ctx, t)
		})
	default:
		res.View = ViewReplay
		res.Stream, err = a.replay(ctx)
	}
	return res, err
}

// attach is a GET in progress.
type attach struct {
	d  *Deps
	g  Session
	as *wire.Profile
}

// ofSnapshot completes the position of a snapshot, which is a bare number in every
// incarnation.
func (a *attach) ofSnapshot(c spool.Cursor) spool.Cursor {
	if c.Incarnation == 0 {
		c.Incarnation = a.g.At.Incarnation
	}
	return c
}

// due reports whether a command waits for a runner and may continue the agent.
func (a *attach) due(f *fold.Fold) bool {
	if a.g.Child() {
		return f.Live() && !f.Asks()
	}
	return a.g.At.Pending
}

// going reports whether the session's last turn is active, or is about to be.
func (a *attach) going(f *fold.Fold) bool {
	return f.OpenRun() != nil || f.Status == chunk.StatusPaused && a.due(f)
}

// pick chooses a turn, or the command that will open one. If it returns neither, there
// is nothing to show.
type pick func(*fold.Fold) (turn *fold.Turn, command string, err error)

// choose reads the turn that pick chooses, or waits for the one that the command
// will open.
func (a *attach) choose(ctx context.Context, pick pick, open func(context.Context, *fold.Turn) (Source, error)) (Source, error) {
	var turn *fold.Turn
	var command string
	err := a.g.View(ctx, func(f *fold.Fold) (err error) {
		turn, command, err = pick(f)
		turn = copied(turn)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case command != "":
		return a.coming(command, open), nil
	case turn != nil:
		return open(ctx, turn)
	}
	return nil, nil
}

func copied(t *fold.Turn) *fold.Turn {
	if t == nil {
		return nil
	}
	c := *t
	return &c
}

// coming waits until the turn that a command opens has begun, and returns its source.
func (a *attach) coming(command string, open func(context.Context, *fold.Turn) (Source, error)) Source {
	return &late{open: func(ctx context.Context) (Source, error) {
		var turn *fold.Turn
		err := a.until(ctx, []string{command}, func(f *fold.Fold) (spool.Look, error) {
			turn = copied(f.Turn(command))
			v := f.Verdict(command)
			run := f.Run(v.RunID)
			if turn == nil && run != nil { // answered by another command's turn
				turn = copied(f.Turn(run.TurnID))
			}
			if turn != nil || run == nil && v.State != fold.VerdictWaiting {
				return spool.Seen, nil
			}
			return spool.Surely, nil
		})
		switch {
		case err != nil:
			return nil, err
		case turn == nil:
			return static(a.as.NoRun("", "other")), nil
		}
		return open(ctx, turn)
	}}
}

// present is the turn that is shown to a reader without a position, or the command that
// will open it: the latest turn while it is live, and for a grace period after its end.
func (a *attach) present(f *fold.Fold) (turn *fold.Turn, command string) {
	t := f.LastTurn()
	switch {
	case f.OpenRun() == nil && len(f.Waiting) > 0 && !f.Asks():
		return nil, f.Waiting[0].ID
	case t == nil, t.Rolled != 0 && f.OpenRun() == nil:
		return nil, ""
	case !a.going(f):
		end := t.LastRun().EndTime
		if a.d.Logs.Now().UnixMilli() >= end+a.d.ReplayGrace.Milliseconds() {
			return nil, ""
		}
	}
	return t, ""
}

// replay is the view of a reader without a position: the turn's message from its start,
// then the live frames.
func (a *attach) replay(ctx context.Context) (Source, error) {
	return a.choose(ctx, func(f *fold.Fold) (*fold.Turn, string, error) {
		turn, command := a.present(f)
		return turn, command, nil
	}, a.whole)
}

// later is the turn that a reader without a position is shown, or the command that will
// open it, if that is another turn than t. A page may have been open since long before:
// whatever its snapshot's position is, a later turn is what it came for.
func (a *attach) later(f *fold.Fold, t *fold.Turn) (turn *fold.Turn, command string, found bool) {
	turn, command = a.present(f)
	return turn, command, command != "" || turn != nil && turn != t
}

// pageLoad is the view of a page that was built from the snapshot at c: a later turn, if
// there is one to show. Else, a turn that was live at c is not in the snapshot, and is
// replayed in any case. A turn that was quiet at c is in the snapshot, and is replayed
// only if it has continued since. open shows the turn to a page of that position.
func (a *attach) pageLoad(ctx context.Context, c spool.Cursor, open func(context.Context, *fold.Turn, spool.Cursor) (Source, error)) (Source, error) {
	if errors.Is(c.Check(a.g.At), spool.ErrCursorAhead) {
		return nil, spool.ErrCursorAhead.With(a.g.ID, nil)
	}
	return a.choose(ctx, func(f *fold.Fold) (*fold.Turn, string, error) {
		id, live := f.LiveAt(c.Seq)
		t := f.Turn(id)
		if turn, command, found := a.later(f, t); found {
			return turn, command, nil
		}
		switch {
		case t == nil:
			return nil, "", nil
		case live && c.Seq < t.Rolled:
			return nil, "", nil // the page shows a history that was replaced
		case live:
		case t != f.LastTurn(), f.OpenRun() == nil && len(f.Waiting) > 0, t.LastRun().Start <= c.Seq && !a.going(f):
			return nil, "", nil
		}
		return t, "", nil
	}, func(ctx context.Context, t *fold.Turn) (Source, error) { return open(ctx, t, c) })
}

// cursor is the view of a reader that has seen everything up to c: the frames after c,
// uncompacted, of the turn that c's frame belongs to, to that turn's end. It returns no
// source if the reader has seen the end.
func (a *attach) cursor(ctx context.Context, c spool.Cursor) (Source, error) {
	session := a.g.ID
	if errors.Is(c.Check(a.g.At), spool.ErrCursorAhead) {
		return nil, spool.ErrCursorAhead.With(session, nil)
	}
	return a.choose(ctx, func(f *fold.Fold) (*fold.Turn, string, error) {
		id, live := f.LiveAt(c.Seq)
		t := f.Turn(id)
		if own := f.TurnAt(c.Seq); own != nil {
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
		case c.Seq < t.Rolled: // the reader has seen content that was retracted
			return nil, "", spool.ErrCursorRetracted.With(session, nil)
		case c.Seq > 0 && c.Seq < a.g.At.TraceFloor:
			return nil, "", spool.ErrTrimmed.With(session, nil)
		}
		return t, "", nil
	}, func(ctx context.Context, t *fold.Turn) (Source, error) { return a.after(ctx, t, c) })
}

// after reads a turn after a cursor. If the cursor is inside a plan, the same plan is
// made again and its first frames are left out.
func (a *attach) after(ctx context.Context, t *fold.Turn, c spool.Cursor) (Source, error) {
	if c.Seq == 0 && t.Start() < a.g.At.TraceFloor {
		return a.whole(ctx, t) // what remains of it
	}
	as := a.as
	if !c.InPlan && !a.d.ContentReplay {
		as = a.continuing() // it may have begun with a snapshot
	}
	p := a.g.projection(as, t)
	if c.Seq > t.Start() {
		retracted, err := p.Retracted(ctx, a.g.At, c.Seq)
		if err != nil {
			return nil, err
		}
		if retracted {
			return nil, spool.ErrCursorRetracted.With(a.g.ID, nil)
		}
	}
	src := &turnStream{g: a.g, f: p.Follow(a.g.At, c.Seq), turn: t.ID}
	if c.InPlan {
		then, err := p.At(ctx, a.g.At, c.Seq)
		if err != nil {
			return nil, err
		}
		frames, err := then.Plan()
		if err != nil {
			return nil, err
		}
		n := min(c.PlanFrames, uint64(len(frames)))
		src.plan = plan{frames: frames[n:], at: c.Seq, sent: n}
	}
	return a.wrap(src), nil
}

// whole replays a turn's message from its start and follows it to its end.
func (a *attach) whole(ctx context.Context, t *fold.Turn) (Source, error) {
	p := a.g.projection(a.as, t)
	frames, at, err := p.Attach(ctx, a.g.At)
	if err != nil {
		return nil, err
	}
	return a.wrap(&turnStream{g: a.g, f: p.Follow(a.g.At, at), turn: t.ID, plan: plan{frames: frames, at: at}}), nil
}

// wrap gives a turn's stream to the profile, which may pace it.
func (a *attach) wrap(s *turnStream) Source {
	if a.as.Wrap == nil {
		return s
	}
	return a.as.Wrap(s, a.d.Logs.Now)
}

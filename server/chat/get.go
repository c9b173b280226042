package chat

import (
	"context"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/fold"
)

// get chooses the view that the request's position asks for.
func (d *Deps) get(ctx context.Context, p Params) (*Response, error) {
	g, err := d.subject(p.Session)
	if err != nil {
		return nil, err
	}
	res := &Response{Session: p.Session}
	h, err := g.Head(ctx)
	if errors.Is(err, spool.ErrNotFound) {
		return res, nil // nothing to resume
	}
	if err != nil {
		return nil, err
	}
	res.Incarnation = max(h.Incarnation, 1)
	at := attach{d: d, g: g, h: h, as: p.wire()}
	switch {
	case p.StartIndex != nil:
		res.View = ViewCounted
		return res, at.counted(ctx, res, p.Run, *p.StartIndex)
	case p.Position.Kind == SeenPosition:
		res.View = ViewCursor
		res.Stream, err = at.cursor(ctx, p.Position.Cursor, true)
	case p.Position.Kind == SnapshotPosition && !d.ContentReplay:
		// The snapshot held the partial message: go on after it.
		c := p.Position.Cursor
		if c.Incarnation == 0 {
			c.Incarnation = h.Incarnation // a snapshot's position is a bare number
		}
		res.View = ViewCursor
		res.Stream, err = at.cursor(ctx, c, false)
	case p.Position.Kind == SnapshotPosition:
		res.View = ViewReplay
		res.Stream, err = at.pageLoad(ctx, p.Position.Cursor)
	default:
		res.View = ViewReplay
		res.Stream, err = at.replay(ctx)
	}
	return res, err
}

// attach is a GET in the making.
type attach struct {
	d  *Deps
	g  subject
	h  spool.Head
	as wire
}

// due says whether a command waits for a runner, and may let the agent go on.
func (a *attach) due(f *fold.Fold) bool {
	if a.g.child() {
		return f.Live() && !f.Asks()
	}
	return a.h.Due != 0 && a.h.Due <= a.d.Logs.Now().UnixMilli()
}

// whole replays a turn's message from its start and follows it to its end.
func (d *Deps) whole(ctx context.Context, g subject, turn *fold.Turn, as wire) (Source, error) {
	h, err := g.Head(ctx)
	if err != nil {
		return nil, err
	}
	p := d.projection(g, h.Incarnation, turn, as)
	plan, at, err := p.Attach(ctx)
	if err != nil {
		return nil, err
	}
	return d.paced(&turnSource{g: g, f: p.Follow(at), turn: turn.ID, incarnation: h.Incarnation, plan: plan, planAt: at}, as), nil
}

// choose reads the turn that pick chooses, or waits for the one that the command
// it names will open. No source if it chooses neither.
func (a *attach) choose(ctx context.Context, pick func(*fold.Fold) (turn *fold.Turn, command string, err error), open opening) (Source, error) {
	var turn *fold.Turn
	var command string
	err := a.g.View(ctx, func(f *fold.Fold) error {
		t, c, err := pick(f)
		if t != nil {
			copied := *t
			turn = &copied
		}
		command = c
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

// opening gives the source of a turn.
type opening func(context.Context, *fold.Turn) (Source, error)

// coming waits until the turn that a command opens has begun, and gives its
// source.
func (a *attach) coming(command string, open opening) Source {
	return &late{open: func(ctx context.Context) (Source, error) {
		for {
			var turn *fold.Turn
			var seq uint64
			gone := false
			err := view(ctx, a.g, func(f *fold.Fold) error {
				seq = f.Position()
				if t := f.Turn(command); t != nil {
					c := *t
					turn = &c
					return nil
				}
				v := f.Verdict(command)
				if run := f.Run(v.RunID); run != nil { // answered by another command's turn
					if t := f.Turn(run.TurnID); t != nil {
						c := *t
						turn = &c
					}
					return nil
				}
				gone = v.State != fold.VerdictWaiting
				return nil
			})
			switch {
			case err != nil:
				return nil, err
			case turn != nil:
				return open(ctx, turn)
			case gone:
				return a.as.settled("", "other"), nil
			}
			if err := await(ctx, a.g, a.h.Incarnation, seq, true); err != nil {
				return nil, err
			}
		}
	}}
}

func (a *attach) wholeTurn(ctx context.Context, t *fold.Turn) (Source, error) {
	return a.d.whole(ctx, a.g, t, a.as)
}

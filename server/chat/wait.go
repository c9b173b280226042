package chat

import (
	"context"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// unborn is the stream of a reader of a session that does not exist yet: nothing until
// it exists, then its log.
func (d *Deps) unborn(p Params) Source {
	w := &waiting{d: d, p: p}
	return &late{open: w.open}
}

type waiting struct {
	d *Deps
	p Params
	r *spool.Reader // of the root's log; kept between calls, so that a long wait asks the store once
	// exists: the root has a record.
	exists bool
}

func (w *waiting) open(ctx context.Context) (Source, error) {
	ctx = departed(ctx) // whoever creates the session, it exists then
	g, err := w.await(ctx)
	if err != nil {
		return nil, err
	}
	if w.p.Admit != nil && w.p.Admit(ctx) != nil {
		return nil, ErrCut // the reader reconnects, and is refused as any other
	}
	a := attach{d: w.d, g: g, as: &w.p.Profile}
	src, err := a.log(ctx, w.p.Position.Cursor)
	if errors.Is(err, ErrStreamFailed) {
		return nil, ErrCut
	}
	return src, err
}

// await returns the session once it exists. If the session is a child's, its root may
// exist before it.
func (w *waiting) await(ctx context.Context) (Session, error) {
	for {
		if err := w.root(ctx); err != nil {
			return Session{}, err
		}
		g, err := w.d.Visit(ctx, w.p.Session)
		if err == nil && g.Child() {
			err = g.Log.Until(ctx, g.At, func(f *fold.Fold) (spool.Look, error) {
				if f.Child(g.ID) != nil {
					return spool.Seen, nil
				}
				return spool.Surely, nil
			})
		}
		if !errors.Is(err, spool.ErrNotFound) && !errors.Is(err, spool.ErrCursorAhead) {
			return g, err
		}
		w.r, w.exists = nil, false // deleted in the meantime
	}
}

// root waits until the root's log has a record.
func (w *waiting) root(ctx context.Context) error {
	if w.exists {
		return nil
	}
	if w.r == nil {
		g, err := w.d.Logs.Log(chunk.RootID(w.p.Session))
		if err != nil {
			return err
		}
		w.r = g.Reader(spool.ReadOptions{Follow: true, Max: 1})
	}
	_, err := w.r.Next(ctx)
	if errors.Is(err, spool.ErrTrimmed) || errors.Is(err, spool.ErrCursorAhead) {
		err = nil // it exists
	}
	w.exists = err == nil
	return err
}

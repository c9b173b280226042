package chat

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// pageLoad is the view of a page that was built from the snapshot at c. A turn
// that was live then is not in the snapshot, and is replayed whatever became of
// it; one that was quiet is there, and is replayed only if it went on since.
func (a *attach) pageLoad(ctx context.Context, c spool.Cursor) (Source, error) {
	// A snapshot's position is a bare number in every incarnation.
	if c.Seq > a.h.Seq || c.Incarnation > 1 && c.Incarnation != max(a.h.Incarnation, 1) {
		return nil, spool.ErrCursorAhead.With(a.g.Session(), nil)
	}
	return a.choose(ctx, func(f *fold.Fold) (*fold.Turn, string, error) {
		id, live := f.LiveAt(c.Seq)
		t := f.Turn(id)
		switch {
		case live && t == nil:
			return nil, id, nil
		case live && c.Seq < t.Rolled:
			return nil, "", nil // the page shows a history that is no more
		case live:
		case t == nil, t != f.LastTurn(), f.OpenRun() == nil && len(f.Waiting) > 0:
			return nil, "", nil // nothing was there, or the page lacks the later turn's message
		default:
			going := f.OpenRun() != nil || f.Status == chunk.StatusPaused && a.due(f)
			if t.LastRun().Start <= c.Seq && !going {
				return nil, "", nil
			}
		}
		return t, "", nil
	}, a.wholeTurn)
}

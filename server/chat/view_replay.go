package chat

import (
	"context"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// replay is the view of a reader without a position: the turn's message from its
// start, then what follows; also for a grace time after the turn became quiet.
// No source: there is nothing to resume.
func (a *attach) replay(ctx context.Context) (Source, error) {
	return a.choose(ctx, func(f *fold.Fold) (*fold.Turn, string, error) {
		t := f.LastTurn()
		switch {
		case f.OpenRun() == nil && len(f.Waiting) > 0 && !f.Asks():
			return nil, f.Waiting[0].ID, nil
		case t == nil, t.Rolled != 0 && f.OpenRun() == nil:
			return nil, "", nil
		case f.OpenRun() == nil && !(f.Status == chunk.StatusPaused && a.due(f)):
			end := t.LastRun().EndTime
			if a.d.Logs.Now().UnixMilli() >= end+a.d.ReplayGrace.Milliseconds() {
				return nil, "", nil
			}
		}
		return t, "", nil
	}, a.wholeTurn)
}

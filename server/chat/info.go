package chat

import (
	"context"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Info is the state of a log, for native clients before they attach.
type Info struct {
	Session     string       `json:"session"`
	Status      chunk.Status `json:"status"`
	Latest      uint64       `json:"latestSequence"`        // of a child: the latest record of it and the agents below it
	Total       uint64       `json:"totalChunks,omitempty"` // all that were ever written; not set for a child
	TraceFloor  uint64       `json:"traceFloor"`
	Floor       uint64       `json:"floor"`
	Incarnation uint64       `json:"incarnation"`
	Error       string       `json:"error,omitempty"`
	Waiting     int          `json:"waiting"` // commands that will open a run
}

// StreamInfo returns the state of a session's log, or of a child's part of it. It fails
// with [spool.ErrNotFound], or the store's errors.
func StreamInfo(ctx context.Context, d *Deps, session string) (*Info, error) {
	g, err := d.Visit(ctx, session)
	if err != nil {
		return nil, err
	}
	h := g.At
	status, err := g.status(ctx)
	if err != nil {
		return nil, err
	}
	info := &Info{session, status, h.Seq, h.Seq, h.TraceFloor, h.Floor, h.Incarnation, "", 0}
	if status != chunk.StatusFailed && h.Due == 0 && !g.Child() {
		return info, nil
	}
	return info, g.View(ctx, func(f *fold.Fold) error {
		info.Waiting = len(f.Waiting)
		if f.Error != nil && status == chunk.StatusFailed {
			info.Error = f.Error.Error
		}
		if g.Child() {
			info.Latest, info.Total = last(f), 0
		}
		return nil
	})
}

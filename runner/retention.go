package runner

import (
	"context"
	"errors"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Retention limits the trace of settled turns: the single deltas of their answers.
// The conversation itself is never trimmed, and neither is the trace of a turn that is
// open or paused. The zero value uses the defaults; a negative field means no limit.
type Retention struct {
	// Age is how long the trace is kept after the last write to a session. 0: 24 h.
	Age time.Duration
	// Records is the number of records before the head whose trace is kept. 0: 10,000.
	Records int
	// Grace is the time after the last write in which nothing is trimmed, so that
	// disconnected readers can still reconnect. 0: 10 min.
	Grace time.Duration
	// Every is the interval between trims. 0: 10 min, negative: never.
	Every time.Duration
}

func (t *Retention) fill() {
	if t.Age == 0 {
		t.Age = 24 * time.Hour
	}
	if t.Records == 0 {
		t.Records = 10_000
	}
	if t.Grace == 0 {
		t.Grace = 10 * time.Minute
	}
	if t.Every == 0 {
		t.Every = 10 * time.Minute
	}
}

// retain sweeps until ctx ends. Several runners may do so on one store, since to trim
// again changes nothing.
func (r *Runner) retain(ctx context.Context) {
	lister, lists := r.logs.Store().(spool.Lister)
	trimmer, trims := r.logs.Store().(spool.Trimmer)
	if !lists || !trims || r.o.Retention.Every < 0 {
		return
	}
	var since int64
	for r.logs.Sleep(ctx, r.o.Retention.Every) == nil {
		now, err := r.sweep(ctx, lister, trimmer, since)
		switch {
		case ctx.Err() != nil || errors.Is(err, spool.ErrClosed):
			return
		case err != nil:
			r.failed("", err)
		default:
			// Whatever was older than this has nothing left to trim.
			since = now - (max(r.o.Retention.Age, r.o.Retention.Grace) + r.o.Retention.Every).Milliseconds()
		}
	}
}

// sweep trims the sessions that were updated since a time, latest first. It goes
// on past sessions that fail, and returns the store's clock when it began, and the first
// error.
func (r *Runner) sweep(ctx context.Context, lister spool.Lister, trimmer spool.Trimmer, since int64) (begun int64, first error) {
	for q := (spool.SessionQuery{Max: 100}); ; {
		page, err := lister.Sessions(ctx, q)
		if err != nil {
			return begun, err
		}
		if begun == 0 {
			begun = page.Now
		}
		for _, info := range page.Sessions {
			if info.Updated < since {
				return begun, first
			}
			floor, err := r.floor(ctx, info, page.Now)
			if err == nil && floor > info.Head.TraceFloor {
				err = trimmer.Trim(ctx, info.Session, floor, 0)
			}
			if ctx.Err() != nil {
				return begun, ctx.Err()
			}
			if err != nil && !errors.Is(err, spool.ErrNotFound) && first == nil {
				first = err
			}
		}
		if q.After = page.NextAfter; q.After == "" {
			return begun, first
		}
	}
}

// floor returns the sequence up to which a session's trace may be trimmed; 0: nothing
// may. The time of the last write to the session decides, not the records' own times.
func (r *Runner) floor(ctx context.Context, info spool.SessionInfo, now int64) (uint64, error) {
	limit, head := &r.o.Retention, info.Head
	rested := time.Duration(now-info.Updated) * time.Millisecond
	if head.TraceFloor >= head.Seq || rested < limit.Grace {
		return 0, nil
	}
	over := (head.Status == chunk.StatusEnded || head.Status == chunk.StatusFailed) && head.Due == 0
	if over && limit.Age >= 0 && rested >= limit.Age {
		return head.Seq, nil
	}
	if limit.Records < 0 || head.Seq-head.TraceFloor <= uint64(limit.Records) {
		return 0, nil
	}
	g, err := r.logs.Log(info.Session)
	if err != nil {
		return 0, err
	}
	var floor uint64
	err = g.View(ctx, func(f *fold.Fold) error {
		for i, turn := range f.Turns {
			last := turn.LastRun()
			open := last.End == 0 || last.Suspended != "" && i == len(f.Turns)-1
			if open || f.Seq-turn.Start() <= uint64(limit.Records) {
				break
			}
			floor = last.End
		}
		return nil
	})
	return floor, err
}

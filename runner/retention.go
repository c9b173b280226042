package runner

import (
	"context"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Retention limits the trace of settled turns: the single deltas of their answers.
// The conversation itself is never trimmed, and neither is the trace of a turn that is
// open or paused. The zero value uses the defaults; a negative field means no limit.
//
// How long whole sessions stay is the policy's: [spool.Limits].TTL.
type Retention struct {
	// Age is how long the trace is kept after the last write to a session. 0: 24 h, and
	// 10 min on a store that keeps everything in memory.
	Age time.Duration
	// Records is the number of records before the head whose trace is kept. 0: 10,000.
	Records int
	// Grace is the time after the last write in which nothing is trimmed, so that
	// disconnected readers can still reconnect. 0: 10 min.
	Grace time.Duration
	// Every is the interval between sweeps, which trim traces and delete sessions.
	// 0: 10 min, negative: never.
	Every time.Duration
}

func (t *Retention) fill(store spool.Store) {
	if t.Age == 0 {
		t.Age = 24 * time.Hour
		if _, ok := store.(spool.Volatile); ok {
			t.Age = 10 * time.Minute
		}
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

// floor returns the sequence up to which a session's trace may be trimmed; 0: nothing
// may. The time of the last write to the session decides, not the records' own times.
func (s *sweeper) floor(ctx context.Context, info spool.SessionInfo, now int64) (uint64, error) {
	limit, head := &s.o, info.Head
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
	g, err := s.logs.Log(info.Session)
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

package chat

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/fold"
)

// counted is the view of a client that counts the frames it received since a
// run's start: uncompacted, from frame start on; a negative start counts from
// the newest frame. key names the run; "" is the latest.
func (a *attach) counted(ctx context.Context, res *Response, key string, start int) error {
	var turn *fold.Turn
	var run *fold.Run
	var command string
	var from uint64
	err := a.g.View(ctx, func(f *fold.Fold) error {
		for _, w := range f.Waiting {
			if key == "" || hash(w.ID) == key {
				command = w.ID
			}
		}
		for i := len(f.Turns) - 1; i >= 0 && run == nil; i-- {
			t := f.Turns[i]
			for j := len(t.Runs) - 1; j >= 0 && run == nil; j-- {
				for _, id := range t.Runs[j].Commands {
					if key == "" || hash(id) == key {
						r, c := *t.Runs[j], *t
						run, turn, command = &r, &c, id
					}
				}
			}
		}
		for id, v := range f.Verdicts { // an answer that an open run took
			if r := f.Run(v.RunID); command == "" && v.From != 0 && r != nil && hash(id) == key {
				r, c := *r, *f.Turn(r.TurnID)
				run, turn, command, from = &r, &c, id, v.From
			}
		}
		return nil
	})
	if err != nil || command == "" {
		return err
	}
	res.RunID = runID(a.g.Session(), command)
	if run == nil {
		res.Stream = a.d.segment(a.g, a.h.Incarnation, []string{command}, a.as, max(start, 0))
		return nil
	}
	n, discarded, err := a.count(ctx, turn, run, command, from)
	if err != nil {
		return err
	}
	tail := n - 1
	res.Tail = &tail
	if start < 0 {
		start = max(n+start, 0)
	}
	if discarded >= 0 && start > discarded {
		return spool.ErrCursorRetracted.With(a.g.Session(), nil)
	}
	if from != 0 {
		res.Stream, err = a.d.rest(ctx, a.g, turn, command, from, a.as, start)
		return err
	}
	res.Stream, err = a.d.run(ctx, a.g, turn, run, a.as, start)
	return err
}

// count returns how many frames a run has so far, the end mark not counted, and
// how many came before its first retraction, or -1. With from set, they are those
// of an answer's segment.
func (a *attach) count(ctx context.Context, turn *fold.Turn, run *fold.Run, command string, from uint64) (n, discarded int, err error) {
	discarded = -1
	after, begun := run.Start-1, false
	if from != 0 {
		after, begun = from, true
	}
	if after < a.h.TraceFloor {
		return 0, -1, spool.ErrTrimmed.With(a.g.Session(), nil)
	}
	until := run.End
	if until == 0 {
		until = a.h.Seq
	}
	p := a.d.projection(a.g, a.h.Incarnation, turn, a.as)
	if from != 0 {
		lead, err := a.d.lead(ctx, a.g, p, turn, command, from, a.as)
		if err != nil {
			return 0, -1, err
		}
		n = len(lead)
	}
	reader := p.Follow(after)
	for at := after; at < until; {
		b, err := reader.NextUntil(ctx, until)
		if err != nil {
			return 0, -1, err
		}
		for _, f := range b.Frames {
			if f.Cut && discarded < 0 {
				discarded = n
			}
			if !isDone(f.Data) && (begun || !own(f.Data)) {
				n++
			}
			begun = begun || f.Seq >= run.Start
		}
		if at = b.At; b.Quiet || len(b.Frames) > b.PlainFrames && b.Frames[len(b.Frames)-1].Terminal {
			break
		}
	}
	return n, discarded, nil
}

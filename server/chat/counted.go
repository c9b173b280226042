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
	var s answering
	err := a.g.View(ctx, func(f *fold.Fold) error {
		s = named(f, key)
		return nil
	})
	if err != nil || s.command == "" {
		return err
	}
	res.RunID = runID(a.g.ID, s.command)
	if s.run == nil {
		res.Stream = a.segment([]string{s.command}, max(start, 0))
		return nil
	}
	n, discarded, err := a.count(ctx, &s)
	if err != nil {
		return err
	}
	tail := n - 1
	res.Tail = &tail
	if start < 0 {
		start = max(n+start, 0)
	}
	if discarded >= 0 && start > discarded {
		return spool.ErrCursorRetracted.With(a.g.ID, nil)
	}
	if s.from != 0 {
		res.Stream, err = a.rest(ctx, &s, start)
		return err
	}
	res.Stream, err = a.run(ctx, s.turn, s.run, start)
	return err
}

// named finds the command that a run id names, and its run if it has one.
func named(f *fold.Fold, key string) answering {
	var s answering
	of := func(r *fold.Run, command string, from uint64) answering {
		run := *r
		return answering{run: &run, turn: copied(f.Turn(r.TurnID)), command: command, from: from}
	}
	for _, t := range f.Turns {
		for _, r := range t.Runs {
			for _, id := range r.Commands {
				if key == "" || hash(id) == key {
					s = of(r, id, 0) // the latest
				}
			}
		}
	}
	for _, w := range f.Waiting {
		if s.run == nil && (key == "" || hash(w.ID) == key) {
			s.command = w.ID
		}
	}
	for id, v := range f.Verdicts { // an answer that an open run accepted
		if r := f.Run(v.RunID); s.command == "" && v.From != 0 && r != nil && hash(id) == key {
			return of(r, id, v.From)
		}
	}
	return s
}

// count returns how many frames a run has so far, without the end mark, and how many
// came before its first retraction, or -1. For an answer to an open run it counts the
// frames of the answer's segment.
func (a *attach) count(ctx context.Context, s *answering) (n, discarded int, err error) {
	discarded = -1
	after, begun := s.run.Start-1, false
	if s.from != 0 {
		after, begun = s.from, true
	}
	if after < a.g.At.TraceFloor {
		return 0, -1, spool.ErrTrimmed.With(a.g.ID, nil)
	}
	until := s.run.End
	if until == 0 {
		until = a.g.At.Seq
	}
	p := a.g.projection(a.as, s.turn)
	if s.from != 0 {
		lead, err := a.lead(ctx, p, s.command, s.from)
		if err != nil {
			return 0, -1, err
		}
		n = len(lead)
	}
	reader := p.Follow(a.g.At, after)
	for at := after; at < until; {
		b, err := reader.NextUntil(ctx, until)
		if err != nil {
			return 0, -1, err
		}
		for _, f := range b.Frames {
			if f.Cut && discarded < 0 {
				discarded = n
			}
			if !f.Uncounted && (begun || !f.Echo) {
				n++
			}
			begun = begun || f.Seq >= s.run.Start
		}
		if at = b.At; b.Quiet || len(b.Frames) > b.PlainFrames && b.Frames[len(b.Frames)-1].Terminal {
			break
		}
	}
	return n, discarded, nil
}

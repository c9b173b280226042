package chat

import (
	"context"
	"errors"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// segment streams the run that answers one of the commands, from its start, and waits
// for it if it has not begun.
func (a *attach) segment(ids []string, skip int) Source {
	return &late{open: func(ctx context.Context) (Source, error) {
		var s answering
		err := a.until(ctx, ids, func(f *fold.Fold) (spool.Look, error) {
			s = answeringOf(f, ids)
			switch {
			case s.run != nil, s.refused:
				return spool.Seen, nil
			case s.waiting:
				return spool.Surely, nil
			}
			return spool.Maybe, nil
		})
		switch {
		case errors.Is(err, io.EOF):
			// Accepted, but no run follows yet: other calls wait for answers.
			return static(a.as.NoRun(s.message, "tool-calls")), nil
		case err != nil:
			return nil, err
		case s.run == nil:
			return static(a.as.NoRun("", "other")), nil
		case s.from != 0:
			return a.rest(ctx, &s, skip)
		}
		return a.run(ctx, s.turn, s.run, skip)
	}}
}

// until is [Session.Until] for what becomes of commands. If the incarnation has been raised
// since the request read the head, since records were lost before that, and the log has the
// commands, it goes on there.
func (a *attach) until(ctx context.Context, ids []string, look func(f *fold.Fold) (spool.Look, error)) error {
	for {
		err := a.g.Until(ctx, look)
		if !errors.Is(err, spool.ErrCursorAhead) {
			return err
		}
		g, there := a.g, false
		h, failed := g.Head(ctx)
		if g.At = h; failed != nil || h.Incarnation <= a.g.At.Incarnation {
			return err
		}
		failed = g.View(ctx, func(f *fold.Fold) error {
			there = f.Verdict(ids[0]).State != fold.VerdictUnknown
			return nil
		})
		if failed != nil || !there {
			return err
		}
		a.g = g
	}
}

// answering is the result of a POST's commands.
type answering struct {
	run     *fold.Run
	turn    *fold.Turn
	command string // the command that the run answers
	from    uint64 // its sequence, if it came while the run was open
	message string // of the latest turn
	refused bool
	waiting bool
}

func answeringOf(f *fold.Fold, ids []string) answering {
	s := answering{refused: refusal(f, ids) != nil}
	if t := f.LastTurn(); t != nil {
		s.message = t.MessageID
	}
	for _, id := range ids {
		v := f.Verdict(id)
		s.waiting = s.waiting || v.State == fold.VerdictWaiting
		if r := f.Run(v.RunID); r != nil {
			run := *r
			s.run, s.turn, s.command, s.from = &run, copied(f.Turn(r.TurnID)), id, v.From
			return s
		}
	}
	return s
}

// run streams one run's frames, or the turn's message if the run's own frames are no
// longer available.
func (a *attach) run(ctx context.Context, turn *fold.Turn, run *fold.Run, skip int) (Source, error) {
	if run.Start-1 < a.g.At.TraceFloor {
		return a.whole(ctx, turn)
	}
	return a.wrap(&turnStream{g: a.g, f: a.g.projection(a.as, turn).Follow(a.g.At, run.Start-1), turn: turn.ID,
		part: &segment{run: run.Start, skip: skip}}), nil
}

// rest streams the frames after an answer that came while its run was open, to that
// run's end or pause. Before them come the outcomes that the other calls of the open
// step had by then. A client that lost its own stream of the run lacks those outcomes;
// for other clients they change nothing.
func (a *attach) rest(ctx context.Context, s *answering, skip int) (Source, error) {
	if s.from < a.g.At.TraceFloor {
		return a.whole(ctx, s.turn)
	}
	p := a.g.projection(a.as, s.turn)
	lead, err := a.lead(ctx, p, s.command, s.from)
	if err != nil {
		return nil, err
	}
	n := min(skip, len(lead))
	src := a.wrap(&turnStream{g: a.g, f: p.Follow(a.g.At, s.from), turn: s.turn.ID,
		part: &segment{run: s.from, begun: true, skip: skip - n}})
	return &led{lead: leadBytes(lead[n:], a.g.cursor(s.from)), Source: src}, nil
}

// lead returns the frames that come before those of the records after from.
func (a *attach) lead(ctx context.Context, p *spool.Projection, command string, from uint64) ([]spool.Frame, error) {
	then, err := p.At(ctx, a.g.At, from)
	if err != nil {
		return nil, err
	}
	r, ok := then.(spool.Rejoiner)
	if !ok {
		return nil, nil
	}
	return r.Rejoin(func(callID string) bool { return AnswerID(wire.Answer{CallID: callID}) == command })
}

func leadBytes(frames []spool.Frame, at spool.Cursor) []byte {
	var out []byte
	for i, f := range frames {
		if i == len(frames)-1 {
			out = at.AppendID(out)
		}
		out = append(out, f.Data...)
	}
	return out
}

// led is a source with frames before it.
type led struct {
	lead []byte
	Source
}

func (l *led) Next(ctx context.Context) ([]byte, error) {
	if lead := l.lead; len(lead) > 0 {
		l.lead = nil
		return lead, nil
	}
	return l.Source.Next(ctx)
}

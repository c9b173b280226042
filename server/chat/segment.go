package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// segment streams the run that answers one of the commands, from its start, and
// waits for it if need be.
func (d *Deps) segment(g subject, incarnation uint64, ids []string, as wire, skip int) Source {
	return &late{open: func(ctx context.Context) (Source, error) {
		for {
			var run *fold.Run
			var turn *fold.Turn
			var seq, from uint64
			var message, command string
			refused, waiting := false, false
			err := view(ctx, g, func(f *fold.Fold) error {
				seq = f.Position()
				refused = refusal(f, ids) != nil
				if t := f.LastTurn(); t != nil {
					message = t.MessageID
				}
				for _, id := range ids {
					v := f.Verdict(id)
					waiting = waiting || v.State == fold.VerdictWaiting
					if r := f.Run(v.RunID); r != nil {
						r, t := *r, *f.Turn(r.TurnID)
						run, turn, command, from = &r, &t, id, v.From
						return nil
					}
				}
				return nil
			})
			switch {
			case err != nil:
				return nil, err
			case run != nil && from != 0:
				return d.rest(ctx, g, turn, command, from, as, skip)
			case run != nil:
				return d.run(ctx, g, turn, run, as, skip)
			case refused:
				return as.settled("", "other"), nil
			}
			switch err := await(ctx, g, incarnation, seq, waiting); {
			case errors.Is(err, io.EOF):
				// Accepted, and nothing to do yet: other calls wait for answers.
				return as.settled(message, "tool-calls"), nil
			case err != nil:
				return nil, err
			}
		}
	}}
}

// run streams one run's frames, or the turn's message where the run's own
// frames can no longer be had.
func (d *Deps) run(ctx context.Context, g subject, turn *fold.Turn, run *fold.Run, as wire, skip int) (Source, error) {
	h, err := g.Head(ctx)
	if err != nil {
		return nil, err
	}
	if run.Start-1 < h.TraceFloor {
		return d.whole(ctx, g, turn, as)
	}
	return d.paced(&turnSource{g: g, f: d.projection(g, h.Incarnation, turn, as).Follow(run.Start - 1), turn: turn.ID,
		incarnation: h.Incarnation, run: run.Start, skip: skip}, as), nil
}

// rest streams what follows an answer that came while its run was open, to that
// run's end or pause. Before it come the outcomes that the open
// step's other calls had by then: a client that lost its own stream of the run
// lacks them, and for any other they change nothing.
func (d *Deps) rest(ctx context.Context, g subject, turn *fold.Turn, command string, from uint64, as wire, skip int) (Source, error) {
	h, err := g.Head(ctx)
	if err != nil {
		return nil, err
	}
	if from < h.TraceFloor {
		return d.whole(ctx, g, turn, as)
	}
	p := d.projection(g, h.Incarnation, turn, as)
	lead, err := d.lead(ctx, g, p, turn, command, from, as)
	if err != nil {
		return nil, err
	}
	n := min(skip, len(lead))
	src := d.paced(&turnSource{g: g, f: p.Follow(from), turn: turn.ID, incarnation: h.Incarnation, run: from, begun: true, skip: skip - n}, as)
	return &led{lead: leadBytes(lead[n:], spool.Cursor{Seq: from, Incarnation: h.Incarnation}), Source: src}, nil
}

// lead returns the frames that come before those of the records after from.
func (d *Deps) lead(ctx context.Context, g subject, p *spool.Projection, turn *fold.Turn, command string, from uint64, as wire) ([]spool.Frame, error) {
	if as.merlin != 0 {
		return nil, nil
	}
	f, err := g.FoldAt(ctx, from)
	if err != nil {
		return nil, err
	}
	settled := map[string]bool{}
	if m := f.Message(turn.MessageID); m != nil {
		for _, part := range m.Parts {
			switch t := part.Tool; {
			case part.Type == chunk.PartStep:
				clear(settled)
			case t != nil && t.State.Done() && AnswerID(Answer{CallID: t.CallID}) != command:
				settled[t.CallID] = true
			}
		}
	}
	plan, err := p.At(ctx, from)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(plan), func(f spool.Frame) bool {
		var frame struct{ Type, ToolCallID string }
		_ = json.Unmarshal(bytes.TrimPrefix(f.Data, []byte("data: ")), &frame) // the end mark is no JSON
		return frame.Type != "start" && !(settled[frame.ToolCallID] && strings.HasPrefix(frame.Type, "tool-output-"))
	}), nil
}

func leadBytes(frames []spool.Frame, at spool.Cursor) []byte {
	var out []byte
	for i, f := range frames {
		if i == len(frames)-1 {
			out = appendID(out, at)
		}
		out = append(out, f.Data...)
	}
	return out
}

// led is a source with something before it.
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

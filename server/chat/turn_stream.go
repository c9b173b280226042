package chat

import (
	"context"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// turnStream reads one turn through its shared projection: the frames of the records
// after a sequence, optionally after a plan.
//
// Terminal frames are held back until the turn is known to be over. If a paused turn
// has continued in the meantime, they are dropped.
type turnStream struct {
	g    Session
	f    *spool.Follower
	turn string
	plan plan     // still to be sent
	part *segment // set for a stream of one run; nil: the whole turn

	held      []byte
	quiet     bool
	replaying bool  // the last result of Next is part of the plan
	end       error // io.EOF, or ErrCut
	buf       []byte
}

// plan is the unsent rest of a plan.
type plan struct {
	frames []spool.Frame
	at     uint64 // its cut
	sent   uint64 // number of frames that were sent or skipped
}

// segment narrows a stream to one run: the stream ends with the run, even if the turn
// continues.
type segment struct {
	run   uint64 // the run's first record
	begun bool   // that record's frames were sent
	skip  int    // number of frames to skip, for a client that counts
}

// Replaying reports whether the last result of Next is part of the plan.
func (s *turnStream) Replaying() bool { return s.replaying }

func (s *turnStream) Next(ctx context.Context) ([]byte, error) {
	if s.end != nil {
		return nil, s.end
	}
	if s.plan.frames != nil {
		if out := s.sendPlan(); len(out) > 0 {
			s.replaying = true
			return out, nil
		}
	}
	s.replaying = false
	for {
		if len(s.held) > 0 {
			over, err := s.over(ctx)
			if err != nil {
				return nil, err
			}
			if over {
				s.end = io.EOF
				return s.held, s.end
			}
		}
		b, err := s.f.Next(ctx)
		if err != nil {
			return nil, err
		}
		s.quiet = b.Quiet
		out := s.take(&b)
		if s.end == nil && s.quiet && len(s.held) == 0 && len(out) == 0 {
			s.end = io.EOF // the reader has already seen the turn's end
		}
		if len(out) > 0 || s.end != nil {
			return out, s.end
		}
	}
}

// take returns the part of a batch that is to be sent now, and holds the rest.
func (s *turnStream) take(b *spool.Batch) []byte {
	plain, rest := b.Bytes[:b.Plain], b.Bytes[b.Plain:]
	last := b.Frames[b.PlainFrames:]
	if s.part != nil && (s.part.skip > 0 || !s.part.begun) {
		plain, rest = s.pick(b)
	}
	switch {
	case len(last) == 0:
		if len(b.Frames) > 0 {
			s.held = nil
		}
		return plain
	case last[len(last)-1].Cut:
		s.end = ErrCut
	case s.part != nil:
		s.end = io.EOF
	default:
		s.held = rest
		return plain
	}
	s.buf = append(append(s.buf[:0], plain...), rest...)
	return s.buf
}

// pick renders a batch frame by frame, without the frames that this reader must not
// get.
func (s *turnStream) pick(b *spool.Batch) (plain, rest []byte) {
	var out []byte
	at := 0
	for i, f := range b.Frames {
		if i == b.PlainFrames {
			at = len(out)
		}
		switch {
		case f.Echo && !s.part.begun:
		case s.part.skip > 0 && !f.Uncounted:
			s.part.skip--
		default:
			if f.Seq != 0 {
				out = s.g.cursor(f.Seq).AppendID(out)
			}
			out = append(out, f.Data...)
		}
		s.part.begun = s.part.begun || f.Seq >= s.part.run && f.Seq != 0
	}
	if b.PlainFrames == len(b.Frames) {
		at = len(out)
	}
	return out[:at:at], out[at:]
}

// sendPlan returns the plan's frames that are not terminal, each with its place in the
// plan as id, and holds the terminal ones.
func (s *turnStream) sendPlan() []byte {
	var out []byte
	for i, f := range s.plan.frames {
		s.plan.sent++
		c := s.g.cursor(s.plan.at)
		if i < len(s.plan.frames)-1 {
			c.InPlan, c.PlanFrames = true, s.plan.sent
		}
		to := &out
		if f.Terminal {
			to = &s.held
		}
		*to = append(c.AppendID(*to), f.Data...)
	}
	s.plan.frames = nil
	return out
}

// over reports whether the turn is over in the log, and whether the reader is at that
// end: it may be at a pause after which a later run has continued.
func (s *turnStream) over(ctx context.Context) (over bool, err error) {
	err = s.g.viewAtEnd(ctx, func(f *fold.Fold) error {
		over = turnOver(f, s.turn, s.quiet || s.g.Child())
		if t := f.Turn(s.turn); t != nil && t.LastRun().Start > s.f.At() {
			over = false
		}
		return nil
	})
	return over, err
}

// turnOver is false while a run of the turn is open, and while it is paused and
// an answer that may reopen it is due.
func turnOver(f *fold.Fold, turn string, quiet bool) bool {
	if open := f.OpenRun(); open != nil {
		return open.TurnID != turn
	}
	switch last := f.LastTurn(); {
	case last != nil && last.ID != turn:
		return true
	case f.Continue != nil: // another run of this turn will follow
		return false
	case len(f.Waiting) > 0:
		return true
	}
	return f.Status != chunk.StatusPaused || quiet
}

// late is a source that is found only after the response has begun, such as a queued
// message's run. open blocks until it exists.
type late struct {
	open func(ctx context.Context) (Source, error)
	src  Source
}

func (l *late) Next(ctx context.Context) ([]byte, error) {
	if l.src == nil {
		src, err := l.open(ctx)
		if err != nil {
			return nil, err
		}
		l.src = src
	}
	return l.src.Next(ctx)
}

func (l *late) Replaying() bool { return l.src != nil && l.src.Replaying() }

// static is a source of fixed bytes.
type static []byte

func (s static) Next(context.Context) ([]byte, error) { return s, io.EOF }

func (s static) Replaying() bool { return false }

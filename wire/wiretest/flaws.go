package wiretest

import (
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// flaws are what a wire must not do, done to the wire under test: the suite is
// worth nothing for a wire if it does not see them there.
var flaws = []struct {
	name string
	wrap func(spool.Projector) spool.Projector
}{
	{"drops frames", func(p spool.Projector) spool.Projector {
		return &flawed{Projector: p, spoil: func(_ *flawed, frames []spool.Frame, n int) []spool.Frame {
			if n%2 == 0 {
				return nil
			}
			return frames
		}}
	}},
	{"doubles frames", func(p spool.Projector) spool.Projector {
		return &flawed{Projector: p, spoil: func(_ *flawed, frames []spool.Frame, _ int) []spool.Frame {
			return append(withoutSeq(frames), frames...)
		}}
	}},
	{"swaps the frames of two records", func(p spool.Projector) spool.Projector {
		return &flawed{Projector: p, spoil: func(f *flawed, frames []spool.Frame, n int) []spool.Frame {
			if n%2 == 0 {
				f.held = withoutSeq(frames)
				return nil
			}
			held := f.held
			if len(held) > 0 {
				held[len(held)-1].Seq = frames[len(frames)-1].Seq
			}
			return append(withoutSeq(frames), held...)
		}}
	}},
}

// flawed spoils what records become; plans stay as they are.
type flawed struct {
	spool.Projector
	spoil func(f *flawed, frames []spool.Frame, n int) []spool.Frame
	n     int // records that became frames of the message
	held  []spool.Frame
}

func (f *flawed) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	frames, err := f.Projector.Apply(nil, r)
	if err == nil && len(frames) > 0 && !slices.ContainsFunc(frames, func(f spool.Frame) bool { return f.Terminal || f.Cut }) {
		frames = f.spoil(f, frames, f.n)
		f.n++
	}
	return append(dst, frames...), err
}

func withoutSeq(frames []spool.Frame) []spool.Frame {
	frames = slices.Clone(frames)
	for i := range frames {
		frames[i].Seq = 0
	}
	return frames
}

// finds reports whether the suite notices a flaw by what a reader ends with, not
// only by the frames' shape.
func (w Wire) finds(wrap func(spool.Projector) spool.Projector) (bool, error) {
	sound := w.New
	w.New = func(turn *fold.Turn) spool.Projector { return wrap(sound(turn)) }
	subjects, err := w.subjects()
	if err != nil {
		return false, err
	}
	for _, c := range checks {
		for _, s := range subjects {
			if c.content && c.check(s) != nil {
				return true, nil
			}
		}
	}
	return false, nil
}

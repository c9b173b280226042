package wiretest

import (
	"errors"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
)

// flaw is what a wire must not do.
type flaw struct {
	name string
	// found is the check that sees it; "" is any that compares what readers end with.
	found   string
	ofLogs  bool // only profiles that show logs can have it
	ofTurns bool // only profiles that show turns can have it
	// wrap returns what makes the flaw in the projectors of one profile.
	wrap func() func(spool.Projector) spool.Projector
}

// flaws are done to the wire under test: the suite is worth nothing for a wire if
// it does not see them there.
var flaws = []flaw{
	{name: "drops frames", wrap: spoiling(func(_ *flawed, frames []spool.Frame, n int) []spool.Frame {
		if n%2 == 0 {
			return nil
		}
		return frames
	})},
	{name: "doubles frames", wrap: spoiling(func(_ *flawed, frames []spool.Frame, _ int) []spool.Frame {
		return append(withoutSeq(frames), frames...)
	})},
	{name: "swaps the frames of two records", wrap: spoiling(func(f *flawed, frames []spool.Frame, n int) []spool.Frame {
		if n%2 == 0 {
			f.held = withoutSeq(frames)
			return nil
		}
		held := f.held
		if len(held) > 0 {
			held[len(held)-1].Seq = frames[len(frames)-1].Seq
		}
		return append(withoutSeq(frames), held...)
	})},
	{name: "echoes what nobody said", found: "frames are marked as what they are", wrap: marking(func(f *spool.Frame) { f.Echo = true })},
	{name: "takes back without a cut", found: "frames are marked as what they are", wrap: marking(func(f *spool.Frame) { f.Since = 1 })},
	{name: "does not count what it says", found: "frames that are not counted say nothing", wrap: marking(func(f *spool.Frame) { f.Uncounted = true })},
	{name: "shares state between its projectors", found: "the projectors of a profile share nothing", wrap: func() func(spool.Projector) spool.Projector {
		var latest *flawed
		return spoiling(func(f *flawed, frames []spool.Frame, n int) []spool.Frame {
			foreign := n > 0 && latest != f
			if latest = f; foreign {
				return nil
			}
			return frames
		})()
	}},
	{name: "remembers earlier records", found: "frames of a log depend on their record alone", ofLogs: true,
		wrap: spoiling(func(_ *flawed, frames []spool.Frame, n int) []spool.Frame {
			if n == 0 {
				return nil
			}
			return frames
		})},
	{name: "tells a failure with its error and with the run's end", found: "a failure is shown once", ofTurns: true,
		wrap: func() func(spool.Projector) spool.Projector {
			return func(p spool.Projector) spool.Projector { return talkative{p} }
		}},
	{name: "cannot plan", found: "the same records become the same frames", wrap: func() func(spool.Projector) spool.Projector {
		return func(p spool.Projector) spool.Projector { return planless{p} }
	}},
}

// spoiling changes what records become.
func spoiling(spoil func(f *flawed, frames []spool.Frame, n int) []spool.Frame) func() func(spool.Projector) spool.Projector {
	return func() func(spool.Projector) spool.Projector {
		return func(p spool.Projector) spool.Projector { return &flawed{Projector: p, spoil: spoil} }
	}
}

// marking changes the marks of every frame.
func marking(mark func(*spool.Frame)) func() func(spool.Projector) spool.Projector {
	return spoiling(func(_ *flawed, frames []spool.Frame, _ int) []spool.Frame {
		frames = slices.Clone(frames)
		for i := range frames {
			mark(&frames[i])
		}
		return frames
	})
}

// planless has no plan.
type planless struct{ spool.Projector }

func (planless) Plan() ([]spool.Frame, error) { return nil, errors.New("there is no plan") }

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

// finds reports whether the suite notices a flaw: by the check that is for it, or
// by what a reader ends with, not only by the frames' shape.
func (w Wire) finds(flaw flaw) (bool, error) {
	sound, wrap := w.Profile.Projector, flaw.wrap()
	w.Profile.Projector = func(s wire.Subject) spool.Projector { return wrap(sound(s)) }
	subjects, err := w.subjects()
	if err != nil {
		return false, err
	}
	for _, c := range checks {
		for _, s := range subjects {
			if (c.name == flaw.found || flaw.found == "" && c.content) && c.check(s) != nil {
				return true, nil
			}
		}
	}
	return false, nil
}

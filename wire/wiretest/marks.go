package wiretest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// checkMarks: an echo is of a record that begins one of the agent's runs, and only
// a cut says since when.
func checkMarks(s *subject) error {
	if s.Profile.Key == "" {
		return errors.New("the profile has no key")
	}
	r, err := s.whole()
	if err != nil {
		return err
	}
	for i, frames := range r.frames {
		of := s.records[i]
		for j, f := range frames {
			var err error
			switch {
			case f.Echo && (of.Type != chunk.TypeRunStarted || of.Agent != s.agent()):
				err = errors.New("it is an echo of what nobody has just sent")
			case f.Since != 0 && !f.Cut:
				err = fmt.Errorf("it cuts nobody, since %d", f.Since)
			case f.Since > of.Seq:
				err = fmt.Errorf("it takes back what comes later, from %d on", f.Since)
			}
			if err != nil {
				return fmt.Errorf("frame %d of record %d (%s): %w", j+1, of.Seq, of.Type, err)
			}
		}
	}
	for c, plan := range r.plans {
		for j, f := range plan {
			if f.Echo || f.Since != 0 {
				return fmt.Errorf("frame %d of the plan at %s is an echo, or takes something back", j+1, s.at(c))
			}
		}
	}
	return nil
}

// checkUncounted: a client that is not sent the frames that are not counted knows
// the same.
func checkUncounted(s *subject) error {
	r, err := s.whole()
	if err != nil {
		return err
	}
	stops := []int{len(s.records)}
	for _, seq := range ends(s.records) {
		stops = append(stops, int(seq-s.records[0].Seq)+1)
	}
	for _, n := range stops {
		for _, from := range []int{0, n} {
			all, err := s.fold(s.stream(r, from, n))
			if err != nil {
				return err
			}
			counted, err := s.fold(s.streamOf(r, from, n, func(f spool.Frame) bool { return !f.Uncounted }))
			if err != nil {
				return fmt.Errorf("at %s, without what is not counted: %w", s.at(n), err)
			}
			if all != counted {
				return fmt.Errorf("at %s, frames that are not counted say something: %s", s.at(n), firstLine(all, counted))
			}
		}
	}
	return nil
}

// checkSince: a reader that stayed until a cut stands inside what it takes back,
// and is told so when it comes back with its cursor.
func checkSince(s *subject) error {
	r, err := s.whole()
	if err != nil {
		return err
	}
	at := uint64(0) // the cursor of who never left
	for i, frames := range r.frames {
		for _, f := range frames {
			if f.Seq != 0 && !f.Terminal { // those are not sent to who passes them
				at = f.Seq
			}
			if f.Cut && f.Since > at {
				return fmt.Errorf("record %d (%s) takes back what was sent since %d, and who was cut stands at %d", s.records[i].Seq, s.records[i].Type, f.Since, at)
			}
		}
	}
	return nil
}

// checkApart: two projectors of a profile that take turns make the frames that
// each makes alone.
func checkApart(s *subject) error {
	alone, err := s.whole()
	if err != nil {
		return err
	}
	one, other := s.projector(), s.projector()
	for i, r := range s.records {
		for _, p := range []spool.Projector{one, other} {
			frames, err := p.Apply(nil, r)
			if err != nil {
				return err
			}
			if d := difference(alone.frames[i], frames); d != "" {
				return fmt.Errorf("beside another projector, record %d (%s): %s", r.Seq, r.Type, d)
			}
		}
	}
	return nil
}

// checkStateless: a reader of a log may begin behind any record.
func checkStateless(s *subject) error {
	if !s.ofLog() {
		return nil
	}
	whole, err := s.whole()
	if err != nil {
		return err
	}
	for i, r := range s.records {
		if s.Profile.Log.Chained {
			if err := s.chained(whole, i); err != nil {
				return fmt.Errorf("from record %d (%s) on: %w", r.Seq, r.Type, err)
			}
			continue
		}
		frames, err := s.projector().Apply(nil, r)
		if err != nil {
			return err
		}
		if d := difference(whole.frames[i], frames); d != "" {
			return fmt.Errorf("of record %d (%s) alone: %s", r.Seq, r.Type, d)
		}
	}
	return nil
}

// chained checks a reader that begins behind i records: the first record that it is shown
// comes from a projector that knows no other, and the next frames are everybody's.
func (s *subject) chained(whole run, i int) error {
	p, first := s.projector(), 0
	came := run{plans: whole.plans, frames: slices.Clone(whole.frames)}
	for n := i; n < len(s.records); n++ {
		frames, err := p.Apply(nil, s.records[n])
		switch {
		case err != nil:
			return err
		case (len(frames) == 0) != (len(whole.frames[n]) == 0):
			return fmt.Errorf("record %d is %d frames, and %d for who was there before", s.records[n].Seq, len(frames), len(whole.frames[n]))
		case len(frames) == 0:
		case first == 0:
			came.frames[n], first = frames, n+1
		default:
			if d := difference(whole.frames[n], frames); d != "" {
				return fmt.Errorf("record %d, the second: %s", s.records[n].Seq, d)
			}
			if i%max(1, s.stride, s.Stride, len(s.records)/32) != 0 {
				return nil
			}
			stayed, err := s.fold(s.stream(whole, 0, len(s.records)))
			if err != nil {
				return err
			}
			back, err := s.fold(s.stream(came, 0, len(s.records)))
			if err != nil || back != stayed {
				return fmt.Errorf("who comes back there and who never left differ: %s (%w)", firstLine(back, stayed), err)
			}
			return nil
		}
	}
	return nil
}

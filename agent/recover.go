package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// CrashRecovery is why the step of a run whose owner was lost is discarded.
const CrashRecovery = "crash_recovery"

// TakeOver returns what the new owner of an agent's open run writes before anything
// else: the checkpoint that the last owner did not write, and what discards an open
// model phase that cannot go on. discarded is the number of that phase's step; 0: none
// is discarded.
func (a *Agent) TakeOver(f *fold.Fold) (chunks []chunk.Chunk, discarded int) {
	chunks = f.Owed().First()
	if f.Shown() && !a.Resumes(f) && !a.keepsPartial(f) {
		chunks, discarded = append(chunks, f.Owed().Discard(CrashRecovery)...), f.Step().Number
	}
	return chunks, discarded
}

// keepsPartial reports whether the open model phase is one that is not made again: it
// ends the run as it stands.
func (a *Agent) keepsPartial(f *fold.Fold) bool {
	return a.FailPartial && shownWords(f) && !a.Resumes(f)
}

// shownWords reports whether the open model phase has shown something of the model.
func shownWords(f *fold.Fold) bool {
	return f.Phase() == fold.PhaseModel && slices.ContainsFunc(f.Said(), func(p chunk.Part) bool {
		return p.Type != chunk.PartData // that is of hooks
	})
}

// stand finds out how a run goes on that another process, or the turn's last run, has
// left without an answer to go on with: in the tool phase, or after what the last step has
// decided.
func (d *Driver) stand() (fold.Phase, Result, error) {
	a, r := d.agent, d.run
	if err := a.refusePartial(d.ctx, r); err != nil {
		return fold.PhaseNone, Result{}, err
	}
	s := &step{agent: a, run: r}
	phase, err := s.readLast(d.ctx)
	if err != nil {
		return fold.PhaseNone, Result{}, err
	}
	r.Info.Steps = s.number
	if phase == fold.PhaseTools {
		d.step, d.late = s, true
		return fold.PhaseTools, Result{}, nil
	}
	if s.number > 0 {
		result, _, rejected := s.judge()
		if rejected != nil {
			s.correct(rejected)
		}
		if result, err = a.join(d.ctx, r, result, nil); err != nil || result.Over() {
			return fold.PhaseNone, result, err
		}
	}
	return d.boundary()
}

// refusePartial returns ErrLost if the open model phase is not to be made again.
func (a *Agent) refusePartial(ctx context.Context, r *Run) error {
	return r.Log.View(ctx, func(f *fold.Fold) error {
		if a.keepsPartial(f) {
			return ErrLost
		}
		return nil
	})
}

// readLast makes s the last step of the turn that has said something, with its calls
// and text, and returns the phase that is open.
func (s *step) readLast(ctx context.Context) (phase fold.Phase, err error) {
	a, r := s.agent, s.run
	err = r.Log.View(ctx, func(f *fold.Fold) error {
		phase = f.Phase()
		v := f.Step()
		s.number, s.id, s.finish, s.paused, s.fatal = v.Number, v.ID, v.Finish, v.More, v.Fatal
		run := f.OpenRun()
		r.begun = ""
		if run.Steps > 0 || phase == fold.PhaseTools && strings.HasPrefix(s.id, run.ID+"-s") {
			r.begun = "-" // in an earlier step, or in the part of this one that is over
		}
		steps := turnSteps(f)
		if phase == fold.PhaseModel { // it has said nothing: the one before counts
			s.number--
			steps = steps[:len(steps)-1]
		}
		if n := len(steps) - 1; n >= 0 {
			s.take(steps[n])
			r.judgeEarlier(a, steps[:n])
		}
		return nil
	})
	if err != nil {
		return phase, err
	}
	for _, c := range s.calls {
		if c.part == nil || len(c.part.Input) == 0 {
			continue
		}
		input, err := r.Log.Blob(ctx, c.part.Input)
		if err != nil {
			return phase, err
		}
		c.args = string(input)
	}
	return phase, nil
}

// judgeEarlier finds out whether the model was already asked for a better answer.
func (r *Run) judgeEarlier(a *Agent, steps [][]chunk.Part) {
	for _, parts := range steps {
		s := &step{agent: a, run: r}
		s.take(parts)
		if _, _, rejected := s.judge(); rejected != nil {
			r.corrected = true
		}
	}
}

// turnSteps returns the parts of each step of the turn so far.
func turnSteps(f *fold.Fold) [][]chunk.Part {
	var steps [][]chunk.Part
	if m := f.Message(f.LastTurn().MessageID); m != nil {
		for _, p := range m.Parts {
			if p.Type == chunk.PartStep {
				steps = append(steps, nil)
			} else if n := len(steps); n > 0 {
				steps[n-1] = append(steps[n-1], p)
			}
		}
	}
	return steps
}

// take makes the step's calls and text from what the log has of it.
func (s *step) take(parts []chunk.Part) {
	for _, p := range parts {
		switch {
		case p.Type == chunk.PartText:
			s.text.WriteString(p.Text)
		case p.Type == chunk.PartData && p.Name == "output":
			s.output = true
		case p.Tool != nil:
			t := *p.Tool
			c := &call{id: t.CallID, name: t.Name, args: t.InputText, ended: true,
				providerExecuted: t.ProviderExecuted, effectID: t.EffectID, part: &t}
			if t.Approval != nil {
				approval := *t.Approval
				t.Approval = &approval
			}
			s.calls = append(s.calls, c)
		}
	}
}

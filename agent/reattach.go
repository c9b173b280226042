package agent

import (
	"context"
	"errors"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
)

// Resumes reports whether the open model phase can go on with the answer that
// another process has asked for. Then the phase need not be discarded.
func (a *Agent) Resumes(f *fold.Fold) bool {
	_, ok := a.Model.(model.Resumer)
	return ok && f.Phase() == fold.PhaseModel && f.Answer() != ""
}

// cancelLimit bounds the attempt to end an answer that nobody waits for.
const cancelLimit = 5 * time.Second

// Abandon ends the provider's work on an answer that [fold.Fold.Answer] named. It
// takes a few seconds at most by the clock of the seams, whatever ctx says, and is
// harmless if there is nothing to end.
func (a *Agent) Abandon(ctx context.Context, s Seams, cursor string) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	m, ok := a.Model.(model.Resumer)
	if !ok || cursor == "" {
		return nil
	}
	ctx, cancel := s.within(context.WithoutCancel(ctx), cancelLimit, context.DeadlineExceeded)
	defer cancel()
	return m.CancelAnswer(ctx, cursor)
}

// position stores the first cursor with which the answer can be taken up again. One
// is enough: the answer is then heard from its beginning, and compared with what the
// log has of it.
func (t *transcript) position(ctx context.Context, p model.Position) error {
	if t.cursor != "" || t.visible || p.Cursor == "" || len(p.Cursor) > chunk.MaxCursorBytes {
		return nil
	}
	t.cursor = p.Cursor
	return t.step.append(ctx, &chunk.AnswerStarted{StepID: t.step.id, Cursor: p.Cursor})
}

// reattach goes on with the answer of the open model phase and closes the phase.
// The answer is heard again from its beginning, and what the log lacks of it is
// appended. It returns nil if there is no answer to go on with; nothing of one is
// shown then.
func (a *Agent) reattach(ctx context.Context, r *Run) (*step, error) {
	s := &step{agent: a, run: r, begun: true}
	open, err := s.openAnswer(ctx)
	if err != nil || open == nil {
		return nil, err
	}
	r.callIDs, r.Info.Steps = open.callIDs, s.number
	r.stepStarted(s.number)
	ended := s.modelCalled(0, true)
	err = s.resume(ctx, open)
	call := ended(err)
	r.spend(s.usage)
	switch {
	case err == nil:
		if err := s.afterModel(ctx, call); err != nil {
			return nil, err
		}
		return s, s.closeModelPhase(ctx)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, s.giveUp(ctx, open, err)
}

// openAnswer is what the log says of an answer that another process has asked for.
type openAnswer struct {
	cursor  string          // with which it is taken up again
	before  *said           // what the log has of it; nil: nothing
	callIDs map[string]bool // those of the session but not of the answer
}

// openAnswer makes the step the one whose model phase is open, and returns the
// answer with which it can go on, or nil.
func (s *step) openAnswer(ctx context.Context) (open *openAnswer, err error) {
	a, r := s.agent, s.run
	err = r.Log.View(ctx, func(f *fold.Fold) error {
		if !a.Resumes(f) {
			return nil
		}
		v, parts := f.Step(), f.Said()
		s.number, s.id = v.Number, v.ID
		open = &openAnswer{cursor: f.Answer(), callIDs: callIDs(f)}
		for _, p := range parts {
			if p.Tool != nil {
				delete(open.callIDs, p.Tool.CallID)
			}
		}
		if f.Shown() {
			open.before = newSaid(parts)
		}
		if r.begun = s.id; f.OpenRun().Steps > 0 {
			r.begun = "-" // BeforeRun was called in an earlier step
		}
		steps := turnSteps(f)
		r.judgeEarlier(a, steps[:len(steps)-1])
		return nil
	})
	return open, err
}

// callIDs returns the ids of the calls that a session's messages hold or held.
func callIDs(f *fold.Fold) map[string]bool {
	ids := map[string]bool{}
	for _, id := range f.Retired {
		ids[id] = true
	}
	for _, m := range f.Messages {
		for _, p := range m.Parts {
			if p.Tool != nil {
				ids[p.Tool.CallID] = true
			}
		}
	}
	return ids
}

// giveUp discards what the log has of an answer that could not be heard to its end,
// if another model call may help and may be made: nil. Otherwise it returns why the
// answer could not be heard.
func (s *step) giveUp(ctx context.Context, open *openAnswer, err error) error {
	failed, ok := errors.AsType[*model.Error](err)
	gone := ok && failed.Code == model.CodeGone
	if !gone && (!ok || !failed.Retryable) {
		return err
	}
	if kept, err := s.partialKept(ctx); err != nil {
		return err
	} else if kept && gone {
		return ErrLost.With("", failed)
	} else if kept {
		return failed
	}
	s.run.callIDs = nil
	if !gone {
		_ = s.agent.Abandon(ctx, s.run.Seams, open.cursor)
		if err := s.run.Seams.Sleep(ctx, min(max(time.Second, failed.RetryAfter), maxBackoff)); err != nil {
			return context.Cause(ctx)
		}
	}
	if err := s.discard(ctx, CrashRecovery); err != nil {
		return err
	}
	return s.run.Log.Flush(ctx)
}

// partialKept reports whether what was shown of an answer is to end the run as it is.
func (s *step) partialKept(ctx context.Context) (kept bool, err error) {
	if !s.agent.FailPartial {
		return false, nil
	}
	if err := s.run.Log.Flush(ctx); err != nil {
		return false, err
	}
	err = s.run.Log.View(ctx, func(f *fold.Fold) error {
		kept = shownWords(f)
		return nil
	})
	return kept, err
}

// resume hears an answer from its beginning.
func (s *step) resume(ctx context.Context, open *openAnswer) error {
	if err := s.run.ready(ctx); err != nil {
		return err
	}
	m := s.agent.Model.(model.Resumer)
	t := &transcript{step: s, ids: map[string]*call{}, cursor: open.cursor, before: open.before}
	err := t.stream(ctx, m.Resume(ctx, open.cursor))
	if !errors.Is(err, errDiverged) {
		return err
	}
	// The provider's word counts: what the log has of it is retracted.
	t.forget()
	s.run.stepDiscarded(s.number, "provider_restarted")
	err = s.append(ctx, &chunk.StepDiscarded{StepID: s.id, Reason: "provider_restarted"}, &chunk.StepStarted{StepID: s.id},
		&chunk.AnswerStarted{StepID: s.id, Cursor: open.cursor})
	if err == nil {
		err = s.hookAgain(ctx)
	}
	if err != nil {
		return err
	}
	t = &transcript{step: s, ids: map[string]*call{}, cursor: open.cursor}
	return t.stream(ctx, m.Resume(ctx, open.cursor))
}

package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// Submit answers a call of a run that is paused, or that has asked for the answer and
// still executes other calls. The first answer to a call counts; a repeat of it has the
// same result. The turn continues once no answer is missing; Submit does not wait for
// that. Errors: [spool.ErrNotFound], [ErrNoSuchCall], [ErrAlreadyAnswered] if a
// different answer was given before, [ErrTooLate], [ErrNotWaiting], [ErrResultInvalid]
// if the tool in Deps.Agents refuses the result, and the store's.
func Submit(ctx context.Context, d *Deps, session string, a wire.Answer) (*Settled, error) {
	g, err := d.Visit(ctx, session)
	if err != nil {
		return nil, err
	}
	s := &Settled{Session: session}
	known := false
	look := func(f *fold.Fold) error {
		s.StreamSequence, s.Status, s.Reason = f.Position(), f.Status, f.Reason
		s.pend(f.Live() && !f.Asks())
		owner, t, found := locate(f, a)
		var err error
		if known, err = given(f, owner, t, found); err == nil && !known {
			err = d.fits(owner, t, found)
		}
		s.RunID, a = f.Verdict(AnswerID(found)).RunID, found
		return err
	}
	if err := g.View(ctx, look); err != nil || known {
		return s, err
	}
	if err := g.command(ctx, spool.Row{}, answerChunk(a, AnswerID(a))); err != nil {
		return nil, err
	}
	if err := g.View(ctx, look); err != nil {
		return nil, err
	}
	if !known {
		return nil, ErrTooLate.With(session, nil)
	}
	return s, nil
}

// given reports whether the session has this very answer already. It fails if the
// session does not take the answer.
func given(f, owner *fold.Fold, t *chunk.ToolPart, a wire.Answer) (bool, error) {
	switch {
	case t == nil:
		return false, ErrNoSuchCall.With(f.Session, nil)
	case a.ApprovalID != "" && t.Approval.Approved != nil:
		if *t.Approval.Approved != a.Approved {
			return false, ErrAlreadyAnswered.With(f.Session, nil)
		}
		return true, nil
	case a.ApprovalID == "" && t.State.Done() && f.Verdict(AnswerID(a)).State == fold.VerdictAccepted:
		if t.Error != a.Error || a.Error == "" && !sameValue(t.Output, a.Output) {
			return false, ErrAlreadyAnswered.With(f.Session, nil)
		}
		return true, nil
	case t.State.Done():
		return false, ErrTooLate.With(f.Session, nil)
	case a.ApprovalID == "" && t.Approval != nil:
		return false, ErrNoSuchCall.Because("this call waits for an approval, not for a result").With(f.Session, nil)
	case !asks(owner, t, a):
		return false, ErrNotWaiting.With(f.Session, nil)
	}
	return false, nil
}

// sameValue compares JSON without white space. A large value in the log is a reference,
// which is not looked up.
func sameValue(stored, given json.RawMessage) bool {
	var a, b bytes.Buffer
	if errors.Join(json.Compact(&a, stored), json.Compact(&b, given)) != nil {
		return false
	}
	return bytes.Equal(a.Bytes(), b.Bytes()) || len(given) > chunk.MaxInlineBytes
}

package chat

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// Without content replay, a snapshot holds the live turn's message as far as it was
// written, under an id that ends in PartialSuffix, and the stream continues after it.

// PartialSuffix ends the id of a message that is still being written.
const PartialSuffix = "-partial"

// continuing is the profile of readers that may have the message from a snapshot.
func (a *attach) continuing() *wire.Profile {
	if a.as.Continuing == nil {
		return a.as
	}
	as := a.as.Continuing()
	return &as
}

// continued shows a turn to a page that has the snapshot at c: the starts of what was open
// there, and then the frames after c. A turn that was not in the snapshot is shown from
// its start.
func (a *attach) continued(ctx context.Context, t *fold.Turn, c spool.Cursor) (Source, error) {
	if c.Seq <= t.Start() {
		return a.whole(ctx, t)
	}
	if c.Seq < a.g.At.TraceFloor {
		return nil, spool.ErrTrimmed.With(a.g.ID, nil)
	}
	then, err := a.g.projection(a.continuing(), t).At(ctx, a.g.At, c.Seq)
	if err != nil {
		return nil, err
	}
	r, ok := then.(wire.Reopener)
	if !ok {
		return a.after(ctx, t, c)
	}
	lead, begun, err := r.Reopen()
	if err != nil {
		return nil, err
	}
	if !begun {
		return a.whole(ctx, t)
	}
	src, err := a.after(ctx, t, c)
	if err != nil || len(lead) == 0 {
		return src, err
	}
	return &led{lead: leadBytes(lead, c), Source: src}, nil
}

// elsewhere reports whether a client that posts answers has the turn's message under
// another id: a snapshot's, or one of its own for what followed on a snapshot.
func elsewhere(f *fold.Fold, b *wire.Body) bool {
	t := f.LastTurn()
	return len(b.Answers) > 0 && b.MessageID != "" && t != nil && b.MessageID != t.MessageID
}

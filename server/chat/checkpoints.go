package chat

import (
	"context"
	"slices"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Checkpoint is a checkpoint and its place in the history.
type Checkpoint struct {
	fold.Checkpoint
	TurnID    string `json:"turnId,omitempty"`
	MessageID string `json:"messageId,omitempty"` // the assistant message that it is in
	// StepIndex counts that message's steps from 0; -1: a rewind or an edit has removed
	// the step from the history.
	StepIndex int `json:"stepIndex"`
}

// CheckpointsOptions select a page of the checkpoints.
type CheckpointsOptions struct {
	Offset int // number of checkpoints to skip, in the requested order
	Limit  int // 0: 50; at most 1000
	Newest bool
}

// CheckpointsPage is a page of the checkpoints.
type CheckpointsPage struct {
	Items   []Checkpoint `json:"items"`
	Total   int          `json:"total"`
	HasMore bool         `json:"hasMore"`
}

// Checkpoints returns a page of a session's checkpoints, oldest first or newest
// first. Errors: [spool.ErrNotFound], [chunk.ErrInvalid], and the store's.
func Checkpoints(ctx context.Context, d *Deps, session string, o CheckpointsOptions) (*CheckpointsPage, error) {
	if err := CheckPage(o.Offset, o.Limit); err != nil {
		return nil, err
	}
	g, err := d.Visit(ctx, session)
	if err != nil {
		return nil, err
	}
	page := &CheckpointsPage{Items: []Checkpoint{}}
	err = g.View(ctx, func(f *fold.Fold) error {
		page.Total = len(f.Checkpoints)
		from, to := PageOf(page.Total, o.Offset, o.Limit)
		page.HasMore = to < page.Total
		if o.Newest {
			from, to = page.Total-to, page.Total-from
		}
		for _, c := range f.Checkpoints[from:to] {
			page.Items = append(page.Items, placed(f, c))
		}
		return nil
	})
	if o.Newest {
		slices.Reverse(page.Items)
	}
	return page, err
}

// placed finds a checkpoint's step in the history.
func placed(f *fold.Fold, c fold.Checkpoint) Checkpoint {
	out := Checkpoint{Checkpoint: c, StepIndex: -1}
	run := f.Run(c.RunID)
	if run == nil {
		return out
	}
	out.TurnID, out.MessageID = run.TurnID, f.Turn(run.TurnID).MessageID
	m := f.Message(out.MessageID)
	if m == nil {
		return out
	}
	steps := 0
	for _, p := range m.Parts {
		if p.Type != chunk.PartStep {
			continue
		}
		if p.ID == c.StepID {
			out.StepIndex = steps
		}
		steps++
	}
	return out
}

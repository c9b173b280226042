package chat

import (
	"cmp"
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/branch"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// BranchOptions say where a branch begins and how it continues.
type BranchOptions struct {
	CheckpointID string
	Session      string // the new session's id; "": an id made from CommandID, or a random one
	CommandID    string // the idempotency key; "": Session, if it is given
	Principal    string // the new session's principal; "": the source's
	// Message opens a turn in the branch; nil opens none.
	Message *chunk.Message
}

// ModeBranch is the mode of a resume that makes a new session.
const ModeBranch = "branch"

// Branched is the state of a branch, and its origin.
type Branched struct {
	Settled
	Origin *fold.Origin `json:"origin"`
}

// BranchSession returns the id of the session that [Branch] makes.
func BranchSession(d *Deps, session string, o BranchOptions) string {
	switch {
	case o.Session != "":
		return o.Session
	case o.CommandID != "":
		return "branch-" + hash(session, o.CommandID)
	}
	return d.Logs.NewID()
}

// Branch copies a session up to a checkpoint into a new one; see [branch.Make].
// With a message a turn begins in the branch; Branch does not wait for it. Errors:
// [spool.ErrNotFound] for an unknown session or checkpoint, [spool.ErrExists] if the
// new session's id is taken, [chunk.ErrInvalidID], [ErrNoMessage] for an empty message,
// and the store's.
func Branch(ctx context.Context, d *Deps, session string, o BranchOptions) (*Branched, error) {
	if o.Message != nil && len(o.Message.Parts) == 0 {
		return nil, ErrNoMessage.Because("the message is empty").With(session, nil)
	}
	if err := CheckSession(session); err != nil {
		return nil, err
	}
	if _, err := d.Visit(ctx, session); err != nil {
		return nil, err
	}
	to := BranchSession(d, session, o)
	origin, err := branch.Make(ctx, d.Logs, session, branch.Options{CheckpointID: o.CheckpointID, Session: to, CommandID: o.CommandID, Principal: o.Principal})
	if err != nil {
		return nil, err
	}
	b, err := d.Logs.Log(to)
	if err != nil {
		return nil, err
	}
	if o.Message != nil {
		id := "branch-" + hash(to, o.CommandID)
		m := *o.Message
		if m.ID == "" || chunk.CheckID(m.ID) != nil {
			m.ID = id
		}
		m.Role = chunk.RoleUser
		c := &chunk.UserMessage{CommandID: id, Message: m, WhenBusy: chunk.BusyQueue}
		if err := b.View(ctx, func(f *fold.Fold) error {
			repeated, err := known(f, id, fold.Digest(c))
			if !repeated {
				return cmp.Or(checkMessageID(f, m.ID), checkNewID(f, m.ID))
			}
			o.Message = nil
			return cmp.Or(err, refusal(f, []string{id}))
		}); err != nil {
			return nil, err
		}
		if o.Message != nil {
			if _, err := b.CommandFor(ctx, spool.Row{Principal: b.Known().Principal}, c); err != nil {
				return nil, err
			}
		}
	}
	s := &Branched{Settled: Settled{Session: to}, Origin: origin}
	err = b.View(ctx, func(f *fold.Fold) error {
		s.StreamSequence, s.Status, s.Reason = f.Seq, f.Status, f.Reason
		if f.Live() {
			s.Status, s.Reason, s.Pending = chunk.StatusActive, "", true
		}
		return nil
	})
	return s, err
}

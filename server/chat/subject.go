package chat

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire/aisdk"
)

// subject is the agent whose session a request is about: a root, or a child, of
// whatever generation, whose records are in its root's log. Positions are those
// of that log.
type subject struct {
	*spool.Log // the root's
	agent      string
}

// subject returns a session's, root or child.
func (d *Deps) subject(session string) (subject, error) {
	if err := CheckReadable(session); err != nil {
		return subject{}, err
	}
	g, err := d.Logs.Log(chunk.RootID(session))
	return subject{g, session}, err
}

// CheckReadable checks the id of a session that is read: a root's or a child's.
func CheckReadable(session string) error {
	if err := chunk.CheckID(session); err != nil {
		return err
	}
	return chunk.CheckSessionID(chunk.RootID(session))
}

// Session returns the agent's session.
func (s subject) Session() string { return s.agent }

func (s subject) child() bool { return s.agent != s.Log.Session() }

// View is [spool.Log.View] of the agent's own fold; [spool.ErrNotFound] if there
// is no such agent.
func (s subject) View(ctx context.Context, fn func(f *fold.Fold) error) error {
	return s.Log.View(ctx, func(f *fold.Fold) error {
		own := f.Child(s.agent)
		if own == nil {
			return spool.ErrNotFound.With(s.agent, nil)
		}
		return fn(own)
	})
}

// FoldAt is [spool.Log.FoldAt] of the agent's own fold.
func (s subject) FoldAt(ctx context.Context, seq uint64) (*fold.Fold, error) {
	f, err := s.Log.FoldAt(ctx, seq)
	if err != nil {
		return nil, err
	}
	if f = f.Child(s.agent); f == nil {
		return nil, spool.ErrNotFound.With(s.agent, nil)
	}
	return f, nil
}

// Head is the root's, with a child's own status.
func (s subject) Head(ctx context.Context) (spool.Head, error) {
	h, err := s.Log.Head(ctx)
	if err != nil || !s.child() {
		return h, err
	}
	err = s.View(ctx, func(f *fold.Fold) error {
		h.Status = f.Status
		if f.Live() && !f.Asks() {
			h.Status = chunk.StatusActive
		}
		return nil
	})
	return h, err
}

// last is the sequence of the latest record of an agent or of any below it.
func last(f *fold.Fold) uint64 {
	seq := f.Seq
	for _, c := range f.Children {
		seq = max(seq, last(c))
	}
	return seq
}

// children are the sub-agents of a fold's messages.
type children struct {
	root string
	of   map[string][]*aisdk.SubAgent // by message
}

func childrenOf(f *fold.Fold, messages []chunk.Message) children {
	c := children{root: f.Session}
	for i := range messages {
		if list := aisdk.SubAgentsOf(f, messages[i].ID); len(list) > 0 {
			if c.of == nil {
				c.of = map[string][]*aisdk.SubAgent{}
			}
			c.of[messages[i].ID] = list
		}
	}
	return c
}

func (c children) get(m *chunk.Message) (string, []*aisdk.SubAgent) { return c.root, c.of[m.ID] }

func (c children) rename(id, to string) {
	if list := c.of[id]; list != nil {
		c.of[to] = list
	}
}

// agents is how a request is shown sub-agents.
func (d *Deps) agents(asked aisdk.SubAgents) aisdk.SubAgents {
	switch {
	case asked != "":
		return asked
	case d.SubAgents != "":
		return d.SubAgents
	}
	return aisdk.Nest
}

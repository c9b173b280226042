package chat

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// Session is a session as one request sees it: that of a root agent, or of a child of
// any generation, whose records are in its root's log. Positions are positions in that
// log.
//
// The head was requested when the request came. Everything that is read for the request
// is at least as new, and does not ask for the head again.
type Session struct {
	*spool.Log // the root's
	ID         string
	At         spool.Head // of the root's log; zero if the session does not exist
	asked      time.Time  // when At was requested
	now        func() time.Time
}

// headLasts is how old a request's head may be when its stream ends.
const headLasts = time.Second

// find returns a session, root or child, whether it exists or not.
func (d *Deps) find(ctx context.Context, session string) (Session, error) {
	g, err := d.Visit(ctx, session)
	if errors.Is(err, spool.ErrNotFound) {
		return g, nil
	}
	return g, err
}

// Visit returns a session, root or child, and fails with [spool.ErrNotFound] if it,
// or its root, does not exist.
func (d *Deps) Visit(ctx context.Context, session string) (Session, error) {
	if err := CheckReadable(session); err != nil {
		return Session{}, err
	}
	g, err := d.Logs.Log(chunk.RootID(session))
	if err != nil {
		return Session{}, err
	}
	h, asked, err := d.head(ctx, g)
	return Session{g, session, h, asked, d.Logs.Now}, err
}

// visitRoot is [Deps.Visit] for requests that only a root's session accepts.
func (d *Deps) visitRoot(ctx context.Context, session string) (Session, error) {
	if chunk.IsChild(session) {
		return Session{}, spool.ErrNotFound.With(session, nil)
	}
	return d.Visit(ctx, session)
}

// Exists reports whether there is such a session.
func (s Session) Exists() bool { return s.At != spool.Head{} }

// cursor is the cursor of a record of the session's log.
func (s Session) cursor(seq uint64) spool.Cursor {
	return spool.Cursor{Seq: seq, Incarnation: s.At.Incarnation}
}

// Child reports whether it is a child agent's.
func (s Session) Child() bool { return s.ID != s.Session() }

// View is [spool.Log.ViewAt] of the agent's own fold; [spool.ErrNotFound] if there is
// no such agent. For a session that does not exist, it is the empty fold.
func (s Session) View(ctx context.Context, fn func(f *fold.Fold) error) error {
	if !s.Exists() {
		return fn(fold.New(s.ID))
	}
	return s.ViewAt(ctx, s.At, s.own(fn))
}

// viewAtEnd is View for the end of a stream. The request's head may be old by then, and
// another process may have written since, so a head older than headLasts is requested
// again.
func (s Session) viewAtEnd(ctx context.Context, fn func(f *fold.Fold) error) error {
	if s.now().Sub(s.asked) < headLasts {
		return s.View(ctx, fn)
	}
	return s.Log.View(ctx, s.own(fn))
}

// FoldAt is [spool.Log.FoldAt] of the agent's own fold.
func (s Session) FoldAt(ctx context.Context, seq uint64) (own *fold.Fold, err error) {
	f, err := s.Log.FoldAt(ctx, seq)
	if err != nil {
		return nil, err
	}
	err = s.own(func(f *fold.Fold) error {
		own = f
		return nil
	})(f)
	return own, err
}

// own calls fn with the agent's own fold.
func (s Session) own(fn func(f *fold.Fold) error) func(*fold.Fold) error {
	return func(f *fold.Fold) error {
		own := f.Child(s.ID)
		if own == nil {
			return spool.ErrNotFound.With(s.ID, nil)
		}
		return fn(own)
	}
}

// Until is [spool.Log.Until] of the agent's own fold.
func (s Session) Until(ctx context.Context, look func(f *fold.Fold) (spool.Look, error)) error {
	return s.Log.Until(ctx, s.At, func(f *fold.Fold) (found spool.Look, err error) {
		err = s.own(func(f *fold.Fold) error {
			found, err = look(f)
			return err
		})(f)
		return found, err
	})
}

// command appends commands; what is read afterwards sees them. If the session exists,
// row is ignored. It fails with [spool.ErrExists] if the session has become another
// principal's since the request came.
func (s *Session) command(ctx context.Context, row spool.Row, chunks ...chunk.Chunk) error {
	if s.Exists() {
		row = spool.Row{Principal: s.At.Principal}
	}
	res, err := s.CommandFor(ctx, row, chunks...)
	if err == nil {
		s.At = res.Head
	}
	return err
}

// status is the session's status in the log, for a child its own.
func (s Session) status(ctx context.Context) (chunk.Status, error) {
	status := s.At.Status
	if !s.Child() {
		return status, nil
	}
	err := s.View(ctx, func(f *fold.Fold) error {
		status = f.Status
		if f.Live() && !f.Asks() {
			status = chunk.StatusActive
		}
		return nil
	})
	return status, err
}

// projection is a turn, or with nil the log, as a profile shows it. All its readers
// share it, so it does not end with any of their contexts. A turn with the same id in
// another incarnation is another turn.
func (s Session) projection(p *wire.Profile, turn *fold.Turn) *spool.Projection {
	of := s.subject(turn)
	o := spool.ProjectionOptions{Stateless: p.Log != nil, Chained: p.Log != nil && p.Log.Chained, Incarnation: s.At.Incarnation}
	if turn != nil {
		o.After = turn.Start()
	}
	o.Key = p.Key + "/" + strconv.FormatUint(s.At.Incarnation, 10) + "/" + s.ID + "/" + of.Turn
	o.New = func() spool.Projector { return p.Projector(of) }
	return s.Log.Projection(o)
}

// subject is what a projector of a turn shows; nil: of the log.
func (s Session) subject(turn *fold.Turn) wire.Subject {
	of := wire.Subject{Agent: s.ID, Resolve: func(v json.RawMessage) (json.RawMessage, error) {
		return s.Blob(spool.WaitForStore(context.Background()), v)
	}}
	if turn != nil {
		of.Turn = turn.ID
	}
	return of
}

// last is the sequence of the latest record of an agent or of any below it.
func last(f *fold.Fold) uint64 {
	seq := f.Seq
	for _, c := range f.Children {
		seq = max(seq, last(c))
	}
	return seq
}

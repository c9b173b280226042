package chat

import (
	"context"
	"errors"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// arrival is what a request was authorised with: the head of the session's log as the
// request found it.
type arrival struct {
	log   *spool.Log
	owner string     // whose session it is; for one that does not exist, who may create it
	at    spool.Head // zero if there was no such session
	asked time.Time
}

type arrivalKey struct{}

// Arrive asks the store for the head of a session's log, on behalf of a principal, before
// the request is authorised. It returns the session's owner, who is principal if there is
// no such session. What is done with the returned context does not ask for the head again,
// and fails with [spool.ErrNotFound] if the session has another owner by then.
func (d *Deps) Arrive(ctx context.Context, session, principal string) (_ context.Context, owner string, err error) {
	a := &arrival{owner: principal, asked: d.Logs.Now()}
	if a.log, err = d.Logs.Log(chunk.RootID(session)); err != nil {
		return nil, "", err
	}
	if a.at, err = a.log.Head(ctx); err == nil {
		a.owner = a.at.Principal
	} else if !errors.Is(err, spool.ErrNotFound) {
		return nil, "", err
	}
	return context.WithValue(ctx, arrivalKey{}, a), a.owner, nil
}

// departed is the context of what a request does long after it arrived, and is authorised
// for again.
func departed(ctx context.Context) context.Context {
	return context.WithValue(ctx, arrivalKey{}, (*arrival)(nil))
}

// head returns a head that is at least as new as the request that ctx belongs to, and
// when it was asked for. The store is asked if the request did not arrive at this session,
// or long ago.
func (d *Deps) head(ctx context.Context, g *spool.Log) (h spool.Head, asked time.Time, err error) {
	none, asked := spool.Head{}, d.Logs.Now()
	a, _ := ctx.Value(arrivalKey{}).(*arrival)
	if a == nil || a.log.Session() != g.Session() {
		h, err = g.Head(ctx)
		return h, asked, err
	}
	h = a.log.Known()
	switch {
	case asked.Sub(a.asked) < headLasts && h == none && a.at == none:
		err = spool.ErrNotFound.With(g.Session(), nil)
	case asked.Sub(a.asked) < headLasts && h != none && h.Incarnation >= a.at.Incarnation:
		asked = a.asked
	default:
		h, err = g.Head(ctx)
	}
	if err == nil && h.Principal != a.owner {
		return none, asked, spool.ErrNotFound.With(g.Session(), nil)
	}
	return h, asked, err
}

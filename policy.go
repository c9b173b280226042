package spool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Limits are those of a session. 0 is no limit.
type Limits struct {
	// TTL is how long a session stays after its last append. Then it is deleted. See
	// [Expirer]; package runner has the sweeper that deletes.
	TTL time.Duration
	// MaxBytes and MaxTurns are the size ([SessionInfo].Bytes) and the number of turns
	// from which on a session begins no further turn: see [ErrQuota]. Turns that have
	// begun go on, and nothing is deleted. Messages that come at the same moment may all
	// be taken.
	MaxBytes int64
	MaxTurns int
	// MaxPrincipalBytes and MaxPrincipalSessions are the size and the number of all sessions
	// of the session's principal, or, for a session of nobody, of the store, from which on
	// none of them begins a further turn, or no further one begins. See [Measurer].
	MaxPrincipalBytes    int64
	MaxPrincipalSessions int
}

// Policy says how long sessions live and how much they may hold. The zero value sets no
// limits.
type Policy struct {
	// Limits hold for every session if Of is nil.
	Limits
	// Of returns the limits of the sessions of an agent type and a principal, either of
	// which may be "". It is called for each message that begins a turn and, for all
	// sessions, in each sweep, from several goroutines.
	Of func(agent, principal string) Limits
}

// For returns the limits of a session.
func (p *Policy) For(r Row) Limits {
	if p.Of != nil {
		return p.Of(r.Agent, r.Principal)
	}
	return p.Limits
}

// Idle returns how long a session must have been idle at least for a TTL to have passed,
// and whether there may be one at all.
func (p *Policy) Idle() (least time.Duration, some bool) {
	if p.Of != nil {
		return time.Millisecond, true
	}
	return p.TTL, p.TTL > 0
}

// Expired reports whether a session's TTL has passed. now is the store's clock, as of
// [SessionPage].Now.
func (p *Policy) Expired(i SessionInfo, now int64) bool {
	ttl := p.For(i.Row).TTL
	return ttl > 0 && i.Updated <= now-ttl.Milliseconds()
}

// Policy returns [Options].Policy.
func (l *Logs) Policy() *Policy { return &l.o.Policy }

// CheckQuota fails with [ErrQuota] if the session may begin no further turn, or may not
// begin at all: row is that of a session that does not exist yet. Commands that begin a
// turn are checked by [Log.Command].
func (g *Log) CheckQuota(ctx context.Context, row Row) error {
	return g.quota(ctx, &Append{Row: row})
}

// quota is CheckQuota for an append. One that is refused since the session is another
// principal's is not told how full that session is.
func (g *Log) quota(ctx context.Context, a *Append) error {
	p := g.logs.Policy()
	if p.Of == nil && p.Limits == (Limits{TTL: p.TTL}) {
		return nil
	}
	lister, ok := g.logs.store.(Lister)
	if !ok {
		return ErrUnsupported.Because("the store does not know how large sessions are").With(g.session, nil)
	}
	info, err := lister.Session(ctx, g.session)
	switch {
	case errors.Is(err, ErrNotFound):
		info.Row = a.Row
	case err != nil:
		return err
	case a.SamePrincipal && info.Principal != a.Row.Principal:
		return nil
	}
	limits := p.For(info.Row)
	if err := g.principalQuota(ctx, &limits, &info); err != nil || info.Session == "" {
		return err
	}
	if limits.MaxBytes > 0 && info.Bytes >= limits.MaxBytes {
		return ErrQuota.Because(fmt.Sprintf("the session has reached its size of %d bytes: no further turn can begin", limits.MaxBytes)).With(g.session, nil)
	}
	if limits.MaxTurns <= 0 {
		return nil
	}
	return g.View(ctx, func(f *fold.Fold) error {
		if f.Begun() >= limits.MaxTurns {
			return ErrQuota.Because(fmt.Sprintf("the session has had its %d turns: no further turn can begin", limits.MaxTurns)).With(g.session, nil)
		}
		return nil
	})
}

// principalQuota checks what the sessions of the session's principal use together; without
// a Session in i there is no such session yet.
func (g *Log) principalQuota(ctx context.Context, l *Limits, i *SessionInfo) error {
	begins := l.MaxPrincipalSessions > 0 && i.Head.Seq == 0
	if l.MaxPrincipalBytes <= 0 && !begins {
		return nil
	}
	m, ok := g.logs.store.(Measurer)
	if !ok {
		return ErrUnsupported.Because("the store does not know how much a principal's sessions hold").With(g.session, nil)
	}
	u, err := m.Usage(ctx, i.Principal)
	if err != nil {
		return err
	}
	if i.Session != "" && !i.Head.Hidden {
		u.Sessions-- // the others
	}
	if begins && u.Sessions >= int64(l.MaxPrincipalSessions) {
		return errPrincipalQuota.Because(fmt.Sprintf("there are %d sessions already: no further session can begin", u.Sessions)).With(g.session, nil)
	}
	if l.MaxPrincipalBytes > 0 && u.Bytes >= l.MaxPrincipalBytes {
		return errPrincipalQuota.Because(fmt.Sprintf("all sessions together have reached their size of %d bytes: no further turn can begin", l.MaxPrincipalBytes)).With(g.session, nil)
	}
	return nil
}

// admit is quota for commands. Those that begin no turn are admitted, and so is a
// repeat of one that the log has.
func (g *Log) admit(ctx context.Context, a *Append, chunks []chunk.Chunk) error {
	id := fold.Opener(chunks)
	if id == "" {
		return nil
	}
	err := g.quota(ctx, a)
	if !errors.Is(err, ErrQuota) {
		return err
	}
	repeated := false
	if failed := g.View(ctx, func(f *fold.Fold) error {
		repeated = f.Verdict(id).State != fold.VerdictUnknown
		return nil
	}); failed != nil && !errors.Is(failed, ErrNotFound) {
		return failed
	}
	if repeated {
		return nil
	}
	return err
}

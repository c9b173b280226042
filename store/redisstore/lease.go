package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/contract"
)

// never is [contract.Never] as scripts have it.
const never = 1<<53 - 1

func agents(c *spool.Claim) []string { return append([]string{flag(c.Agents == nil)}, c.Agents...) }

// Claim implements [spool.Leaser].
func (s *Store) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	if err := contract.CheckClaim(&c); err != nil {
		return spool.Lease{}, err
	}
	if c.Session != "" {
		return s.claim(ctx, s.bucket(c.Session), &c)
	}
	if err := s.usable(ctx); err != nil {
		return spool.Lease{}, err
	}
	ready, err := s.ready(ctx, &c)
	if err != nil {
		return spool.Lease{}, err
	}
	for _, bucket := range ready.buckets {
		l, err := s.claim(ctx, bucket, &c)
		if !errors.Is(err, spool.ErrNothingDue) {
			return l, err
		}
	}
	return spool.Lease{}, spool.ErrNothingDue
}

func (s *Store) claim(ctx context.Context, bucket int, c *spool.Claim) (spool.Lease, error) {
	args := append([]string{c.Session, c.ID, c.Owner, strconv.FormatInt(contract.TTL(c.TTL), 10), strconv.FormatInt(contract.TTL(c.ExpiredFor), 10),
		flag(c.Force), flag(c.Hidden), c.Principal, flag(c.SamePrincipal)}, agents(c)...)
	r, err := s.run(ctx, bucket, claimScript, c.Session, args...)
	if err != nil {
		return spool.Lease{}, err
	}
	session := r.text(1)
	now := r.row(0, session)
	s.hub.Apply(session, now.state(nil))
	return spool.Lease{Session: session, Epoch: now.info.Head.Epoch, Owner: c.Owner, TTL: c.TTL, Head: now.info.Head, Row: now.info.Row, Now: r.milli(2)}, nil
}

// Renew implements [spool.Leaser].
func (s *Store) Renew(ctx context.Context, l spool.Lease) error { return s.lease(ctx, &l, "renew") }

// Release implements [spool.Leaser].
func (s *Store) Release(ctx context.Context, l spool.Lease) error { return s.lease(ctx, &l, "release") }

func (s *Store) lease(ctx context.Context, l *spool.Lease, what string) error {
	_, err := s.run(ctx, s.bucket(l.Session), leaseScript, l.Session, l.Session, decimal(l.Epoch), what)
	return err
}

// RaiseAbove implements [spool.Raiser].
func (s *Store) RaiseAbove(ctx context.Context, session string, known spool.Head) (spool.Head, error) {
	r, err := s.run(ctx, s.bucket(session), raiseScript, session, session, decimal(known.Incarnation), decimal(known.Epoch), strconv.Itoa(contract.Generation))
	if err != nil {
		return spool.Head{}, err
	}
	now := r.row(0, session)
	s.hub.Apply(session, now.state(nil))
	return now.info.Head, nil
}

// agenda is what can be claimed.
type agenda struct {
	buckets []int // in which a claim may find something, first what is due for longest
	now     int64
	next    int64 // when there is something in the others
}

// ready asks all buckets, or that of the claim's session.
func (s *Store) ready(ctx context.Context, c *spool.Claim) (agenda, error) {
	g := agenda{next: contract.Never}
	args := append([]string{c.ID, strconv.FormatInt(contract.TTL(c.ExpiredFor), 10), c.Session}, agents(c)...)
	since := map[int]int64{}
	for b := range s.tags {
		if c.Session != "" && b != s.bucket(c.Session) {
			continue
		}
		r, err := s.run(ctx, b, dueScript, "", args...)
		if err != nil {
			return g, err
		}
		g.now = max(g.now, r.milli(1))
		if r.text(0) == "1" {
			g.buckets = append(g.buckets, b)
			since[b] = r.milli(2)
		} else if next := r.milli(2); next < never {
			g.next = min(g.next, next)
		}
	}
	slices.SortFunc(g.buckets, func(a, b int) int { return cmp.Compare(since[a], since[b]) })
	return g, nil
}

// AwaitDue implements [spool.Leaser].
func (s *Store) AwaitDue(ctx context.Context, c spool.Claim) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	for i, f := range s.feeds {
		if err := s.within(ctx, func(ctx context.Context) error { return f.subscribe(ctx, s.tags[i]+":n") }); err != nil {
			return err
		}
	}
	return s.due.Await(ctx, s.ctx.Done(), spool.ErrClosed, func() (bool, time.Duration, error) {
		g, err := s.ready(ctx, &c)
		if err != nil || len(g.buckets) > 0 {
			return err == nil, 0, err
		}
		again := contract.LookAgain(g.now, g.next)
		if again < 0 {
			again = time.Second // a notification may be lost
		}
		return false, again, nil
	})
}

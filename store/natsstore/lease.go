package natsstore

import (
	"context"
	"errors"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/contract"
)

// errOther says that the session cannot be claimed.
var errOther = errors.New("not to be claimed")

// Claim implements [spool.Leaser].
func (s *Store) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Lease{}, err
	}
	if err := contract.CheckClaim(&c); err != nil {
		return spool.Lease{}, err
	}
	if c.Session != "" {
		return s.claim(ctx, c.Session, &c)
	}
	if err := s.index.sync(ctx); err != nil {
		return spool.Lease{}, err
	}
	if c.ID != "" {
		if id := s.index.claimed(&c); id != "" {
			repeat := c
			repeat.Session = id
			l, err := s.repeat(ctx, &repeat)
			if !errors.Is(err, spool.ErrNothingDue) {
				return l, err
			}
		}
	}
	for {
		id, _ := s.index.next(&c, s.clock.Now())
		if id == "" {
			return spool.Lease{}, spool.ErrNothingDue
		}
		l, err := s.claim(ctx, id, &c)
		if !errors.Is(err, spool.ErrNothingDue) {
			return l, err
		}
	}
}

// claim claims one session.
func (s *Store) claim(ctx context.Context, session string, c *spool.Claim) (spool.Lease, error) {
	return s.lease(ctx, session, c, func(st *state, now int64) error {
		switch {
		case c.Force:
		case !st.Exists, st.readyAt() > now, !contract.Matches(c, st.Row.Agent), contract.Spared(c, st.Expires, now):
			return errOther
		}
		return nil
	})
}

// repeat returns the lease of a claim that was granted before.
func (s *Store) repeat(ctx context.Context, c *spool.Claim) (spool.Lease, error) {
	return s.lease(ctx, c.Session, c, func(*state, int64) error { return errOther })
}

// lease grants a lease again to the claim that has it, or, unless may refuses, a new one.
func (s *Store) lease(ctx context.Context, session string, c *spool.Claim, may func(*state, int64) error) (spool.Lease, error) {
	l := spool.Lease{Session: session, Owner: c.Owner, TTL: c.TTL}
	var found *state
	var at uint64
	st, _, err := s.update(ctx, session, func(st *state, seq uint64, now int64) (*write, error) {
		found, at, l.Now = st, seq, now
		w := &write{kind: kindMeta}
		if c.ID != "" && st.Exists && st.Claim == c.ID && st.Owner == c.Owner {
			st.renew(now)
			return w, nil
		}
		if st.Exists {
			if err := contract.CheckPrincipal(c.SamePrincipal, c.Principal, &st.Head, session); err != nil {
				return nil, err
			}
		}
		if err := may(st, now); err != nil {
			return nil, err
		}
		st.create(c.Principal, c.Hidden, now, seq)
		st.Head.Epoch++
		st.writers = nil
		st.Claim, st.Owner, st.TTL = c.ID, c.Owner, contract.TTL(c.TTL)
		st.renew(now)
		return w, nil
	})
	if errors.Is(err, errOther) {
		s.index.apply(found, at)
		return spool.Lease{}, spool.ErrNothingDue
	}
	if err != nil {
		return spool.Lease{}, err
	}
	s.tidy(session, st)
	l.Epoch, l.Head, l.Row = st.Head.Epoch, st.Head, st.Row
	return l, nil
}

// Renew implements [spool.Leaser].
func (s *Store) Renew(ctx context.Context, l spool.Lease) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	st, _, err := s.update(ctx, l.Session, func(st *state, _ uint64, now int64) (*write, error) {
		if !st.Exists || st.Head.Epoch != l.Epoch || st.Owner == "" {
			return nil, spool.ErrSuperseded.With(l.Session, nil)
		}
		st.renew(now)
		return &write{kind: kindMeta}, nil
	})
	if err == nil {
		s.tidy(l.Session, st)
	}
	return err
}

// Release implements [spool.Leaser].
func (s *Store) Release(ctx context.Context, l spool.Lease) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	_, _, err := s.update(ctx, l.Session, func(st *state, _ uint64, _ int64) (*write, error) {
		if !st.Exists || st.Head.Epoch != l.Epoch || st.Owner == "" {
			return nil, nil
		}
		st.release()
		return &write{kind: kindMeta}, nil
	})
	return err
}

// RaiseAbove implements [spool.Raiser]. The message tells all processes.
func (s *Store) RaiseAbove(ctx context.Context, session string, known spool.Head) (spool.Head, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, err
	}
	st, _, err := s.update(ctx, session, func(st *state, _ uint64, _ int64) (*write, error) {
		if !st.Exists {
			return nil, spool.ErrNotFound.With(session, nil)
		}
		if !contract.RaiseAbove(&st.Head, known) {
			return nil, nil
		}
		st.release()
		st.writers = nil
		return &write{kind: kindMeta}, nil
	})
	if err != nil {
		return spool.Head{}, err
	}
	return st.Head, nil
}

// AwaitDue implements [spool.Leaser].
func (s *Store) AwaitDue(ctx context.Context, c spool.Claim) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.index.claimers.Await(ctx, s.ctx.Done(), spool.ErrClosed, func() (bool, time.Duration, error) {
		if !s.index.begun() { // or it was forgotten, after a loss
			if err := s.index.sync(ctx); err != nil {
				return false, 0, err
			}
		}
		now := s.clock.Now()
		id, next := s.index.next(&c, now)
		again := contract.LookAgain(now, next)
		if again < 0 {
			again = time.Second // in case the index is forgotten
		}
		return id != "", again, nil
	})
}

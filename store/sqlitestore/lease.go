package sqlitestore

import (
	"context"
	"database/sql/driver"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/contract"
)

// Claim implements [spool.Leaser].
func (s *Store) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Lease{}, err
	}
	if err := contract.CheckClaim(&c); err != nil {
		return spool.Lease{}, err
	}
	if !c.Force {
		if err := s.releaseDeadIfPossible(ctx); err != nil {
			return spool.Lease{}, err
		}
	}
	owner := c.Owner
	if c.InProcess {
		owner = s.life.sign(owner)
	}
	out := new(spool.Lease)
	if err := s.write(ctx, 1, func(t *tx) error {
		var err error
		*out, err = t.claim(&c, owner)
		return err
	}); err != nil {
		return spool.Lease{}, err
	}
	return *out, nil
}

func (t *tx) claim(c *spool.Claim, owner string) (spool.Lease, error) {
	id, err := t.wanted(c, owner)
	if err != nil {
		return spool.Lease{}, err
	}
	st, err := t.session(id)
	if err != nil {
		return spool.Lease{}, err
	}
	if st.repeats(c, owner) {
		st.renew(t.now)
		t.touch(st)
		return st.granted(c, t.now), nil
	}
	if err := st.checkPrincipal(c.SamePrincipal, c.Principal); err != nil {
		return spool.Lease{}, err
	}
	if !c.Force && (st.readyAt() > t.now || !contract.Matches(c, st.row.Agent) || contract.Spared(c, st.expires, t.now)) {
		return spool.Lease{}, spool.ErrNothingDue
	}
	if err := t.create(st, c.Principal, c.Hidden); err != nil {
		return spool.Lease{}, err
	}
	if err := t.c.exec("DELETE FROM writer WHERE sid = +?", st.sid); err != nil {
		return spool.Lease{}, err
	}
	st.writers = map[string]*written{}
	st.head.Epoch++
	st.claim, st.owner, st.ttl = c.ID, owner, contract.TTL(c.TTL)
	st.expires = t.now + st.ttl
	return st.granted(c, t.now), nil
}

// wanted returns the session that a claim is for: the one that it names, the one whose
// lease it was granted before, or the one that can be claimed for longest.
func (t *tx) wanted(c *spool.Claim, owner string) (id string, err error) {
	if c.Session != "" {
		return c.Session, nil
	}
	if err := t.flush(); err != nil { // the indexes must be up to date
		return "", err
	}
	find := func(sql string, args ...driver.Value) error {
		return t.c.query(func(row []driver.Value) error {
			id, _ = row[1].(string)
			return nil
		}, sql, args...)
	}
	if c.ID != "" {
		if err := find("SELECT sid, id FROM session WHERE lease_claim = +? AND lease_claim <> '' AND lease_owner = +?", c.ID, owner); err != nil || id != "" {
			return id, err
		}
	}
	if t.now, err = t.w.s.hear(t.c); err != nil {
		return "", err
	}
	sql, args := claimable(c, t.now)
	if err := find(sql, args...); err != nil {
		return "", err
	}
	if id == "" {
		return "", spool.ErrNothingDue
	}
	return id, nil
}

// repeats reports whether the latest lease is this claim's, which was not released.
func (st *state) repeats(c *spool.Claim, owner string) bool {
	return c.ID != "" && st.alive && st.claim == c.ID && st.owner == owner
}

func (st *state) granted(c *spool.Claim, now int64) spool.Lease {
	return spool.Lease{Session: st.id, Epoch: st.head.Epoch, Owner: c.Owner, TTL: c.TTL, Head: st.head, Row: st.row, Now: now}
}

// hear returns the time. If another process's clock is ahead of this one's, the rows that
// it has written tell so, the index to within ten seconds: see [state.heard].
func (s *Store) hear(c *conn) (int64, error) {
	var at int64
	err := c.query(func(row []driver.Value) error {
		at, _ = row[0].(int64)
		return nil
	}, latest, int64(never))
	return s.clock.After(at * listPrecision), err
}

const latest = "SELECT listed FROM session WHERE listed <= +? AND hidden = 0 ORDER BY listed DESC LIMIT 1"

// claimable selects the session that can be claimed for longest.
func claimable(c *spool.Claim, now int64) (sql string, args []driver.Value) {
	sql, args = "SELECT ready, id FROM session WHERE ready IS NOT NULL AND ready <= +?1 AND +lease_expires <= +?1", []driver.Value{now}
	if c.ExpiredFor > 0 {
		sql, args = sql+" AND +lease_expires <= +?", append(args, now-contract.TTL(c.ExpiredFor))
	}
	if c.Session != "" {
		sql, args = sql+" AND id = +?", append(args, c.Session)
	}
	if c.Agents != nil {
		sql += " AND agent IN (''" + strings.Repeat(",+?", len(c.Agents)) + ")"
		for _, a := range c.Agents {
			args = append(args, a)
		}
	}
	return sql + " ORDER BY ready LIMIT 1", args
}

// Renew implements [spool.Leaser].
func (s *Store) Renew(ctx context.Context, l spool.Lease) error {
	return s.write(ctx, 1, func(t *tx) error {
		st, err := t.session(l.Session)
		if err != nil {
			return err
		}
		if !st.alive || st.head.Epoch != l.Epoch || st.owner == "" {
			return spool.ErrSuperseded.With(l.Session, nil)
		}
		st.renew(t.now)
		t.touch(st)
		return nil
	})
}

// Release implements [spool.Leaser].
func (s *Store) Release(ctx context.Context, l spool.Lease) error {
	return s.write(ctx, 1, func(t *tx) error {
		st, err := t.session(l.Session)
		if err != nil {
			return err
		}
		if st.alive && st.head.Epoch == l.Epoch {
			st.release()
			t.touch(st)
		}
		return nil
	})
}

// When the next session can be claimed: the index has been brought to the end of its lease, or
// has fallen behind it.
const (
	nextReady   = "SELECT min(ready) FROM session WHERE ready > +?"
	nextExpired = "SELECT min(lease_expires) FROM session WHERE ready IS NOT NULL AND ready <= +?1 AND +lease_expires > +?1"
)

// RaiseAbove implements [spool.Raiser].
func (s *Store) RaiseAbove(ctx context.Context, session string, known spool.Head) (spool.Head, error) {
	h := new(spool.Head)
	err := s.write(ctx, 1, func(t *tx) error {
		st, err := t.existing(session)
		if err != nil {
			return err
		}
		if contract.RaiseAbove(&st.head, known) {
			if err := t.c.exec("DELETE FROM writer WHERE sid = +?", st.sid); err != nil {
				return err
			}
			st.writers = map[string]*written{}
			st.release()
			t.touch(st)
		}
		*h = st.head
		return nil
	})
	return *h, err
}

// due says whether there is something to claim now, and if not, when the next session
// gets ready, or never.
func (s *Store) due(ctx context.Context, c *spool.Claim) (found bool, now, next int64, err error) {
	next = never
	err = s.read(ctx, func(conn *conn) error {
		var err error
		if now, err = s.hear(conn); err != nil {
			return err
		}
		sql, args := claimable(c, now)
		if err := conn.query(func([]driver.Value) error { found = true; return nil }, sql, args...); err != nil || found {
			return err
		}
		sooner := func(row []driver.Value) error {
			if v, ok := row[0].(int64); ok {
				next = min(next, v)
			}
			return nil
		}
		if err := conn.query(sooner, nextReady, now); err != nil {
			return err
		}
		return conn.query(sooner, nextExpired, now)
	})
	if c.ExpiredFor > 0 { // a lease that is spared is ready already
		next = min(next, now+contract.TTL(c.ExpiredFor))
	}
	return found, now, next, err
}

// AwaitDue implements [spool.Leaser].
func (s *Store) AwaitDue(ctx context.Context, c spool.Claim) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	defer s.hub.watching()()
	return s.hub.claimers.Await(ctx, s.closed, spool.ErrClosed, func() (bool, time.Duration, error) {
		if err := s.releaseDeadIfPossible(ctx); err != nil {
			return false, 0, err
		}
		found, now, next, err := s.due(ctx, &c)
		return found, contract.LookAgain(now, next), err
	})
}

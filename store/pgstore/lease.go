package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

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
	var out spool.Lease
	err := s.change(ctx, need{session: c.Session, create: c.Force}, func(t *tx) (err error) {
		out, err = t.claim(&c)
		return err
	})
	return out, err
}

func (t *tx) claim(c *spool.Claim) (spool.Lease, error) {
	st, err := t.wanted(c)
	if err != nil {
		return spool.Lease{}, err
	}
	if st.repeats(c) {
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
	t.create(st, c.Principal, c.Hidden)
	st.forgetWriters()
	st.head.Epoch++
	st.claim, st.owner, st.ttl = c.ID, c.Owner, contract.TTL(c.TTL)
	st.expires = t.now + st.ttl
	return st.granted(c, t.now), nil
}

// wanted locks and returns the session that a claim is for: the one that it names, the one
// whose lease it was granted before, or the one that can be claimed for longest and that
// nobody else is about to claim.
func (t *tx) wanted(c *spool.Claim) (*state, error) {
	if c.Session != "" {
		if st := t.states[c.Session]; st != nil {
			return st, nil
		}
		return nil, spool.ErrNothingDue
	}
	var id string
	if c.ID != "" {
		if err := none(t.c.QueryRow(t.ctx, "SELECT id FROM session WHERE lease_claim = $1 AND lease_claim <> '' AND lease_owner = $2", c.ID, c.Owner).Scan(&id)); err != nil {
			return nil, err
		}
	}
	if id != "" {
		if err := t.lock(false, []need{{session: id}}); err != nil {
			return nil, err
		}
		if st := t.states[id]; st != nil && st.repeats(c) {
			return st, nil
		}
	}
	now, err := t.s.time(t.ctx, t.c)
	if err != nil {
		return nil, err
	}
	sql, args := claimable(c, now)
	id = ""
	if err := none(t.c.QueryRow(t.ctx, sql+" FOR UPDATE SKIP LOCKED", args...).Scan(&id)); err != nil {
		return nil, err
	}
	if id == "" {
		return nil, spool.ErrNothingDue
	}
	if err := t.lock(false, []need{{session: id}}); err != nil {
		return nil, err
	}
	return t.states[id], nil
}

// repeats reports whether the latest lease is this claim's, which was not released.
func (st *state) repeats(c *spool.Claim) bool {
	return c.ID != "" && st.alive && st.claim == c.ID && st.owner == c.Owner
}

func (st *state) granted(c *spool.Claim, now int64) spool.Lease {
	return spool.Lease{Session: st.id, Epoch: st.head.Epoch, Owner: c.Owner, TTL: c.TTL, Head: st.head, Row: st.row, Now: now}
}

// claimable selects the session that can be claimed for longest.
func claimable(c *spool.Claim, now int64) (sql string, args []any) {
	sql, args = "SELECT id FROM session WHERE ready IS NOT NULL AND ready <= $1 AND lease_expires <= $2", []any{now, int64(contract.Never)}
	if c.ExpiredFor > 0 {
		args[1] = now - contract.TTL(c.ExpiredFor)
	}
	if c.Agents != nil {
		sql, args = sql+" AND (agent = '' OR agent = ANY($3))", append(args, c.Agents)
	}
	if c.Session != "" {
		args = append(args, c.Session)
		sql += " AND id = $" + string('0'+rune(len(args)))
	}
	return sql + " ORDER BY ready LIMIT 1", args
}

// Renew implements [spool.Leaser].
func (s *Store) Renew(ctx context.Context, l spool.Lease) error {
	return s.write(ctx, need{session: l.Session}, func(t *tx) error {
		st := t.states[l.Session]
		if st == nil || !st.alive || st.head.Epoch != l.Epoch || st.owner == "" {
			return spool.ErrSuperseded.With(l.Session, nil)
		}
		st.renew(t.now)
		t.touch(st)
		return nil
	})
}

// Release implements [spool.Leaser].
func (s *Store) Release(ctx context.Context, l spool.Lease) error {
	return s.write(ctx, need{session: l.Session}, func(t *tx) error {
		if st := t.states[l.Session]; st != nil && st.alive && st.head.Epoch == l.Epoch {
			st.release()
			t.touch(st)
		}
		return nil
	})
}

// due says whether there is something to claim, and if not, when the next session
// gets ready, or never.
func (s *Store) due(ctx context.Context, c *spool.Claim) (found bool, now, next int64, err error) {
	err = s.read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var err error
		if now, err = s.time(ctx, conn); err != nil {
			return err
		}
		sql, args := claimable(c, now)
		b := &pgx.Batch{}
		b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
			for found = false; rows.Next(); found = true {
			}
			return rows.Err()
		})
		b.Queue("SELECT coalesce(min(ready), $2) FROM session WHERE ready > $1", now, int64(contract.Never)).QueryRow(func(row pgx.Row) error { return row.Scan(&next) })
		return conn.SendBatch(ctx, b).Close()
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
	return s.claimers.Await(ctx, s.ctx.Done(), spool.ErrClosed, func() (bool, time.Duration, error) {
		found, now, next, err := s.due(ctx, &c)
		again := contract.LookAgain(now, next)
		if again < 0 {
			again = time.Second // a notification may have been lost
		}
		return found, again, err
	})
}

// RaiseAbove implements [spool.Raiser].
func (s *Store) RaiseAbove(ctx context.Context, session string, known spool.Head) (h spool.Head, err error) {
	err = s.change(ctx, need{session: session}, func(t *tx) error {
		st, err := t.existing(session)
		if err != nil {
			return err
		}
		if contract.RaiseAbove(&st.head, known) {
			st.forgetWriters()
			st.release()
			t.touch(st)
		}
		h = st.head
		return nil
	})
	return h, err
}

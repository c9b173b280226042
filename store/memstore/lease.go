package memstore

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/contract"
	"github.com/spool-run/spool/store/watch"
)

// lease is who may write; times are Unix milliseconds.
type lease struct {
	claim   string // the claim's ID
	owner   string // "" when released or never claimed
	ttl     int64
	expires int64
}

// claims are the sessions of the latest leases, by the IDs of the claims. It is locked
// after a session, never before.
type claims struct {
	mu       sync.Mutex
	sessions map[string]string
}

func (cs *claims) session(claim string) string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.sessions[claim]
}

// replace notes that a session's lease is another claim's now; "" is none.
func (cs *claims) replace(session, before, now string) {
	if before == now {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.sessions[before] == session {
		delete(cs.sessions, before)
	}
	if now != "" {
		cs.sessions[now] = session
	}
}

func (l *lease) renew(now int64) {
	if l.owner != "" {
		l.expires = now + l.ttl
	}
}

// readyAt returns the time from which the session can be claimed.
func (ss *session) readyAt() int64 {
	if !ss.exists {
		return contract.Never
	}
	return contract.ReadyAt(&ss.head, ss.lease.expires)
}

func (ss *session) checkPrincipal(c *spool.Claim) error {
	if !ss.exists {
		return nil
	}
	return contract.CheckPrincipal(c.SamePrincipal, c.Principal, &ss.head, ss.id)
}

// take gives the session, locked by the caller, to a new owner under the next epoch.
func (s *Store) take(ss *session, c *spool.Claim, now int64) spool.Lease {
	ss.create(c.Principal, c.Hidden, now)
	ss.head.Epoch++
	ss.writers = nil
	s.claims.replace(ss.id, ss.lease.claim, c.ID)
	ss.lease = lease{claim: c.ID, owner: c.Owner, ttl: contract.TTL(c.TTL)}
	ss.lease.renew(now)
	ss.changed()
	s.due.update(ss)
	return ss.granted(c, now)
}

func (ss *session) granted(c *spool.Claim, now int64) spool.Lease {
	return spool.Lease{Session: ss.id, Epoch: ss.head.Epoch, Owner: c.Owner, TTL: c.TTL, Head: ss.head, Row: ss.row, Now: now}
}

// repeats reports whether the latest lease is this claim's, which was not released.
func (ss *session) repeats(c *spool.Claim) bool {
	return c.ID != "" && ss.exists && ss.lease.claim == c.ID && ss.lease.owner == c.Owner
}

// repeated returns the lease of a claim that was granted before, renewed.
func (s *Store) repeated(c *spool.Claim) (l spool.Lease, ok bool) {
	if c.ID == "" {
		return l, false
	}
	id := c.Session
	if id == "" {
		id = s.claims.session(c.ID)
	}
	ss := s.find(id)
	if ss == nil {
		return l, false
	}
	defer ss.mu.Unlock()
	if !ss.repeats(c) {
		return l, false
	}
	now := s.nowMilli()
	ss.lease.renew(now)
	s.due.update(ss)
	return ss.granted(c, now), true
}

// Claim implements [spool.Leaser].
func (s *Store) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Lease{}, err
	}
	if err := contract.CheckClaim(&c); err != nil {
		return spool.Lease{}, err
	}
	if c.ID != "" {
		s.claiming.Lock() // or a repeat beside its claim is granted as well
		defer s.claiming.Unlock()
	}
	if l, ok := s.repeated(&c); ok {
		return l, nil
	}
	if c.Force {
		ss, err := s.place(c.Session)
		if err != nil {
			return spool.Lease{}, err
		}
		defer ss.mu.Unlock()
		if err := ss.checkPrincipal(&c); err != nil {
			return spool.Lease{}, err
		}
		return s.take(ss, &c, s.nowMilli()), nil
	}
	for {
		now := s.nowMilli()
		id := c.Session
		if id == "" {
			if id, _ = s.due.next(&c, now); id == "" {
				return spool.Lease{}, spool.ErrNothingDue
			}
		}
		ss := s.find(id)
		if ss == nil {
			return spool.Lease{}, spool.ErrNothingDue
		}
		if err := ss.checkPrincipal(&c); err != nil {
			ss.mu.Unlock()
			return spool.Lease{}, err
		}
		if ss.readyAt() <= now && contract.Matches(&c, ss.row.Agent) && !contract.Spared(&c, ss.lease.expires, now) {
			l := s.take(ss, &c, now)
			ss.mu.Unlock()
			return l, nil
		}
		s.due.update(ss) // or next would name it for ever
		ss.mu.Unlock()
		if c.Session != "" {
			return spool.Lease{}, spool.ErrNothingDue
		}
	}
}

// Renew implements [spool.Leaser].
func (s *Store) Renew(ctx context.Context, l spool.Lease) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	ss := s.find(l.Session)
	if ss == nil {
		return spool.ErrSuperseded.With(l.Session, nil)
	}
	defer ss.mu.Unlock()
	if !ss.exists || ss.head.Epoch != l.Epoch || ss.lease.owner == "" {
		return spool.ErrSuperseded.With(l.Session, nil)
	}
	ss.lease.renew(s.nowMilli())
	s.due.update(ss)
	return nil
}

// Release implements [spool.Leaser].
func (s *Store) Release(ctx context.Context, l spool.Lease) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	ss := s.find(l.Session)
	if ss == nil {
		return nil
	}
	defer ss.mu.Unlock()
	if ss.exists && ss.head.Epoch == l.Epoch {
		s.claims.replace(ss.id, ss.lease.claim, "")
		ss.lease = lease{}
		s.due.update(ss)
	}
	return nil
}

// AwaitDue implements [spool.Leaser].
func (s *Store) AwaitDue(ctx context.Context, c spool.Claim) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.due.claimers.Await(ctx, s.closed, spool.ErrClosed, func() (bool, time.Duration, error) {
		now := s.nowMilli()
		id, next := s.due.next(&c, now)
		return id != "", contract.LookAgain(now, next), nil
	})
}

// agenda is a heap of the sessions that can or will be claimable, the earliest
// first. It is locked after a session, never before.
type agenda struct {
	mu       sync.Mutex
	heap     []*session
	claimers watch.Claimers // one is woken when a session's time comes nearer
}

// update puts a session where its state (locked by the caller) belongs.
func (g *agenda) update(ss *session) {
	at, agent := ss.readyAt(), ss.row.Agent
	g.mu.Lock()
	defer g.mu.Unlock()
	ss.expires = ss.lease.expires
	old := int64(contract.Never)
	if ss.agendaIndex >= 0 {
		old = ss.ready
	}
	retagged := ss.agent != agent
	ss.agent = agent
	switch {
	case at == old:
	case at == contract.Never:
		heap.Remove(g, ss.agendaIndex)
	case ss.agendaIndex < 0:
		ss.ready = at
		heap.Push(g, ss)
	default:
		ss.ready = at
		heap.Fix(g, ss.agendaIndex)
	}
	if at < old || retagged && at != contract.Never {
		g.claimers.Wake()
	}
}

// next returns the session that is claimable for longest, or "" and the time
// at which to look again. Below a node that is not ready yet nothing is, so
// only what is ready is visited.
func (g *agenda) next(c *spool.Claim, now int64) (id string, at int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	best, at := int64(contract.Never), int64(contract.Never)
	var visit func(i int)
	visit = func(i int) {
		if i >= len(g.heap) {
			return
		}
		ss := g.heap[i]
		if ss.ready > now {
			at = min(at, ss.ready)
			return
		}
		if ss.ready >= best {
			return
		}
		if contract.Matches(c, ss.agent) && (c.Session == "" || c.Session == ss.id) {
			if !contract.Spared(c, ss.expires, now) {
				id, best = ss.id, ss.ready
				return // nothing below is earlier
			}
			at = min(at, ss.expires+contract.TTL(c.ExpiredFor))
		}
		visit(2*i + 1)
		visit(2*i + 2)
	}
	visit(0)
	return id, at
}

func (g *agenda) Len() int           { return len(g.heap) }
func (g *agenda) Less(i, j int) bool { return g.heap[i].ready < g.heap[j].ready }
func (g *agenda) Swap(i, j int) {
	g.heap[i], g.heap[j] = g.heap[j], g.heap[i]
	g.heap[i].agendaIndex, g.heap[j].agendaIndex = i, j
}

func (g *agenda) Push(x any) {
	ss := x.(*session)
	ss.agendaIndex = len(g.heap)
	g.heap = append(g.heap, ss)
}

func (g *agenda) Pop() any {
	last := len(g.heap) - 1
	ss := g.heap[last]
	g.heap[last] = nil
	g.heap = slices.Delete(g.heap, last, last+1)
	ss.agendaIndex = -1
	return ss
}

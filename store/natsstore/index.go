package natsstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/contract"
	"github.com/spool-run/spool/store/watch"
)

// index has the rows of all sessions in this process's memory. It follows the headers of the
// stream's messages, without those of plain trace, through one consumer. It begins when it
// is asked for the first time. It is a hint: the sessions' last messages decide.
type index struct {
	s        *Store
	claimers watch.Claimers

	starting sync.Mutex // held while the consumer is made

	mu       sync.Mutex
	consumer jetstream.ConsumeContext
	seen     uint64
	moved    chan struct{} // closed when seen grows; nil: nobody waits
	rows     map[string]*row
	ready    map[string]*row // those that can or will be claimable
	claims   map[string]string
}

type row struct {
	st  *state // without its marks and writers
	seq uint64
}

func newIndex(s *Store) *index {
	x := &index{s: s}
	x.clear()
	return x
}

func (x *index) clear() {
	x.seen, x.rows, x.ready, x.claims = 0, map[string]*row{}, map[string]*row{}, map[string]string{}
}

func (x *index) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.consumer != nil {
		x.consumer.Stop()
		x.consumer = nil
	}
}

// renew forgets everything, after a loss.
func (x *index) renew() {
	x.close()
	x.mu.Lock()
	x.clear()
	x.mu.Unlock()
	x.claimers.Wake()
}

// sync waits until the index has all that was stored before the call.
func (x *index) sync(ctx context.Context) error {
	if err := x.s.settled(ctx); err != nil {
		return err
	}
	if err := x.start(ctx); err != nil {
		return x.s.failed(ctx, "", err)
	}
	m, err := x.s.get(ctx, x.s.log, query{Last: x.s.prefix + ".s.*.i.>"})
	if errors.Is(err, errNoMessage) {
		return nil
	}
	if err != nil {
		return x.s.failed(ctx, "", err)
	}
	until, cancel := context.WithTimeout(ctx, x.s.o.Timeout)
	defer cancel()
	for {
		x.mu.Lock()
		if x.seen >= m.seq {
			x.mu.Unlock()
			return nil
		}
		if x.moved == nil {
			x.moved = make(chan struct{})
		}
		moved := x.moved
		x.mu.Unlock()
		select {
		case <-moved:
		case <-until.Done():
			return x.s.failed(ctx, "", errSilent)
		case <-x.s.ctx.Done():
			return spool.ErrClosed
		}
	}
}

func (x *index) begun() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.consumer != nil
}

func (x *index) start(ctx context.Context) error {
	x.starting.Lock()
	defer x.starting.Unlock()
	if x.begun() {
		return nil
	}
	until, cancel := context.WithTimeout(ctx, x.s.o.Timeout)
	defer cancel()
	for {
		err := x.consume(until)
		if err == nil || pause(until, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// consume begins to follow the stream.
func (x *index) consume(ctx context.Context) error {
	ctx, cancel := x.s.link.attempt(ctx)
	defer cancel()
	c, err := x.s.js.OrderedConsumer(ctx, x.s.log, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{x.s.prefix + ".s.*.i.>"}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, HeadersOnly: true})
	if err != nil {
		return err
	}
	consumer, err := c.Consume(x.receive)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.consumer = consumer
	x.mu.Unlock()
	return nil
}

func (x *index) receive(m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		return
	}
	if st, err := decodeState(m.Headers()); err == nil {
		st.raise(x.s.history.now())
		x.s.clock.After(st.At)
		x.apply(st, meta.Sequence.Stream)
	}
	x.s.history.see(meta.Sequence.Stream, true)
	x.mu.Lock()
	x.seen = max(x.seen, meta.Sequence.Stream)
	if x.moved != nil {
		close(x.moved)
		x.moved = nil
	}
	x.mu.Unlock()
}

// apply takes over a state, unless a later one is known.
func (x *index) apply(st *state, seq uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.consumer == nil {
		return
	}
	old := x.rows[st.Session]
	if old != nil && old.seq > seq {
		return
	}
	before, agent := int64(contract.Never), ""
	if old != nil {
		before, agent = old.st.readyAt(), old.st.Row.Agent
		if x.claims[old.st.Claim] == st.Session {
			delete(x.claims, old.st.Claim)
		}
	}
	slim := *st
	slim.Marks, slim.writers = nil, nil
	r := &row{&slim, seq}
	at := st.readyAt()
	if at == contract.Never {
		delete(x.ready, st.Session)
	} else {
		x.ready[st.Session] = r
	}
	if !st.Exists {
		delete(x.rows, st.Session)
	} else {
		x.rows[st.Session] = r
	}
	if st.Claim != "" {
		x.claims[st.Claim] = st.Session
	}
	if at < before || at != contract.Never && agent != st.Row.Agent {
		x.claimers.Wake()
	}
}

// claimed returns the session of a claim's lease, if it has one.
func (x *index) claimed(c *spool.Claim) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := x.claims[c.ID]
	if r := x.rows[id]; r != nil && r.st.Owner == c.Owner {
		return id
	}
	return ""
}

// next returns the session that is claimable for longest, or "" and the time at which to look
// again.
func (x *index) next(c *spool.Claim, now int64) (id string, at int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	best, at := int64(contract.Never), int64(contract.Never)
	for session, r := range x.ready {
		ready := r.st.readyAt()
		switch {
		case !contract.Matches(c, r.st.Row.Agent) || c.Session != "" && c.Session != session:
		case ready > now:
			at = min(at, ready)
		case contract.Spared(c, r.st.Expires, now):
			at = min(at, r.st.Expires+contract.TTL(c.ExpiredFor))
		case ready < best:
			id, best = session, ready
		}
	}
	return id, at
}

// Sessions implements [spool.Lister].
func (s *Store) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	if err := s.usable(ctx); err != nil {
		return spool.SessionPage{}, err
	}
	after, err := contract.ParsePlace(q.After)
	if err != nil {
		return spool.SessionPage{}, err
	}
	if err := s.index.sync(ctx); err != nil {
		return spool.SessionPage{}, err
	}
	now := s.clock.Now()
	since := contract.IdleSince(q.Idle, now)
	found := s.index.infos(func(i *spool.SessionInfo) bool {
		return contract.Wants(&q, i) && i.Updated <= since && (q.After == "" || after.Before(*i))
	})
	slices.SortFunc(found, func(a, b spool.SessionInfo) int {
		return cmp.Or(cmp.Compare(b.Updated, a.Updated), cmp.Compare(a.Session, b.Session))
	})
	limit := q.Max
	if limit <= 0 {
		limit = 100
	}
	p := spool.SessionPage{Sessions: found, Now: now}
	if len(found) > limit {
		p.Sessions = slices.Clip(found[:limit])
		p.NextAfter = contract.After(p.Sessions[limit-1])
	}
	return p, nil
}

func (x *index) infos(want func(*spool.SessionInfo) bool) []spool.SessionInfo {
	x.mu.Lock()
	defer x.mu.Unlock()
	var found []spool.SessionInfo
	for _, r := range x.rows {
		if i := r.st.info(); want(&i) {
			found = append(found, i)
		}
	}
	return found
}

// Session implements [spool.Lister].
func (s *Store) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	if err := s.usable(ctx); err != nil {
		return spool.SessionInfo{}, err
	}
	st, _, err := s.existing(ctx, session)
	if err != nil {
		return spool.SessionInfo{}, err
	}
	return st.info(), nil
}

// Usage implements [spool.Measurer].
func (s *Store) Usage(ctx context.Context, principal string) (spool.Usage, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Usage{}, err
	}
	if err := s.index.sync(ctx); err != nil {
		return spool.Usage{}, err
	}
	u := spool.Usage{Now: s.clock.Now()}
	for _, i := range s.index.infos(func(i *spool.SessionInfo) bool {
		return !i.Head.Hidden && (principal == "" || i.Head.Principal == principal)
	}) {
		if u.Sessions++; u.Oldest == 0 || i.Updated < u.Oldest {
			u.Oldest = i.Updated
		}
		u.Bytes += i.Bytes
		u.Largest = max(u.Largest, i.Bytes)
	}
	return u, nil
}

package storetest_test

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// lateIndexes is no fault: it is allowed.
const lateIndexes = "indexes are late"

// engineFaults says what else is wrong with a store, and in which group of checks it must
// show at the latest. make returns an instance with the fault; raise is what the engine
// does when it was set back.
var engineFaults = map[string]struct {
	group string
	make  func(e *memstore.Store, p *place) storetest.Engine
	raise func(early *memstore.Store)
}{
	lateIndexes: {"", func(e *memstore.Store, p *place) storetest.Engine {
		return &lagging{Store: e, place: p}
	}, nil},
	"raises nothing after a loss": {"Rewind", nil, func(*memstore.Store) {}},
	"renews leases of before a loss": {"Rewind", func(e *memstore.Store, _ *place) storetest.Engine {
		return &renews{Engine: e, renew: func(context.Context, spool.Lease) error { return nil }}
	}, nil},
	"repeats appends of before a loss": {"Rewind", func(e *memstore.Store, p *place) storetest.Engine {
		return &appends{Engine: e, append: func(ctx context.Context, a spool.Append) (spool.Appended, error) {
			res, err := e.Append(ctx, a)
			if h, herr := e.Head(ctx, a.Session); errors.Is(err, spool.ErrSuperseded) && herr == nil && a.Ordinal == 1 && h.Incarnation > 1 {
				return spool.Appended{First: 1, Last: 1, Head: h, Repeated: true}, nil
			}
			return res, err
		}}
	}, nil},
	"keeps waiters asleep after a loss": {"Rewind", func(e *memstore.Store, _ *place) storetest.Engine {
		return &waits{Engine: e, wait: func(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
			h, next, err := e.Wait(ctx, session, seen)
			if err == nil && seen.Incarnation > 0 && h.Incarnation != seen.Incarnation {
				<-ctx.Done()
				return spool.Head{}, nil, ctx.Err()
			}
			return h, next, err
		}}
	}, nil},

	"renews nothing": {"Lease", func(e *memstore.Store, _ *place) storetest.Engine {
		return &renews{Engine: e, renew: func(ctx context.Context, l spool.Lease) error {
			if h, err := e.Head(ctx, l.Session); err != nil || h.Epoch != l.Epoch {
				return spool.ErrSuperseded
			}
			return nil
		}}
	}, nil},
	"appends do not renew": {"Lease", func(e *memstore.Store, p *place) storetest.Engine {
		return &noRenewal{Store: e, clock: p.clock, ends: map[string]time.Time{}}
	}, nil},
	"paused sessions never expire": {"Lease", func(e *memstore.Store, _ *place) storetest.Engine {
		return &claims{Engine: e, grant: func(l spool.Lease) bool { return l.Head.Pending || l.Head.Status != chunk.StatusPaused }}
	}, nil},
	"claims what is due 3 s late": {"Lease", func(e *memstore.Store, _ *place) storetest.Engine {
		return &claims{Engine: e, grant: func(l spool.Lease) bool { return l.Head.Pending || l.Now >= l.Head.Due+3000 }}
	}, nil},

	"forgets ordinals with a claim's duplicate": {"Late", func(e *memstore.Store, p *place) storetest.Engine {
		return &appends{
			Engine: &claims{Engine: e, grant: func(l spool.Lease) bool {
				if l.Head.Seq > 1 {
					p.notes.Store(l.Session, true)
				}
				return true
			}},
			append: func(ctx context.Context, a spool.Append) (spool.Appended, error) {
				if _, ok := p.notes.Load(a.Session); ok {
					a.Ordinal = 0
				}
				return e.Append(ctx, a)
			},
		}
	}, nil},
	"renews the present lease by an earlier one": {"Late", func(e *memstore.Store, _ *place) storetest.Engine {
		return &renews{Engine: e, renew: func(ctx context.Context, l spool.Lease) error {
			err := e.Renew(ctx, l)
			if h, herr := e.Head(ctx, l.Session); herr == nil && err != nil {
				l.Epoch = h.Epoch
				_ = e.Renew(ctx, l)
			}
			return err
		}}
	}, nil},
	"releases the present lease by an earlier one": {"Late", func(e *memstore.Store, _ *place) storetest.Engine {
		return &releases{e}
	}, nil},
	"takes each claim for a new one": {"Cut", func(e *memstore.Store, _ *place) storetest.Engine {
		return &claimsAs{e, func(c *spool.Claim) { c.ID = "" }}
	}, nil},
	"wakes waiters with nothing when it is cut": {"Cut", func(e *memstore.Store, _ *place) storetest.Engine {
		return &waits{Engine: e, wait: func(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
			h, next, err := e.Wait(ctx, session, seen)
			if err != nil {
				return seen, nil, nil
			}
			return h, next, nil
		}}
	}, nil},
	"stores what was cancelled without its ordinal": {"Cut", func(e *memstore.Store, _ *place) storetest.Engine {
		return &appends{Engine: e, append: func(ctx context.Context, a spool.Append) (spool.Appended, error) {
			if ctx.Err() == nil {
				if runtime.Gosched(); ctx.Err() != nil {
					a.Ordinal = 0
				}
			}
			res, err := e.Append(context.WithoutCancel(ctx), a)
			return res, errors.Join(err, ctx.Err())
		}}
	}, nil},
	"polls instead of being notified": {"Prompt", func(e *memstore.Store, _ *place) storetest.Engine {
		return &waits{Engine: e, wait: func(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
			for {
				if h, err := e.Head(ctx, session); err != nil && !errors.Is(err, spool.ErrNotFound) || err == nil && h != seen {
					return h, nil, err
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		}}
	}, nil},
	"says 3 s late that something is due": {"Prompt", func(e *memstore.Store, _ *place) storetest.Engine {
		return &awaits{e, func(ctx context.Context, c spool.Claim) error {
			err := e.AwaitDue(ctx, c)
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Second):
			}
			return err
		}}
	}, nil},
	"has a goroutine for each waiter": {"Prompt", func(e *memstore.Store, _ *place) storetest.Engine {
		return &waits{Engine: e, wait: func(ctx context.Context, session string, seen spool.Head) (h spool.Head, next []chunk.Record, err error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				h, next, err = e.Wait(ctx, session, seen)
			}()
			<-done
			return h, next, err
		}}
	}, nil},
	"only listens to notifications": {"Prompt", func(e *memstore.Store, p *place) storetest.Engine {
		return &waits{Engine: e, wait: func(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
			if p.deaf.Load() {
				<-ctx.Done()
			}
			return e.Wait(ctx, session, seen)
		}}
	}, nil},
	"takes each notification for a change": {"Prompt", func(e *memstore.Store, p *place) storetest.Engine {
		return &waits{Engine: e, wait: func(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
			if p.twice.Load() && seen.Seq > 0 {
				h, err := e.Head(ctx, session)
				return h, nil, err
			}
			return e.Wait(ctx, session, seen)
		}}
	}, nil},
	"writes nothing while its clock is behind": {"Clock", func(e *memstore.Store, p *place) storetest.Engine {
		return &appends{Engine: e, append: func(ctx context.Context, a spool.Append) (spool.Appended, error) {
			now := p.clock.Now()
			if latest, ok := p.notes.Load("latest"); ok && now.Before(latest.(time.Time)) {
				return spool.Appended{}, spool.ErrUnavailable
			}
			p.notes.Store("latest", now)
			return e.Append(ctx, a)
		}}
	}, nil},
	"compares times with a clock that goes back": {"Clock", func(e *memstore.Store, p *place) storetest.Engine {
		return &claims{Engine: e, grant: func(l spool.Lease) bool { return l.Head.Due <= p.clock.Now().UnixMilli() }}
	}, nil},
	"tells owners a time that goes back": {"Clock", func(e *memstore.Store, p *place) storetest.Engine {
		return &tells{e, func(l *spool.Lease) { l.Now = p.clock.Now().UnixMilli() }}
	}, nil},
	"ends leases by the clock of the process": {"Clock", func(e *memstore.Store, p *place) storetest.Engine {
		return &ownClock{Engine: e, ends: &p.notes}
	}, nil},
	"answers from what an instance has read": {"Linear", func(e *memstore.Store, _ *place) storetest.Engine {
		return &cached{Engine: e}
	}, nil},
	"grants a repeat beside its claim": {"Storm", func(e *memstore.Store, _ *place) storetest.Engine {
		var granted sync.Map // the ids of claims
		return &claimsAs{e, func(c *spool.Claim) {
			id := c.ID
			if _, ok := granted.Load(id); !ok {
				c.ID = ""
			}
			runtime.Gosched()
			granted.Store(id, true)
		}}
	}, nil},
	"gives a lease to two claimers": {"Storm", func(e *memstore.Store, p *place) storetest.Engine {
		return &shares{e, p}
	}, nil},
	"lets commands wait for the owner's pause": {"Command", func(e *memstore.Store, _ *place) storetest.Engine {
		var owner atomic.Int64
		return &appends{Engine: e, append: func(ctx context.Context, a spool.Append) (spool.Appended, error) {
			if a.Epoch > 0 {
				owner.Add(1)
				return e.Append(ctx, a)
			}
			for before := int64(-1); ctx.Err() == nil && before != owner.Load(); time.Sleep(500 * time.Millisecond) {
				before = owner.Load()
			}
			if err := ctx.Err(); err != nil {
				return spool.Appended{}, err
			}
			return e.Append(ctx, a)
		}}
	}, nil},
	"pages by the number of sessions before": {"List", func(e *memstore.Store, _ *place) storetest.Engine {
		return &offsets{e}
	}, nil},
	"drops records with the lease": {"Read", func(e *memstore.Store, p *place) storetest.Engine {
		return &forgets{Engine: e, clock: p.clock, until: p.clock.Now().Add(time.Hour)}
	}, nil},
}

type releases struct{ storetest.Engine }

func (f *releases) Release(ctx context.Context, l spool.Lease) error {
	if h, err := f.Head(ctx, l.Session); err == nil {
		l.Epoch = h.Epoch
	}
	return f.Engine.Release(ctx, l)
}

// shares gives the latest lease again if nothing is due.
type shares struct {
	storetest.Engine
	place *place
}

func (f *shares) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	l, err := f.Engine.Claim(ctx, c)
	if err == nil {
		f.place.notes.Store("lease", l)
	} else if shared, ok := f.place.notes.Load("lease"); ok && errors.Is(err, spool.ErrNothingDue) {
		return shared.(spool.Lease), nil
	}
	return l, err
}

// tells changes what owners are told.
type tells struct {
	storetest.Engine
	change func(*spool.Lease)
}

func (f *tells) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	l, err := f.Engine.Claim(ctx, c)
	f.change(&l)
	return l, err
}

// ownClock grants no session whose lease lasts by the clock of the process.
type ownClock struct {
	storetest.Engine
	ends *sync.Map // time.Time by session
}

func (f *ownClock) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	l, err := f.Engine.Claim(ctx, c)
	if err != nil {
		return l, err
	}
	if end, ok := f.ends.Load(l.Session); ok && !c.Force && time.Now().Before(end.(time.Time)) {
		return spool.Lease{}, errors.Join(spool.ErrNothingDue, f.Engine.Release(ctx, l))
	}
	f.ends.Store(l.Session, time.Now().Add(l.TTL))
	return l, nil
}

func (f *ownClock) Release(ctx context.Context, l spool.Lease) error {
	f.ends.Delete(l.Session)
	return f.Engine.Release(ctx, l)
}

// cached gives each head that it has read twice.
type cached struct {
	storetest.Engine
	heads sync.Map // by session
}

func (f *cached) Head(ctx context.Context, session string) (spool.Head, error) {
	if h, ok := f.heads.LoadAndDelete(session); ok {
		return h.(spool.Head), nil
	}
	h, err := f.Engine.Head(ctx, session)
	if err == nil {
		f.heads.Store(session, h)
	}
	return h, err
}

type claimsAs struct {
	storetest.Engine
	change func(*spool.Claim)
}

func (f *claimsAs) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	f.change(&c)
	return f.Engine.Claim(ctx, c)
}

type awaits struct {
	storetest.Engine
	await func(context.Context, spool.Claim) error
}

func (f *awaits) AwaitDue(ctx context.Context, c spool.Claim) error { return f.await(ctx, c) }

// offsets lists pages by how many sessions came before.
type offsets struct{ storetest.Engine }

func (f *offsets) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	offset, err := strconv.Atoi(cmp.Or(q.After, "0"))
	if err != nil {
		return spool.SessionPage{}, chunk.ErrInvalid
	}
	limit := cmp.Or(q.Max, 100)
	q.After, q.Max = "", 10_000
	p, err := f.Engine.Sessions(ctx, q)
	p.Sessions = p.Sessions[min(offset, len(p.Sessions)):]
	if len(p.Sessions) > limit {
		p.Sessions, p.NextAfter = p.Sessions[:limit], strconv.Itoa(offset+limit)
	}
	return p, err
}

// forgets loses the records of an hour ago.
type forgets struct {
	storetest.Engine
	clock *storetest.Clock
	until time.Time
}

func (f *forgets) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	rs, h, err := f.Engine.Read(ctx, session, after, max)
	if f.clock.Now().After(f.until) && len(rs) > 1 {
		rs = rs[1:]
	}
	return rs, h, err
}

type appends struct {
	storetest.Engine
	append func(context.Context, spool.Append) (spool.Appended, error)
}

func (f *appends) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	return f.append(ctx, a)
}

type renews struct {
	storetest.Engine
	renew func(context.Context, spool.Lease) error
}

func (f *renews) Renew(ctx context.Context, l spool.Lease) error { return f.renew(ctx, l) }

type waits struct {
	storetest.Engine
	wait func(context.Context, string, spool.Head) (spool.Head, []chunk.Record, error)
}

func (f *waits) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	return f.wait(ctx, session, seen)
}

// claims gives only some of the leases that nobody has forced.
type claims struct {
	storetest.Engine
	grant func(spool.Lease) bool
}

func (f *claims) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	l, err := f.Engine.Claim(ctx, c)
	if err != nil || c.Force || f.grant(l) {
		return l, err
	}
	return spool.Lease{}, errors.Join(spool.ErrNothingDue, f.Release(ctx, l))
}

// noRenewal gives leases away that only appends have renewed.
type noRenewal struct {
	*memstore.Store
	clock *storetest.Clock
	mu    sync.Mutex
	ends  map[string]time.Time
}

func (f *noRenewal) lasts(l spool.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends[l.Session] = f.clock.Now().Add(l.TTL)
}

func (f *noRenewal) Renew(ctx context.Context, l spool.Lease) error {
	err := f.Store.Renew(ctx, l)
	if err == nil {
		f.lasts(l)
	}
	return err
}

func (f *noRenewal) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	l, err := f.Store.Claim(ctx, c)
	if errors.Is(err, spool.ErrNothingDue) {
		f.mu.Lock()
		for session, end := range f.ends {
			if !end.After(f.clock.Now()) {
				c.Session, c.Force = session, true
			}
		}
		f.mu.Unlock()
		if c.Force {
			l, err = f.Store.Claim(ctx, c)
		}
	}
	if err == nil {
		f.lasts(l)
	}
	return l, err
}

// lagging is a store whose indexes lag: what it lists, and finds for any claim, is what was
// there when it was asked the last time. It lists when a session was updated in units of ten
// seconds, and sorts by that. The suite passes it.
type lagging struct {
	*memstore.Store
	place  *place
	mu     sync.Mutex
	listed map[spool.SessionQuery]*memstore.Store
	due    *memstore.Store
}

// now is the store's clock, which does not go back where that of the place does.
func (l *lagging) now() time.Time {
	page, _ := l.Store.Sessions(context.Background(), spool.SessionQuery{Max: 1})
	return time.UnixMilli(page.Now)
}

func (l *lagging) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	after, err := contract.ParsePlace(q.After)
	if err != nil {
		return spool.SessionPage{}, err
	}
	key := q
	key.After, key.Max = "", 0
	l.mu.Lock()
	index := l.listed[key]
	if q.After == "" { // the next first page is of now
		if l.listed == nil {
			l.listed = map[spool.SessionQuery]*memstore.Store{}
		}
		l.listed[key] = l.Fork(&memstore.Options{Now: l.now})
	}
	l.mu.Unlock()
	if index == nil {
		index = memstore.New(&memstore.Options{Now: l.now})
	}
	if _, err := l.Store.Sessions(ctx, q); err != nil {
		return spool.SessionPage{}, err
	}
	all := key
	all.Max = 1 << 20
	page, err := index.Sessions(ctx, all)
	if err != nil {
		return page, err
	}
	for i := range page.Sessions {
		page.Sessions[i].Updated -= page.Sessions[i].Updated % 10_000
	}
	slices.SortFunc(page.Sessions, func(a, b spool.SessionInfo) int {
		return cmp.Or(cmp.Compare(b.Updated, a.Updated), cmp.Compare(a.Session, b.Session))
	})
	if q.After != "" {
		page.Sessions = slices.DeleteFunc(page.Sessions, func(i spool.SessionInfo) bool { return !after.Before(i) })
	}
	if most := cmp.Or(q.Max, 100); len(page.Sessions) > most {
		page.Sessions = page.Sessions[:most]
		page.NextAfter = contract.After(page.Sessions[most-1])
	}
	return page, nil
}

func (l *lagging) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	if _, err := l.Head(ctx, "s"); c.Session != "" || err != nil && !errors.Is(err, spool.ErrNotFound) {
		return l.Store.Claim(ctx, c)
	}
	l.mu.Lock()
	index := l.due
	l.due = l.Fork(&memstore.Options{Now: l.now})
	l.mu.Unlock()
	if contract.CheckClaim(&c) == nil {
		if index == nil {
			index = memstore.New(nil)
		}
		if _, err := index.Claim(ctx, c); err != nil {
			return spool.Lease{}, err
		}
	}
	return l.Store.Claim(ctx, c)
}

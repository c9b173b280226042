package storetest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// engineFaults says what else is wrong with a store, and in which group of checks it must
// show at the latest. make returns an instance with the fault; raise is what the engine
// does when it was set back.
var engineFaults = map[string]struct {
	group string
	make  func(e *memstore.Store, p *place) storetest.Engine
	raise func(early *memstore.Store)
}{
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

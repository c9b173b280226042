package storetest

import (
	"context"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Outage is a store that can be away for a while: then every call fails, or hangs until
// the store is back. Calls that were under way when it went away lose their answers, or
// get them late.
type Outage struct {
	Engine
	mu    sync.Mutex
	hangs bool
	back  chan struct{} // closed when the outage ends; nil: there is none
	gone  chan struct{} // closed when the next one begins
}

// NewOutage returns a store over the engine, which can be reached.
func NewOutage(e Engine) *Outage { return &Outage{Engine: e, gone: make(chan struct{})} }

// Begin begins an outage, in which calls fail or hang.
func (o *Outage) Begin(hangs bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.back == nil {
		o.hangs, o.back = hangs, make(chan struct{})
		close(o.gone)
	}
}

// End ends the outage.
func (o *Outage) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.back != nil {
		close(o.back)
		o.back, o.gone = nil, make(chan struct{})
	}
}

// Reach returns nil if the store can be reached, or when that is so again.
func (o *Outage) Reach(ctx context.Context) error {
	for {
		o.mu.Lock()
		back, hangs := o.back, o.hangs
		o.mu.Unlock()
		switch {
		case back == nil:
			return nil
		case !hangs:
			return spool.ErrUnavailable.Because("the store is away")
		}
		select {
		case <-back:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reaching makes a call.
func reaching[T any](ctx context.Context, o *Outage, call func(ctx context.Context) (T, error)) (T, error) {
	var none T
	if err := o.Reach(ctx); err != nil {
		return none, err
	}
	res, err := call(ctx)
	if lost := o.Reach(ctx); lost != nil {
		return none, lost
	}
	return res, err
}

// done makes a call that has no result.
func (o *Outage) done(ctx context.Context, call func(ctx context.Context) error) error {
	_, err := reaching(ctx, o, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// waiting makes a call that is cut off when an outage begins in which calls fail.
func waiting[T any](ctx context.Context, o *Outage, call func(ctx context.Context) (T, error)) (T, error) {
	return reaching(ctx, o, func(ctx context.Context) (T, error) {
		o.mu.Lock()
		gone := o.gone
		o.mu.Unlock()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-gone:
				o.mu.Lock()
				defer o.mu.Unlock()
				if !o.hangs {
					cancel()
				}
			case <-ctx.Done():
			}
		}()
		return call(ctx)
	})
}

// Wait implements [spool.Store], as the methods below implement it and the roles.
func (o *Outage) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	p, err := waiting(ctx, o, func(ctx context.Context) (p page, err error) {
		p.head, p.recs, err = o.Engine.Wait(ctx, session, seen)
		return p, err
	})
	return p.head, p.recs, err
}

func (o *Outage) AwaitDue(ctx context.Context, c spool.Claim) error {
	_, err := waiting(ctx, o, func(ctx context.Context) (struct{}, error) { return struct{}{}, o.Engine.AwaitDue(ctx, c) })
	return err
}

func (o *Outage) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	return reaching(ctx, o, func(ctx context.Context) (spool.Appended, error) { return o.Engine.Append(ctx, a) })
}

// page is what a read or a wait returns.
type page struct {
	recs []chunk.Record
	head spool.Head
}

func (o *Outage) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	p, err := reaching(ctx, o, func(ctx context.Context) (p page, err error) {
		p.recs, p.head, err = o.Engine.Read(ctx, session, after, max)
		return p, err
	})
	return p.recs, p.head, err
}

func (o *Outage) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	p, err := reaching(ctx, o, func(ctx context.Context) (p page, err error) {
		p.recs, p.head, err = o.Engine.ReadKept(ctx, session, q)
		return p, err
	})
	return p.recs, p.head, err
}

func (o *Outage) Head(ctx context.Context, session string) (spool.Head, error) {
	return reaching(ctx, o, func(ctx context.Context) (spool.Head, error) { return o.Engine.Head(ctx, session) })
}

func (o *Outage) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	return reaching(ctx, o, func(ctx context.Context) (spool.Lease, error) { return o.Engine.Claim(ctx, c) })
}

func (o *Outage) Renew(ctx context.Context, l spool.Lease) error {
	return o.done(ctx, func(ctx context.Context) error { return o.Engine.Renew(ctx, l) })
}

func (o *Outage) Release(ctx context.Context, l spool.Lease) error {
	return o.done(ctx, func(ctx context.Context) error { return o.Engine.Release(ctx, l) })
}

func (o *Outage) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	return reaching(ctx, o, func(ctx context.Context) (spool.SessionPage, error) { return o.Engine.Sessions(ctx, q) })
}

func (o *Outage) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	return reaching(ctx, o, func(ctx context.Context) (spool.SessionInfo, error) { return o.Engine.Session(ctx, session) })
}

func (o *Outage) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	return o.done(ctx, func(ctx context.Context) error { return o.Engine.Trim(ctx, session, traceFloor, floor) })
}

func (o *Outage) Delete(ctx context.Context, session string) error {
	return o.done(ctx, func(ctx context.Context) error { return o.Engine.Delete(ctx, session) })
}

func (o *Outage) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) error {
	return o.done(ctx, func(ctx context.Context) error { return o.Engine.SaveFold(ctx, session, name, f) })
}

func (o *Outage) LoadFold(ctx context.Context, session, name string) (spool.SavedFold, error) {
	return reaching(ctx, o, func(ctx context.Context) (spool.SavedFold, error) { return o.Engine.LoadFold(ctx, session, name) })
}

func (o *Outage) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	return o.done(ctx, func(ctx context.Context) error { return o.Engine.PutBlob(ctx, session, hash, data) })
}

func (o *Outage) GetBlob(ctx context.Context, session, hash string) ([]byte, error) {
	return reaching(ctx, o, func(ctx context.Context) ([]byte, error) { return o.Engine.GetBlob(ctx, session, hash) })
}

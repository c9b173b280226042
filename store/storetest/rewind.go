package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Engine is a store with all roles that a [Rewound] passes on.
type Engine interface {
	spool.Store
	spool.Leaser
	spool.Lister
	spool.Trimmer
	spool.Expirer
	spool.FoldStore
	spool.BlobStore
}

// Rewound is a store whose engine can be set back to an earlier state, as by a promoted
// replica or a restored backup, while its users stay connected.
type Rewound struct {
	mu     sync.RWMutex
	engine Engine
	gone   chan struct{} // closed when the engine is replaced
}

// NewRewound returns a store over the engine.
func NewRewound(e Engine) *Rewound { return &Rewound{engine: e, gone: make(chan struct{})} }

// Set puts another engine in the place of the present one. Calls that wait fail with
// [spool.ErrUnavailable], as if their connections were cut.
func (r *Rewound) Set(e Engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine = e
	close(r.gone)
	r.gone = make(chan struct{})
}

func (r *Rewound) now() Engine {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.engine
}

// waiting calls fn with a context that ends when the engine is replaced.
func (r *Rewound) waiting(ctx context.Context, fn func(context.Context, Engine) error) error {
	r.mu.RLock()
	e, gone := r.engine, r.gone
	r.mu.RUnlock()
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-gone:
			cancel()
		case <-until.Done():
		}
	}()
	err := fn(until, e)
	if err != nil && ctx.Err() == nil && until.Err() != nil {
		return spool.ErrUnavailable
	}
	return err
}

// Wait implements [spool.Store], as the methods below implement it and the roles.
func (r *Rewound) Wait(ctx context.Context, session string, seen spool.Head) (h spool.Head, next []chunk.Record, err error) {
	err = r.waiting(ctx, func(ctx context.Context, e Engine) (err error) {
		h, next, err = e.Wait(ctx, session, seen)
		return err
	})
	return h, next, err
}

func (r *Rewound) AwaitDue(ctx context.Context, c spool.Claim) error {
	return r.waiting(ctx, func(ctx context.Context, e Engine) error { return e.AwaitDue(ctx, c) })
}

func (r *Rewound) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	return r.now().Append(ctx, a)
}

func (r *Rewound) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	return r.now().Read(ctx, session, after, max)
}

func (r *Rewound) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	return r.now().ReadKept(ctx, session, q)
}

func (r *Rewound) Head(ctx context.Context, session string) (spool.Head, error) {
	return r.now().Head(ctx, session)
}

func (r *Rewound) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	return r.now().Claim(ctx, c)
}

func (r *Rewound) Renew(ctx context.Context, l spool.Lease) error   { return r.now().Renew(ctx, l) }
func (r *Rewound) Release(ctx context.Context, l spool.Lease) error { return r.now().Release(ctx, l) }

func (r *Rewound) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	return r.now().Sessions(ctx, q)
}

func (r *Rewound) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	return r.now().Session(ctx, session)
}

func (r *Rewound) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	return r.now().Trim(ctx, session, traceFloor, floor)
}

func (r *Rewound) Delete(ctx context.Context, session string) error {
	return r.now().Delete(ctx, session)
}

func (r *Rewound) Expire(ctx context.Context, session string, idle time.Duration) error {
	return r.now().Expire(ctx, session, idle)
}

func (r *Rewound) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) error {
	return r.now().SaveFold(ctx, session, name, f)
}

func (r *Rewound) LoadFold(ctx context.Context, session, name string) (spool.SavedFold, error) {
	return r.now().LoadFold(ctx, session, name)
}

func (r *Rewound) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	return r.now().PutBlob(ctx, session, hash, data)
}

func (r *Rewound) GetBlob(ctx context.Context, session, hash string) ([]byte, error) {
	return r.now().GetBlob(ctx, session, hash)
}

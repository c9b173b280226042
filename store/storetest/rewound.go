package storetest

import (
	"context"
	"io"
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
	spool.Importer
}

// Lost says what of a call a connection loses.
type Lost int

const (
	LostNothing Lost = iota
	LostRequest      // the engine does not get the call
	LostAnswer       // the engine does it, and the caller does not learn it
)

// Rewound is a store whose engine can be set back to an earlier state, as by a promoted
// replica or a restored backup, and whose connections can be cut, while its users stay
// connected. Calls that lose something fail with [spool.ErrUnavailable].
type Rewound struct {
	mu     sync.RWMutex
	engine Engine
	loses  func() Lost        // nil: nothing
	gone   context.Context    // ends when the engine is replaced or the connections are cut
	leave  context.CancelFunc // ends gone
}

// NewRewound returns a store over the engine.
func NewRewound(e Engine) *Rewound {
	r := &Rewound{}
	r.Set(e)
	return r
}

// Set puts another engine in the place of the present one, and ends calls that wait.
func (r *Rewound) Set(e Engine) {
	r.change(func() { r.engine = e })
}

// Lose sets what becomes of calls from now on, but for Wait and AwaitDue: it is asked
// before each, by several goroutines at once. nil: nothing is lost.
func (r *Rewound) Lose(loses func() Lost) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loses = loses
}

// Cut ends calls that wait, and loses all requests until the connections are mended.
func (r *Rewound) Cut() (mend func()) {
	r.change(func() { r.loses = func() Lost { return LostRequest } })
	return func() { r.Lose(nil) }
}

func (r *Rewound) change(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
	if r.leave != nil {
		r.leave()
	}
	r.gone, r.leave = context.WithCancel(context.Background())
}

func (r *Rewound) state() (e Engine, loses Lost, gone context.Context) {
	r.mu.RLock()
	e, fn, gone := r.engine, r.loses, r.gone
	r.mu.RUnlock()
	if fn != nil {
		loses = fn()
	}
	return e, loses, gone
}

// call calls the engine, unless the request is lost.
func (r *Rewound) call(fn func(Engine) error) error {
	e, loses, _ := r.state()
	if loses == LostRequest {
		return spool.ErrUnavailable
	}
	err := fn(e)
	if loses == LostAnswer {
		return spool.ErrUnavailable
	}
	return err
}

// waiting calls fn with a context that ends when the engine is replaced.
func (r *Rewound) waiting(ctx context.Context, fn func(context.Context, Engine) error) error {
	e, loses, gone := r.state()
	if loses == LostRequest {
		return spool.ErrUnavailable
	}
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(gone, cancel)()
	err := fn(until, e)
	if err != nil && ctx.Err() == nil && until.Err() != nil {
		return spool.ErrUnavailable
	}
	return err
}

// Close closes the engine.
func (r *Rewound) Close() error {
	e, _, _ := r.state()
	if c, ok := e.(io.Closer); ok {
		return c.Close()
	}
	return nil
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

func (r *Rewound) Append(ctx context.Context, a spool.Append) (res spool.Appended, err error) {
	err = r.call(func(e Engine) (err error) { res, err = e.Append(ctx, a); return err })
	return res, err
}

func (r *Rewound) Read(ctx context.Context, session string, after uint64, max int) (rs []chunk.Record, h spool.Head, err error) {
	err = r.call(func(e Engine) (err error) { rs, h, err = e.Read(ctx, session, after, max); return err })
	return rs, h, err
}

func (r *Rewound) ReadKept(ctx context.Context, session string, q spool.KeptQuery) (rs []chunk.Record, h spool.Head, err error) {
	err = r.call(func(e Engine) (err error) { rs, h, err = e.ReadKept(ctx, session, q); return err })
	return rs, h, err
}

func (r *Rewound) Head(ctx context.Context, session string) (h spool.Head, err error) {
	err = r.call(func(e Engine) (err error) { h, err = e.Head(ctx, session); return err })
	return h, err
}

func (r *Rewound) Claim(ctx context.Context, c spool.Claim) (l spool.Lease, err error) {
	err = r.call(func(e Engine) (err error) { l, err = e.Claim(ctx, c); return err })
	return l, err
}

func (r *Rewound) Renew(ctx context.Context, l spool.Lease) error {
	return r.call(func(e Engine) error { return e.Renew(ctx, l) })
}

func (r *Rewound) Release(ctx context.Context, l spool.Lease) error {
	return r.call(func(e Engine) error { return e.Release(ctx, l) })
}

// RaiseAbove implements [spool.Raiser].
func (r *Rewound) RaiseAbove(ctx context.Context, session string, known spool.Head) (h spool.Head, err error) {
	err = r.call(func(e Engine) (err error) {
		raiser, ok := e.(spool.Raiser)
		if !ok {
			return spool.ErrUnsupported.With(session, nil)
		}
		h, err = raiser.RaiseAbove(ctx, session, known)
		return err
	})
	return h, err
}

func (r *Rewound) Sessions(ctx context.Context, q spool.SessionQuery) (p spool.SessionPage, err error) {
	err = r.call(func(e Engine) (err error) { p, err = e.Sessions(ctx, q); return err })
	return p, err
}

func (r *Rewound) Session(ctx context.Context, session string) (i spool.SessionInfo, err error) {
	err = r.call(func(e Engine) (err error) { i, err = e.Session(ctx, session); return err })
	return i, err
}

func (r *Rewound) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	return r.call(func(e Engine) error { return e.Trim(ctx, session, traceFloor, floor) })
}

func (r *Rewound) Delete(ctx context.Context, session string) error {
	return r.call(func(e Engine) error { return e.Delete(ctx, session) })
}

func (r *Rewound) Expire(ctx context.Context, session string, idle time.Duration) error {
	return r.call(func(e Engine) error { return e.Expire(ctx, session, idle) })
}

func (r *Rewound) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) error {
	return r.call(func(e Engine) error { return e.SaveFold(ctx, session, name, f) })
}

func (r *Rewound) LoadFold(ctx context.Context, session, name string) (f spool.SavedFold, err error) {
	err = r.call(func(e Engine) (err error) { f, err = e.LoadFold(ctx, session, name); return err })
	return f, err
}

func (r *Rewound) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	return r.call(func(e Engine) error { return e.PutBlob(ctx, session, hash, data) })
}

func (r *Rewound) GetBlob(ctx context.Context, session, hash string) (data []byte, err error) {
	err = r.call(func(e Engine) (err error) { data, err = e.GetBlob(ctx, session, hash); return err })
	return data, err
}

func (r *Rewound) Import(ctx context.Context, i spool.Import) (h spool.Head, err error) {
	err = r.call(func(e Engine) (err error) { h, err = e.Import(ctx, i); return err })
	return h, err
}

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/storetest"
)

// link is the store as one node reaches it.
type link struct {
	w      *world
	to     storetest.Engine
	name   string
	chance chance

	mu   sync.Mutex
	down time.Time     // it is interrupted until then
	cut  chan struct{} // closed when it is interrupted
	dead chan struct{}
	die  func()
}

func newLink(w *world, name string) *link {
	l := &link{w: w, to: w.store, name: name, chance: chance{rnd: w.random(name + "'s link")}, cut: make(chan struct{}), dead: make(chan struct{})}
	l.die = sync.OnceFunc(func() { close(l.dead) })
	return l
}

var (
	errReset = spool.ErrUnavailable.Because("the connection to the store was reset")
	errDead  = errors.New("sim: the node is dead")
)

// interrupt cuts the link for some time.
func (l *link) interrupt(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = time.Now().Add(d)
	if d > 0 {
		close(l.cut)
		l.cut = make(chan struct{})
	}
}

func (l *link) state() (down bool, cut <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.down), l.cut
}

func (l *link) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// sleep waits for d. It fails if the node dies, the link is cut, or ctx ends.
func (l *link) sleep(ctx context.Context, d time.Duration, cut <-chan struct{}) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-cut:
		return errReset
	case <-l.dead:
		return errDead
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hangs is how long a half-open connection stays before it is found out.
const hangs = 15 * time.Second

// through makes a call of the store, with all that can happen on the way. fn may be
// called more than once, and after through has returned.
func through[T any](ctx context.Context, l *link, op string, fn func(context.Context) (T, error)) (v T, err error) {
	var none T
	down, cut := l.state()
	calm, w := l.w.isCalm(), &l.w.weather
	says := func(what string) { l.w.happened("%s: %s %s", l.name, op, what) }
	switch {
	case l.isDead():
		return none, errDead
	case ctx.Err() != nil:
		return none, ctx.Err()
	case down && l.chance.happens(0.5):
		if err := l.sleep(ctx, l.chance.upTo(100*time.Millisecond), nil); err != nil {
			return none, err
		}
		return none, fmt.Errorf("sim: %w: the store is away", spool.ErrNotStored)
	case down:
		if err := l.sleep(ctx, hangs, nil); err != nil {
			return none, err
		}
		return none, errReset
	case calm:
		return fn(ctx)
	}
	if err := l.sleep(ctx, l.chance.upTo(w.latency), cut); err != nil {
		return none, err
	}
	switch {
	case l.chance.happens(w.lost):
		says("is lost")
		return none, errReset
	case l.chance.happens(w.late):
		says("comes late")
		l.later(op, func(ctx context.Context) { _, _ = fn(ctx) })
		return none, errReset
	case l.chance.happens(w.hung):
		says("hangs")
		if l.chance.happens(0.5) {
			_, _ = fn(ctx)
		}
		if err := l.sleep(ctx, hangs, cut); err != nil {
			return none, err
		}
		return none, errReset
	}
	if l.isDead() {
		return none, errDead
	}
	v, err = fn(ctx)
	if l.chance.happens(w.doubled) {
		says("is doubled")
		l.later(op, func(ctx context.Context) { _, _ = fn(ctx) })
	}
	if l.chance.happens(w.unanswered) {
		says("is done and not answered")
		return none, errReset
	}
	if err := l.sleep(ctx, l.chance.upTo(w.latency), cut); err != nil {
		return none, err
	}
	if l.isDead() {
		return none, errDead
	}
	return v, err
}

// later makes a call that the network has held back. Its node may be dead by then.
func (l *link) later(op string, fn func(context.Context)) {
	d := l.chance.upTo(8 * time.Second)
	l.w.late.Go(func() {
		time.Sleep(d)
		l.w.happened("%s: a %s arrives %v late", l.name, op, d)
		fn(context.Background())
	})
}

// waits makes a call that waits, whose connection may be cut.
func waits[T any](ctx context.Context, l *link, fn func(context.Context) (T, error)) (v T, err error) {
	var none T
	down, cut := l.state()
	if down {
		if err := l.sleep(ctx, l.chance.upTo(time.Second), nil); err != nil {
			return none, err
		}
		return none, errReset
	}
	until, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !l.w.isCalm() && l.chance.happens(l.w.weather.waits) {
		t := time.AfterFunc(l.chance.upTo(10*time.Second), func() { cancel(errReset) })
		defer t.Stop()
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-cut:
			cancel(errReset)
		case <-l.dead:
			cancel(errDead)
		case <-done:
		}
	}()
	v, err = fn(until)
	if cause := context.Cause(until); err != nil && ctx.Err() == nil && cause != nil {
		return none, cause
	}
	return v, err
}

// Wait implements [spool.Store], as the methods below implement it and the roles.
func (l *link) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	p, err := waits(ctx, l, func(ctx context.Context) (p answer, err error) {
		p.head, p.records, err = l.to.Wait(ctx, session, seen)
		return p, err
	})
	return p.head, p.records, err
}

func (l *link) AwaitDue(ctx context.Context, c spool.Claim) error {
	_, err := waits(ctx, l, func(ctx context.Context) (struct{}, error) { return struct{}{}, l.to.AwaitDue(ctx, c) })
	return err
}

func (l *link) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	a.Records = slices.Clone(a.Records) // a late call must have what was sent
	return through(ctx, l, "append", func(ctx context.Context) (spool.Appended, error) { return l.to.Append(ctx, a) })
}

func (l *link) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	return through(ctx, l, "claim", func(ctx context.Context) (spool.Lease, error) { return l.to.Claim(ctx, c) })
}

// answer is what a read returns.
type answer struct {
	records []chunk.Record
	head    spool.Head
}

func (l *link) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	p, err := through(ctx, l, "read", func(ctx context.Context) (p answer, err error) {
		p.records, p.head, err = l.to.Read(ctx, session, after, max)
		return p, err
	})
	return p.records, p.head, err
}

func (l *link) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	p, err := through(ctx, l, "read of kept records", func(ctx context.Context) (p answer, err error) {
		p.records, p.head, err = l.to.ReadKept(ctx, session, q)
		return p, err
	})
	return p.records, p.head, err
}

func (l *link) Head(ctx context.Context, session string) (spool.Head, error) {
	return through(ctx, l, "head", func(ctx context.Context) (spool.Head, error) { return l.to.Head(ctx, session) })
}

// does is through for calls that return only an error.
func (l *link) does(ctx context.Context, op string, fn func(context.Context) error) error {
	_, err := through(ctx, l, op, func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) })
	return err
}

func (l *link) Renew(ctx context.Context, x spool.Lease) error {
	return l.does(ctx, "renewal", func(ctx context.Context) error { return l.to.Renew(ctx, x) })
}

func (l *link) Release(ctx context.Context, x spool.Lease) error {
	return l.does(ctx, "release", func(ctx context.Context) error { return l.to.Release(ctx, x) })
}

func (l *link) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	return through(ctx, l, "listing", func(ctx context.Context) (spool.SessionPage, error) { return l.to.Sessions(ctx, q) })
}

func (l *link) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	return through(ctx, l, "row", func(ctx context.Context) (spool.SessionInfo, error) { return l.to.Session(ctx, session) })
}

func (l *link) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	return l.does(ctx, "trim", func(ctx context.Context) error { return l.to.Trim(ctx, session, traceFloor, floor) })
}

func (l *link) Delete(ctx context.Context, session string) error {
	return l.does(ctx, "deletion", func(ctx context.Context) error { return l.to.Delete(ctx, session) })
}

func (l *link) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) error {
	return l.does(ctx, "saving of a fold", func(ctx context.Context) error { return l.to.SaveFold(ctx, session, name, f) })
}

func (l *link) LoadFold(ctx context.Context, session, name string) (spool.SavedFold, error) {
	return through(ctx, l, "loading of a fold", func(ctx context.Context) (spool.SavedFold, error) { return l.to.LoadFold(ctx, session, name) })
}

func (l *link) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	return l.does(ctx, "storing of a blob", func(ctx context.Context) error { return l.to.PutBlob(ctx, session, hash, data) })
}

func (l *link) GetBlob(ctx context.Context, session, hash string) ([]byte, error) {
	return through(ctx, l, "reading of a blob", func(ctx context.Context) ([]byte, error) { return l.to.GetBlob(ctx, session, hash) })
}

package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// hold keeps a lease alive until it is released. While the store cannot be reached, what
// runs under the lease goes on: it loses the lease only if another owner claims it. But
// nothing with an effect outside of the log begins after two thirds of a TTL without a
// renewal, since another owner may be about to do the same.
type hold struct {
	lease   spool.Lease
	cancel  context.CancelCauseFunc
	done    chan struct{}
	mu      sync.Mutex
	proven  time.Time     // when the last renewal began that succeeded
	renewed chan struct{} // closed by the next one
}

// hold begins to renew a lease. Its context waits for the store. It ends with the runner,
// and as soon as this process learns that another owner has the lease.
func (r *Runner) hold(lease spool.Lease) (*hold, context.Context) {
	ctx, cancel := context.WithCancelCause(spool.WaitForStore(r.ctx))
	h := &hold{lease: lease, cancel: cancel, done: make(chan struct{}), proven: time.Now(), renewed: make(chan struct{})}
	owned, disown := ctx, context.CancelFunc(func() {})
	if g, err := r.logs.Log(lease.Session); err == nil {
		owned, disown = g.Owned(ctx, lease)
	}
	r.logs.Go(func() {
		defer close(h.done)
		defer disown()
		r.renew(owned, h)
	})
	return h, owned
}

// renew renews the lease every third of its TTL. If that fails it tries again soon.
func (r *Runner) renew(ctx context.Context, h *hold) {
	third := r.o.LeaseTTL / 3
	timer := time.NewTimer(third)
	defer timer.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begun := time.Now()
		err := r.logs.Renew(ctx, h.lease)
		switch {
		case err == nil:
			h.renew(begun)
			timer.Reset(third)
			away = false
			continue
		case errors.Is(err, spool.ErrSuperseded):
			h.cancel(spool.ErrSuperseded.With(h.lease.Session, nil))
			return
		case !away && ctx.Err() == nil:
			away = true
			r.logs.Logger().Warn("a lease cannot be renewed", "session", h.lease.Session, "error", err)
		}
		timer.Reset(third / 8)
	}
}

func (h *hold) renew(begun time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.proven = begun
	close(h.renewed)
	h.renewed = make(chan struct{})
}

// ready waits until the lease was renewed in the last two thirds of its TTL. It fails with
// ctx's cause.
func (h *hold) ready(ctx context.Context) error {
	for {
		h.mu.Lock()
		fresh, renewed := time.Since(h.proven) < h.lease.TTL/3*2, h.renewed
		h.mu.Unlock()
		if fresh {
			return nil
		}
		select {
		case <-renewed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// release ends the renewals.
func (h *hold) release() {
	h.cancel(errLeft)
	<-h.done
}

package spool

import (
	"context"
	"errors"
	"sync"
	"time"
)

// waits is the key of the contexts of [WaitForStore].
type waits struct{}

// WaitForStore returns a context under which calls of a [Log], its readers and its
// projections wait while the store cannot be reached: they are repeated until the store
// answers, ctx ends or the logs are closed. Under any other context reads fail at once,
// with [ErrUnavailable], and appends after a while. It is for runs and for streams that
// are attached; a request that can be made again should fail.
func WaitForStore(ctx context.Context) context.Context {
	return context.WithValue(ctx, waits{}, true)
}

func waitsForStore(ctx context.Context) bool { return ctx.Value(waits{}) != nil }

// answered reports whether an error is the store's answer. After any other, the store was
// not reached, or it could not do what it was asked for.
func answered(err error) bool {
	return err == nil || settled(err) || Final(err) || errors.Is(err, ErrUnsupported)
}

// call makes a read of the store, which may take as long as an attempt to append. It
// fails with [ErrUnavailable] if the store gives no answer.
func (l *Logs) call(ctx context.Context, session string, read func(context.Context) error) error {
	try, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	err := read(try)
	if answered(err) || ctx.Err() != nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return ErrUnavailable.With(session, err)
}

// retry repeats what failed with [ErrUnavailable], if ctx is one of [WaitForStore]. The
// function must hold no lock that it has not taken itself: others need not wait.
func (l *Logs) retry(ctx context.Context, session string, fn func() error) error {
	for failures := 0; ; failures++ {
		err := fn()
		if err == nil || !errors.Is(err, ErrUnavailable) || !waitsForStore(ctx) {
			return err
		}
		if failures == 0 {
			l.Logger().Warn("repeating a read", "session", session, "error", err)
		}
		if err := l.Sleep(ctx, backoff(failures)); err != nil {
			return err
		}
		if l.ctx.Err() != nil {
			return ErrClosed
		}
	}
}

// outage is what this process's claims and renewals have seen of the store. After an
// outage, leases have expired whose owners could not renew them. They get one more TTL
// to do that. It is this process's monotonic clock that measures the time since the
// outage began, and the store's clock that says for how long a lease has expired.
type outage struct {
	mu       sync.Mutex
	answered time.Time     // when the last call began that the store has answered
	since    time.Time     // the store was reached then, and not for a while after; zero: never
	back     time.Time     // when it answered again; zero: not yet
	ttl      time.Duration // the longest of the claims
}

// saw takes the result of a call that began at a time.
func (o *outage) saw(begun time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !answered(err):
		if o.since.IsZero() || !o.back.IsZero() && time.Since(o.back) >= o.ttl {
			o.since = o.answered
		}
		o.back = time.Time{}
		return
	case begun.After(o.answered):
		o.answered = begun
	}
	if o.back.IsZero() && !o.since.IsZero() {
		o.back = time.Now()
	}
}

// spared is for how long a lease must have expired to be claimed: 0, or, until a TTL has
// passed since an outage, so long that it did not expire in that outage or after it.
func (o *outage) spared(ttl time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ttl = max(o.ttl, ttl)
	if o.since.IsZero() || !o.back.IsZero() && time.Since(o.back) >= ttl {
		return 0
	}
	return time.Since(o.since)
}

// patienceOf is for how long a claim, a renewal or a wait goes without an answer before it
// is asked again: so a store that hangs is noticed before any lease has expired of which
// it still took the renewal.
func patienceOf(ttl time.Duration) time.Duration { return min(attempt, ttl/3) }

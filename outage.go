package spool

import (
	"context"
	"errors"
	"time"

	"github.com/spool-run/spool/internal/wait"
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
		if err := l.Sleep(ctx, wait.Backoff(failures)); err != nil {
			return err
		}
		if l.ctx.Err() != nil {
			return ErrClosed
		}
	}
}

// ask makes a call as call does, and repeats it as retry says.
func (l *Logs) ask(ctx context.Context, session string, read func(context.Context) error) error {
	return l.retry(ctx, session, func() error { return l.call(ctx, session, read) })
}

// patienceOf is for how long a claim, a renewal or a wait goes without an answer before it
// is asked again: so a store that hangs is noticed before any lease has expired of which
// it still took the renewal.
func patienceOf(ttl time.Duration) time.Duration { return min(attempt, ttl/3) }

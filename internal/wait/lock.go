package wait

import "context"

// Lock is held by a number of callers at most, and its acquisition ends with a context.
type Lock chan struct{}

// NewLock returns a lock that n may hold at a time; with 1 it is a mutex.
func NewLock(n int) Lock { return make(Lock, n) }

// Acquire takes the lock. It fails with ctx's error, or with errClosed if closed is closed.
func (l Lock) Acquire(ctx context.Context, closed <-chan struct{}, errClosed error) error {
	select {
	case l <- struct{}{}: // the common case, and cheaper than the next select
		return nil
	default:
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return errClosed
	}
}

// Release gives the lock back.
func (l Lock) Release() { <-l }

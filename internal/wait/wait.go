// Package wait holds the waits that several packages need: for a time, or for
// whatever comes first.
package wait

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends; then it returns ctx's error.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// For waits until woken is closed, until d has passed (a negative d never
// passes), or until ctx ends or closed is closed. If ctx ends it returns ctx's error,
// and errClosed if closed is closed.
func For(ctx context.Context, d time.Duration, woken, closed <-chan struct{}, errClosed error) error {
	var alarm <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-woken:
		return nil
	case <-alarm:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return errClosed
	}
}

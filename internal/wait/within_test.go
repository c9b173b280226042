package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A context of Within ends as one of context.WithTimeout does, whether or not something
// waits for it before its end.
func TestWithin(t *testing.T) {
	for name, end := range map[string]func(parent context.CancelFunc, end func()){
		"not at all": func(context.CancelFunc, func()) { time.Sleep(time.Second - 1) },
		"deadline":   func(context.CancelFunc, func()) { time.Sleep(time.Second) },
		"parent":     func(parent context.CancelFunc, _ func()) { parent() },
		"end":        func(_ context.CancelFunc, end func()) { end() },
	} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				run := func(with func(parent context.Context) (context.Context, func())) (deadline time.Time, done bool, err error) {
					parent, cancel := context.WithCancel(t.Context())
					defer cancel()
					ctx, stop := with(parent)
					defer stop()
					if waits {
						_ = ctx.Done()
					}
					end(cancel, stop)
					synctest.Wait()
					select {
					case <-ctx.Done():
						done = true
					default:
					}
					deadline, _ = ctx.Deadline()
					return deadline.Add(-time.Duration(time.Now().UnixNano())), done, ctx.Err()
				}
				wantDeadline, wantDone, wantErr := run(func(p context.Context) (context.Context, func()) { return context.WithTimeout(p, time.Second) })
				deadline, done, err := run(func(p context.Context) (context.Context, func()) { c := Within(p, time.Second); return c, c.End })
				if !errors.Is(err, wantErr) || !deadline.Equal(wantDeadline) || done != wantDone {
					t.Errorf("%s, waits %v: %v, %v, %v; want %v, %v, %v", name, waits, err, deadline, done, wantErr, wantDeadline, wantDone)
				}
			})
		}
	}
}

// The parent's deadline counts if it is earlier, and its values are there.
func TestWithinAnother(t *testing.T) {
	type key struct{}
	parent, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, 7), time.Minute)
	defer cancel()
	c := Within(parent, time.Hour)
	defer c.End()
	want, _ := parent.Deadline()
	if got, ok := c.Deadline(); !ok || !got.Equal(want) || c.Value(key{}) != 7 {
		t.Errorf("%v, %v, %v", got, ok, c.Value(key{}))
	}
	below, stop := context.WithCancel(c)
	defer stop()
	cancel()
	<-below.Done()
	if !errors.Is(below.Err(), context.Canceled) {
		t.Error(below.Err())
	}
}

package wait

import (
	"context"
	"sync"
	"time"
)

// Context is a context with a deadline, see [Within].
type Context struct {
	context.Context
	deadline time.Time

	mu     sync.Mutex
	timed  context.Context // has the timer; nil until something waits
	cancel context.CancelFunc
	ended  bool
}

// Within returns a context that ends with parent, after d, or with [Context.End], which its
// caller must call. It is context.WithTimeout for calls that seldom wait: the timer is made
// when Done is called first.
func Within(parent context.Context, d time.Duration) *Context {
	deadline := time.Now().Add(d)
	if earlier, ok := parent.Deadline(); ok && earlier.Before(deadline) {
		deadline = earlier
	}
	return &Context{Context: parent, deadline: deadline}
}

// End ends the context. Its error is then context.Canceled, unless it has ended before.
func (c *Context) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.Context, c.deadline)
		if c.ended {
			c.cancel()
		}
	}
	return c.timed.Done()
}

// Err implements [context.Context].
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.timed != nil:
		return c.timed.Err()
	case c.Context.Err() != nil:
		return c.Context.Err()
	case !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	case c.ended:
		return context.Canceled
	}
	return nil
}

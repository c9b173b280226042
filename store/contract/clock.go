package contract

import (
	"sync"
	"time"
)

// Clock makes a store's clock of a clock that may step: it never goes back. Where the
// other clock has stepped back, or is behind what the store has heard of, this one goes on
// from there, so that no lease and no due time moves into the future.
type Clock struct {
	now func() time.Time

	mu    sync.Mutex
	ahead int64 // of now, in milliseconds
	last  int64
}

// NewClock returns a clock over now; nil is [time.Now].
func NewClock(now func() time.Time) *Clock {
	if now == nil {
		now = time.Now
	}
	return &Clock{now: now}
}

// Now returns the time in Unix milliseconds.
func (c *Clock) Now() int64 { return c.After(0) }

// After is Now, of a store that has given out the time heard, in another process perhaps.
func (c *Clock) After(heard int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.now().UnixMilli()
	c.last = max(wall+c.ahead, c.last, heard)
	c.ahead = c.last - wall
	return c.last
}

package pgstore

import "sync"

// ticker makes the store's clock of the server's, which may step back: it never does.
type ticker struct {
	mu    sync.Mutex
	ahead int64 // of the server's clock, in milliseconds
	last  int64
}

// floor is a time that no later answer of the server may be before. It is asked for before the
// question is sent: answers may arrive in another order.
func (c *ticker) floor() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// leads returns how far the store's clock is ahead of the server's, beside floor's answer.
func (c *ticker) leads() (ahead, floor int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, c.last
}

// at returns the time if the server's clock is at wall, and the store has given out the time
// floor before, in another process perhaps.
func (c *ticker) at(wall, floor int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = max(c.ahead, floor-wall)
	now := wall + c.ahead
	c.last = max(c.last, now)
	return now
}

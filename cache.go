package spool

import (
	"runtime"
	"sync/atomic"
)

// leastTail is what a session's tail, and each of its projections, may hold beyond
// [Options.CacheBytes].
const leastTail = 64 << 10

// cached counts the bytes that a tail or a projection holds, among those of all.
type cached struct {
	all *atomic.Int64
	own atomic.Int64
}

// newCached returns the count of an owner's bytes. They count until the owner was
// garbage-collected, since they are in memory until then.
func newCached[T any](l *Logs, owner *T) *cached {
	c := &cached{all: &l.held}
	runtime.AddCleanup(owner, func(c *cached) { c.set(0) }, c)
	return c
}

// set says how many bytes the owner holds now.
func (c *cached) set(n int) { c.all.Add(int64(n) - c.own.Swap(int64(n))) }

// room returns how many bytes a tail or a projection may hold that may hold max at most.
func (l *Logs) room(max int) int {
	if l.held.Load() > l.o.CacheBytes {
		return min(max, leastTail)
	}
	return max
}

// Package budget counts the bytes that the caches of a process hold.
package budget

import (
	"runtime"
	"sync/atomic"
)

// Budget is the bytes that all shares of it may hold together.
type Budget struct {
	Limit int64
	Least int // what a share may hold beyond the limit
	held  atomic.Int64
}

// Held returns how many bytes are held.
func (b *Budget) Held() int64 { return b.held.Load() }

// Room returns how many bytes a share may hold that may hold max at most.
func (b *Budget) Room(max int) int {
	if b.held.Load() > b.Limit {
		return min(max, b.Least)
	}
	return max
}

// Share counts the bytes that one owner holds.
type Share struct {
	of  *Budget
	own atomic.Int64
}

// NewShare returns the count of an owner's bytes. They count until the owner was
// garbage-collected, since they are in memory until then.
func NewShare[T any](b *Budget, owner *T) *Share {
	s := &Share{of: b}
	runtime.AddCleanup(owner, func(s *Share) { s.Set(0) }, s)
	return s
}

// Set says how many bytes the owner holds now.
func (s *Share) Set(n int) { s.of.held.Add(int64(n) - s.own.Swap(int64(n))) }

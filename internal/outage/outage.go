// Package outage notices when a store was away, and says for how long a lease must have
// expired to be claimed.
package outage

import (
	"sync"
	"time"
)

// Watch is what a process's claims and renewals have seen of a store. After an outage, leases have expired whose owners could not renew them. They get one more TTL
// to do that. It is this process's monotonic clock that measures the time since the
// outage began, and the store's clock that says for how long a lease has expired.
type Watch struct {
	mu       sync.Mutex
	answered time.Time     // when the last call began that the store has answered
	since    time.Time     // the store was reached then, and not for a while after; zero: never
	back     time.Time     // when it answered again; zero: not yet
	ttl      time.Duration // the longest of the claims
}

// Saw takes whether the store has answered a call that began at a time.
func (w *Watch) Saw(begun time.Time, answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !answered:
		if w.since.IsZero() || !w.back.IsZero() && time.Since(w.back) >= w.ttl {
			w.since = w.answered
		}
		w.back = time.Time{}
		return
	case begun.After(w.answered):
		w.answered = begun
	}
	if w.back.IsZero() && !w.since.IsZero() {
		w.back = time.Now()
	}
}

// Spared is for how long a lease must have expired to be claimed: 0, or, until a TTL has
// passed since an outage, so long that it did not expire in that outage or after it.
func (w *Watch) Spared(ttl time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ttl = max(w.ttl, ttl)
	if w.since.IsZero() || !w.back.IsZero() && time.Since(w.back) >= ttl {
		return 0
	}
	return time.Since(w.since)
}

// New returns a watch of a store of which nothing is known before now.
func New() *Watch { return &Watch{answered: time.Now()} }

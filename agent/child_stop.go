package agent

import (
	"context"
	"sync"

	"github.com/spool-run/spool/fold"
)

// stops are the children at work, of all generations, by session.
type stops struct {
	mu     sync.Mutex
	cancel map[string]context.CancelCauseFunc
	wait   context.CancelFunc // ends the run's own wait for another model call
}

// enter notes a child at work until leave is called. Stops from before are seen by
// the child itself, before its step.
func (s *stops) enter(session string, cancel context.CancelCauseFunc) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel == nil {
		s.cancel = map[string]context.CancelCauseFunc{}
	}
	s.cancel[session] = cancel
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cancel, session)
	}
}

// top returns the run of the session.
func (r *Run) top() *Run {
	for r.parent != nil {
		r = r.parent
	}
	return r
}

// Heed cancels the children that a session's fold says are to stop, in the middle of
// what they do, and ends the run's wait for another model call if it is to pause or
// to make room. The reader of the session's commands calls it, from any goroutine.
func (r *Run) Heed(f *fold.Fold) {
	if steered, interrupted := f.Boundary(); steered || interrupted {
		r.stops.mu.Lock()
		if r.stops.wait != nil {
			r.stops.wait()
		}
		r.stops.mu.Unlock()
	}
	r.stopChildren(f)
}

func (r *Run) stopChildren(f *fold.Fold) {
	for _, c := range f.Children {
		if c.Stop != nil {
			r.stops.mu.Lock()
			if cancel := r.stops.cancel[c.Session]; cancel != nil {
				cancel(ErrStopped)
			}
			r.stops.mu.Unlock()
		}
		r.stopChildren(c)
	}
}

package watch

import "sync"

// Signal wakes those that wait for something. The zero value is ready for use.
type Signal struct {
	mu sync.Mutex
	c  chan struct{}
}

// Next returns the channel that the next call of Send closes. Get it before you look whether
// there is something to do.
func (s *Signal) Next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

// Send wakes all that wait.
func (s *Signal) Send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}

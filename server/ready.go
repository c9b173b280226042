package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

const (
	readyEvery = 5 * time.Second // how long the result of a try counts
	readyLimit = 5 * time.Second // how long a try may take
)

// readiness remembers whether the store could be used when it was last tried.
type readiness struct {
	mu    sync.Mutex // held during a try: those who ask meanwhile get its result
	tried time.Time
	err   error
}

// readyz tells load balancers whether to send requests here: the store takes writes and
// the server does not drain.
func (s *Server) readyz(w http.ResponseWriter, r *request) error {
	if s.drain.Err() != nil {
		return errDraining
	}
	if err := s.tryStore(r.Context()); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	return nil
}

func (s *Server) tryStore(ctx context.Context) error {
	s.ready.mu.Lock()
	defer s.ready.mu.Unlock()
	now := s.logs.Now()
	if !s.ready.tried.IsZero() && now.Sub(s.ready.tried) < readyEvery {
		return s.ready.err
	}
	// The result is for all who ask, so it does not end with the first one's request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyLimit)
	defer cancel()
	var err error
	if p, ok := s.logs.Store().(spool.Prober); ok {
		err = p.Probe(ctx)
	} else if _, err = s.logs.Store().Head(ctx, "readyz"); errors.Is(err, spool.ErrNotFound) {
		err = nil // any response will do; this is the usual one
	}
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		err = spool.ErrUnavailable.Because("the store did not answer in time").With("", err)
	case statusOf(err) != http.StatusServiceUnavailable || chunk.CodeOf(err) == "":
		err = spool.ErrUnavailable.With("", err)
	}
	s.ready.tried, s.ready.err = s.logs.Now(), err
	return err
}

package server

import (
	"context"
	"net/http"

	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/wire"
)

// command handles a request that appends a command: parse reads the body, act appends.
// The response is the session's state after it.
func command[O any](s *Server, w http.ResponseWriter, r *request, name string, limit bodyLimit, parse func(data []byte) (O, error),
	act func(ctx context.Context, d *chat.Deps, session string, o O) (*chat.Settled, error)) error {
	data, err := s.body(w, r, limit)
	if err != nil {
		return err
	}
	o, err := parse(data)
	if err != nil {
		return err
	}
	settled, err := act(r.Context(), s.chat, r.session, o)
	if err != nil {
		return err
	}
	s.metrics.command(name)
	writeJSON(w, http.StatusOK, settled)
	return nil
}

// stop appends a stop and responds when it has taken effect.
func (s *Server) stop(w http.ResponseWriter, r *request) error {
	return command(s, w, r, "stop", otherBody, frontend.ParseStop, chat.Stop)
}

// interrupt appends an interrupt and responds when it has taken effect.
func (s *Server) interrupt(w http.ResponseWriter, r *request) error {
	return command(s, w, r, "interrupt", otherBody, frontend.ParseStop, chat.Interrupt)
}

// decide takes a human's decision on a call.
func (s *Server) decide(w http.ResponseWriter, r *request) error {
	parse := func(data []byte) (wire.Answer, error) { return frontend.ParseDecision(r.vars["id"], data) }
	return command(s, w, r, "answer", otherBody, parse, chat.Submit)
}

// submit takes the result of a call that the client executed.
func (s *Server) submit(w http.ResponseWriter, r *request) error {
	parse := func(data []byte) (wire.Answer, error) { return frontend.ParseResult(r.vars["call"], data) }
	return command(s, w, r, "answer", otherBody, parse, chat.Submit)
}

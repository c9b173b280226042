package server

import (
	"net/http"

	"github.com/spool-run/spool/server/chat"
)

// decide takes a human's decision on a call.
func (s *Server) decide(w http.ResponseWriter, r *request) error {
	return s.give(w, r, func(data []byte) (chat.Answer, error) { return chat.ParseDecision(r.vars["id"], data) })
}

// submit takes the outcome of a call that the client executed.
func (s *Server) submit(w http.ResponseWriter, r *request) error {
	return s.give(w, r, func(data []byte) (chat.Answer, error) { return chat.ParseResult(r.vars["call"], data) })
}

func (s *Server) give(w http.ResponseWriter, r *request, parse func([]byte) (chat.Answer, error)) error {
	data, err := body(w, r.Request, maxOtherBody)
	if err != nil {
		return err
	}
	a, err := parse(data)
	if err != nil {
		return err
	}
	settled, err := chat.Submit(r.Context(), s.chat, r.session, a)
	if err != nil {
		return err
	}
	s.metrics.command("answer")
	writeJSON(w, http.StatusOK, settled)
	return nil
}

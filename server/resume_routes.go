package server

import (
	"net/http"

	"github.com/spool-run/spool/server/chat"
)

// interrupt appends an interrupt and answers when it has taken effect.
func (s *Server) interrupt(w http.ResponseWriter, r *request) error {
	data, err := body(w, r.Request, maxOtherBody)
	if err != nil {
		return err
	}
	o, err := chat.ParseStop(data)
	if err != nil {
		return err
	}
	settled, err := chat.Interrupt(r.Context(), s.chat, r.session, o)
	if err != nil {
		return err
	}
	s.metrics.command("interrupt")
	writeJSON(w, http.StatusOK, settled)
	return nil
}

// goOn lets the session itself go on and answers when its run has begun.
func (s *Server) goOn(w http.ResponseWriter, r *request, data []byte) error {
	o, err := chat.ParseResume(data)
	if err != nil {
		return err
	}
	settled, err := chat.Resume(r.Context(), s.chat, r.session, o)
	if err != nil {
		return err
	}
	s.metrics.command("resume")
	writeJSON(w, http.StatusOK, settled)
	return nil
}

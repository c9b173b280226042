package server

import (
	"net/http"

	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
)

// resume continues a session in the mode that the body names. A branch needs to read the
// session, everything else to write to it.
func (s *Server) resume(w http.ResponseWriter, r *request) error {
	if err := s.identify(r, ActionSend); err != nil {
		return err
	}
	data, err := s.body(w, r, chatBody)
	if err != nil {
		return err
	}
	mode, err := frontend.ResumeMode(data)
	if err != nil {
		return err
	}
	action := ActionSend
	if mode == chat.ModeBranch {
		action = ActionRead
	}
	if err := s.admit(r, action); err != nil {
		return err
	}
	if mode == chat.ModeBranch {
		return s.branch(w, r, data)
	}
	o, err := frontend.ParseResume(data)
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

// branch makes a new session from this one at a checkpoint, which becomes the caller's.
// The caller must be allowed to send to the new session, too.
func (s *Server) branch(w http.ResponseWriter, r *request, data []byte) error {
	o, err := frontend.ParseBranch(data)
	if err != nil {
		return err
	}
	o.Session = chat.BranchSession(s.chat, r.session, o)
	if err := s.authorize(r, o.Session, ActionSend); err != nil {
		return err
	}
	o.Principal = r.principal
	made, err := chat.Branch(r.Context(), s.chat, r.session, o)
	if err != nil {
		return err
	}
	s.metrics.command("branch")
	w.Header().Set(frontend.HeaderSession, made.Session)
	writeJSON(w, http.StatusOK, made)
	return nil
}

package server

import (
	"net/http"

	"github.com/spool-run/spool/server/chat"
)

// checkpoints lists a session's checkpoints, paged.
func (s *Server) checkpoints(w http.ResponseWriter, r *request) error {
	var o chat.CheckpointsOptions
	var err error
	q := r.URL.Query()
	if o.Offset, err = number(q, "offset"); err != nil {
		return err
	}
	if o.Limit, err = number(q, "limit"); err != nil {
		return err
	}
	if o.Newest, err = chat.ParseOrder(q.Get("order")); err != nil {
		return err
	}
	page, err := chat.Checkpoints(r.Context(), s.chat, r.session, o)
	if err != nil {
		return err
	}
	w.Header().Set(chat.HeaderSession, r.session)
	writeJSON(w, http.StatusOK, page)
	return nil
}

// resume lets a session go on, in the mode that the body names.
func (s *Server) resume(w http.ResponseWriter, r *request) error {
	data, err := body(w, r.Request, maxChatBody)
	if err != nil {
		return err
	}
	mode, err := chat.ResumeMode(data)
	if err != nil {
		return err
	}
	if mode == chat.ModeBranch {
		return s.branch(w, r, data)
	}
	return s.goOn(w, r, data)
}

// branch makes a new session of what this one was at a checkpoint. Whoever asks
// must be allowed to send there, too.
func (s *Server) branch(w http.ResponseWriter, r *request, data []byte) error {
	o, err := chat.ParseBranch(data)
	if err != nil {
		return err
	}
	o.Session = chat.BranchSession(s.chat, r.session, o)
	if o.Principal, err = s.authorize(r.Request, o.Session, ActionSend); err != nil {
		return err
	}
	made, err := chat.Branch(r.Context(), s.chat, r.session, o)
	if err != nil {
		return err
	}
	s.metrics.command("branch")
	w.Header().Set(chat.HeaderSession, made.Session)
	writeJSON(w, http.StatusOK, made)
	return nil
}

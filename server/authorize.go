package server

import (
	"net/http"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
)

// admit authorises a request for its session. From then on the request sees the session
// as it was found before it was authorised, or not at all: what is created, deleted or
// taken by others meanwhile cannot make it another principal's.
func (s *Server) admit(r *request, action Action) error {
	if err := checkAccess(r.session, action); err != nil {
		return err
	}
	var err error
	if r.principal, err = s.principal(r.Request); err != nil {
		return s.refuse(r.session, action, err)
	}
	if err := s.arrive(r, action); err != nil {
		return err
	}
	return s.ask(r.Request, r.principal, r.session, action)
}

// arrive finds out whose session it is. The handler needs its head anyway, but for those
// that need neither: an append under an epoch is fenced by that, and without principals
// nobody is refused.
func (s *Server) arrive(r *request, action Action) error {
	claims := r.URL.Query().Has("claim")
	switch {
	case action == ActionList || action == ActionOps || s.o.Principal == nil && !claims:
		return nil
	case action == ActionAppend && !claims:
		if g, err := s.logs.Log(chunk.RootID(r.session)); err == nil && g.Known() != (spool.Head{}) {
			r.owner = g.Known().Principal
			return nil
		}
	}
	ctx, owner, err := s.chat.Arrive(r.Context(), r.session, r.principal)
	if err != nil {
		return err
	}
	r.Request, r.owner = r.WithContext(ctx), owner
	return nil
}

// authorize checks the id of a session beside the request's own, and whether the request
// may have this access to it.
func (s *Server) authorize(r *http.Request, session string, action Action) (principal string, err error) {
	if err := checkAccess(session, action); err != nil {
		return "", err
	}
	if principal, err = s.principal(r); err != nil {
		return "", s.refuse(session, action, err)
	}
	return principal, s.ask(r, principal, session, action)
}

func (s *Server) principal(r *http.Request) (string, error) {
	if s.o.Principal == nil {
		return "", nil
	}
	return s.o.Principal(r)
}

// checkAccess checks a session's id. A child agent's session can only be read, answered
// and stopped.
func checkAccess(session string, action Action) error {
	switch action {
	case ActionList, ActionOps:
		return nil
	case ActionRead, ActionDecide, ActionStop:
		return chat.CheckReadable(session)
	}
	return chat.CheckSession(session)
}

// ask asks the program whether the request may have this access. A child agent's session
// has the rights of its root's session.
func (s *Server) ask(r *http.Request, principal, session string, action Action) error {
	if s.o.Authorize == nil {
		return nil
	}
	if err := s.o.Authorize(r.Context(), principal, chunk.RootID(session), action); err != nil {
		return s.refuse(session, action, err)
	}
	return nil
}

// refuse hides why a request is refused.
func (s *Server) refuse(session string, action Action, err error) error {
	s.log.Debug("refused", "session", session, "action", action, "err", err)
	return spool.ErrNotFound
}

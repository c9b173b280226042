package server

import (
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
)

// Action is the kind of access that a request needs to a session.
type Action string

const (
	ActionRead   Action = "read"   // streams, snapshots, messages, blobs; the source of a branch
	ActionSend   Action = "send"   // messages, answers, resumes; may create the session
	ActionStop   Action = "stop"   //
	ActionDecide Action = "decide" // approvals, and results of client-executed calls, on any route
	ActionDelete Action = "delete" //
	ActionAppend Action = "append" // as an external producer; may create the session
	ActionList   Action = "list"   // the sessions of a principal, or all for an anonymous caller; the session is ""
	ActionOps    Action = "ops"    // metrics; the session is ""
)

// Access is what a request asks for.
type Access struct {
	Principal string // who asks; "" is an anonymous caller
	Action    Action
	Session   string // the session; for a child agent's, that of its root agent
	// Owner is the principal who created the session; "" if the creator was anonymous. Of
	// a session that does not exist it is Principal. It is known only if
	// Options.Principal is set.
	Owner string
}

// ErrUnauthenticated is returned by Options.Principal and Options.Authorize for a caller
// who must first say who it is. The response is 401.
var ErrUnauthenticated = &chunk.Error{Code: "unauthenticated", Message: "the request does not say who makes it", Hint: "sign in, or send a valid token"}

// The refusals of what no session has.
var (
	errMetricsRefused = &chunk.Error{Code: "not_allowed", Message: "this caller may not read the metrics", Hint: `allow it the action "ops" in Options.Authorize`}
	errListRefused    = &chunk.Error{Code: "not_allowed", Message: "this caller may not list sessions", Hint: `allow it the action "list" in Options.Authorize`}
)

var errNotOwner = errors.New("the session belongs to another principal")

// OwnerOnly allows each principal to do everything with its own sessions, to create
// sessions and to list its own. Metrics are nobody's. Anonymous callers get
// [ErrUnauthenticated]. It decides if Options has a Principal and no Authorize; an
// Authorize can call it for what it does not decide itself.
func OwnerOnly(a Access) error {
	switch {
	case a.Principal == "":
		return ErrUnauthenticated
	case a.Action == ActionOps:
		return errors.New("metrics need Options.Authorize")
	case a.Action != ActionList && a.Owner != a.Principal:
		return errNotOwner
	}
	return nil
}

// admit authorises a request for its session. From then on the request sees the session
// as it was found before it was authorised, or not at all: what is created, deleted or
// taken by others meanwhile cannot make it another principal's.
func (s *Server) admit(r *request, action Action) error {
	if err := checkAccess(r.session, action); err != nil {
		return err
	}
	if err := s.identify(r, action); err != nil {
		return err
	}
	if err := s.arrive(r, action); err != nil {
		return err
	}
	return s.ask(r, action)
}

// identify finds out who makes a request for this access.
func (s *Server) identify(r *request, action Action) (err error) {
	if s.o.Principal == nil || r.identified {
		return nil
	}
	if r.principal, err = s.o.Principal(r.Request); err != nil {
		return s.refuse(r, action, err)
	}
	if r.principal == "" && s.o.Authorize == nil {
		return s.refuse(r, action, ErrUnauthenticated)
	}
	r.identified = true
	return nil
}

// arrive finds out whose session it is. The handler needs its head anyway, but for those
// that need neither: an append under an epoch is fenced by that, and without principals
// nobody is refused.
func (s *Server) arrive(r *request, action Action) error {
	claims := r.asks("claim")
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

// authorize is [Server.admit] for a session beside the request's own, or for the
// request's own as it is now.
func (s *Server) authorize(r *request, session string, action Action) error {
	return s.admit(&request{Request: r.Request, session: session, principal: r.principal, identified: r.identified}, action)
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

// ask asks whether an admitted request may have this access, too. A child agent's
// session has the rights of its root's session.
func (s *Server) ask(r *request, action Action) error {
	a := Access{Principal: r.principal, Action: action, Session: chunk.RootID(r.session), Owner: r.owner}
	var err error
	switch {
	case s.o.Authorize != nil:
		err = s.o.Authorize(r.Context(), a)
	case s.o.Principal != nil:
		err = OwnerOnly(a)
	}
	if err != nil {
		return s.refuse(r, action, err)
	}
	return nil
}

// refuse hides why a request is refused, unless the caller has to say who it is. Metrics
// and the listing have no session whose existence is to be hidden.
func (s *Server) refuse(r *request, action Action, err error) error {
	s.log.Debug("refused", "session", r.session, "action", action, "err", err)
	if errors.Is(err, ErrUnauthenticated) {
		return ErrUnauthenticated
	}
	switch action {
	case ActionOps:
		return errMetricsRefused
	case ActionList:
		return errListRefused
	}
	return spool.ErrNotFound.With(r.session, nil) // the text is that of a session that does not exist
}

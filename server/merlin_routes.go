package server

import (
	"net/http"

	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire/merlin"
)

// merlinPost takes a chat POST and streams the run that answers it on a version
// of the Merlin wire.
func (s *Server) merlinPost(v merlin.Version) handler {
	return func(w http.ResponseWriter, r *request) error { return s.postAs(w, r, v) }
}

// merlinAttach streams the session's latest turn, or what follows a cursor, on a
// version of the Merlin wire.
func (s *Server) merlinAttach(v merlin.Version) handler {
	return func(w http.ResponseWriter, r *request) error {
		pos, err := chat.RequestPosition(r.Request)
		if err != nil {
			return err
		}
		agents, err := subAgents(r.Request)
		if err != nil {
			return err
		}
		res, err := chat.HandleChatStream(r.Context(), s.chat, chat.Params{
			Method: http.MethodGet, Session: r.session, Position: pos, SubAgents: agents, Merlin: v,
		})
		if err != nil {
			return err
		}
		return s.answer(w, r.Request, res)
	}
}

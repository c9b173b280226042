package server

import (
	"net/http"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire/native"
)

// native streams a session's records as they are.
func (s *Server) native(w http.ResponseWriter, r *request) error {
	pos, err := chat.RequestPosition(r.Request)
	if err != nil {
		return err
	}
	if pos.Cursor.InPlan {
		return spool.ErrCursorMalformed.Because("a place inside an attach plan is no place in the log")
	}
	o := chat.NativeOptions{Cursor: pos.Cursor}
	q := r.URL.Query()
	switch q.Get("follow") {
	case "":
	case "session":
		o.Follow = true
	default:
		return chunk.ErrInvalid.Because("follow is session, or is left out")
	}
	switch q.Get("framing") {
	case "", "bare":
	case "event":
		o.Framing = native.Event
	default:
		return chunk.ErrInvalid.Because("framing is bare or event")
	}
	switch q.Get("agent") {
	case "", "tree":
	case "self":
		o.Self = true
	default:
		return chunk.ErrInvalid.Because("agent is self or tree")
	}
	res, err := chat.Native(r.Context(), s.logs, r.session, o)
	if err != nil {
		return err
	}
	return s.answer(w, r.Request, res)
}

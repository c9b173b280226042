package server

import (
	"net/http"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
)

const (
	maxChatBody  = 16 << 20
	maxOtherBody = 1 << 20
)

// post takes a chat POST and streams the run that answers it.
func (s *Server) post(w http.ResponseWriter, r *request) error { return s.postAs(w, r, 0) }

// postAs is post on a version of the Merlin wire; 0 is the AI SDK's.
func (s *Server) postAs(w http.ResponseWriter, r *request, v merlin.Version) error {
	data, err := body(w, r.Request, maxChatBody)
	if err != nil {
		return err
	}
	b, err := chat.ParseBody(data)
	if err != nil {
		return err
	}
	if r.session == "" {
		if r.session = b.Session; r.session == "" {
			r.session = s.logs.NewID()
		}
		if r.principal, err = s.authorize(r.Request, r.session, ActionSend); err != nil {
			return err
		}
	}
	agents, err := subAgents(r.Request)
	if err != nil {
		return err
	}
	res, err := chat.HandleChatStream(r.Context(), s.chat, chat.Params{
		Method:    http.MethodPost,
		SubAgents: agents,
		Session:   r.session,
		Principal: r.principal,
		Body:      b,
		UI:        profile(r.Request),
		Merlin:    v,
	})
	if err != nil {
		return err
	}
	s.metrics.command("chat")
	return s.answer(w, r.Request, res)
}

// attach streams what the session's log holds for this reader.
func (s *Server) attach(w http.ResponseWriter, r *request) error {
	pos, err := chat.RequestPosition(r.Request)
	if err != nil {
		return err
	}
	agents, err := subAgents(r.Request)
	if err != nil {
		return err
	}
	p := chat.Params{
		Method:    http.MethodGet,
		SubAgents: agents,
		Session:   r.session,
		Position:  pos,
		UI:        profile(r.Request),
		Run:       r.vars["run"],
	}
	if q := r.URL.Query(); q.Has("startIndex") {
		n, err := strconv.Atoi(q.Get("startIndex"))
		if err != nil {
			return spool.ErrCursorMalformed.Because("startIndex is a whole number")
		}
		p.StartIndex = &n
	}
	res, err := chat.HandleChatStream(r.Context(), s.chat, p)
	if err != nil {
		return err
	}
	return s.answer(w, r.Request, res)
}

// answer writes a chat response: its stream, or 204.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, res *chat.Response) error {
	h := w.Header()
	h.Set(chat.HeaderSession, res.Session)
	h.Add("Vary", "Last-Event-ID, X-Resume-From-Sequence, X-Resume-At, X-Spool-UI")
	if res.Incarnation > 0 {
		h.Set(chat.HeaderIncarnation, strconv.FormatUint(res.Incarnation, 10))
	}
	if res.RunID != "" {
		h.Set(chat.HeaderWorkflowRun, res.RunID)
	}
	if res.Tail != nil {
		h.Set(chat.HeaderWorkflowTail, strconv.Itoa(*res.Tail))
	}
	if res.Stream == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if res.View != chat.ViewNative && res.Merlin == 0 {
		h.Set("X-Vercel-AI-UI-Message-Stream", "v1")
	}
	return s.stream(w, r, res.Stream, res.View)
}

// subAgents is how the request wants to be shown sub-agents; "" if it does not say.
func subAgents(r *http.Request) (aisdk.SubAgents, error) {
	if v := r.URL.Query().Get("agents"); v != "" {
		return aisdk.ParseSubAgents(v)
	}
	return "", nil
}

// profile is the request's opt-in to what only newer clients understand.
func profile(r *http.Request) int {
	v := r.URL.Query().Get("ui")
	if v == "" {
		v = r.Header.Get(chat.HeaderUI)
	}
	switch v {
	case "6":
		return 6
	case "7":
		return 7
	}
	return 0
}

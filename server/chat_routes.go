package server

import (
	"context"
	"maps"
	"net/http"
	"strconv"

	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/wire"
)

// send takes a chat POST and streams the run that answers it.
func (s *Server) send(of wire.Wire) handler {
	parse := of.Body
	if parse == nil {
		parse = frontend.ParseBody
	}
	return func(w http.ResponseWriter, r *request) error {
		if err := s.identify(r, ActionSend); err != nil {
			return err
		}
		data, err := s.body(w, r, chatBody)
		if err != nil {
			return err
		}
		b, err := parse(data)
		if err != nil {
			return err
		}
		if r.session == "" {
			if r.session = b.Session; r.session == "" {
				r.session = s.logs.NewID()
			}
			if err = s.admit(r, ActionSend); err != nil {
				return err
			}
		}
		if b.Answering() {
			if err := s.ask(r, ActionDecide); err != nil {
				return err
			}
		}
		p := chat.Params{Session: r.session, Principal: r.principal, Body: b}
		if p.Profile, err = of.Profile(asked(r)); err != nil {
			return err
		}
		// A message that is taken is answered: who cannot be served now sends it again.
		if err := s.enter(); err != nil {
			return err
		}
		defer s.leaveUnless(r)
		res, err := chat.Handle(r.Context(), s.chat, p)
		if err != nil {
			return err
		}
		s.release(r)
		s.metrics.command("chat")
		r.answer = answerOf(w, of, &p.Profile, res)
		return nil
	}
}

// attach streams the session to this reader.
func (s *Server) attach(of wire.Wire) handler {
	position := of.Position
	if position == nil {
		position = wire.ReadPosition
	}
	return func(w http.ResponseWriter, r *request) error {
		p := chat.Params{Session: r.session, Run: r.vars["run"]}
		var err error
		if p.Position, err = position(asked(r)); err != nil {
			return err
		}
		if p.Profile, err = of.Profile(asked(r)); err != nil {
			return err
		}
		p.Admit = func(context.Context) error {
			return s.authorize(r, r.session, ActionRead)
		}
		res, err := chat.Handle(r.Context(), s.chat, p)
		if err != nil {
			return err
		}
		if res.Stream != nil {
			if err := s.enter(); err != nil {
				return err
			}
			defer s.leaveUnless(r)
		}
		r.answer = answerOf(w, of, &p.Profile, res)
		return nil
	}
}

func asked(r *request) wire.Request {
	return wire.Request{Query: r.URL.Query(), Header: r.Header}
}

// leaveUnless gives the reader's place back, unless its stream follows.
func (s *Server) leaveUnless(r *request) {
	if r.answer == nil {
		s.leave()
	}
}

// answerOf returns the stream of a response and writes its headers, or writes 204.
func answerOf(w http.ResponseWriter, of wire.Wire, p *wire.Profile, res *chat.Response) *answer {
	h := w.Header()
	h.Set(frontend.HeaderSession, res.Session)
	h.Add("Vary", "Last-Event-ID, X-Resume-From-Sequence, X-Resume-At, X-Spool-UI")
	if res.Incarnation > 0 {
		h.Set(frontend.HeaderIncarnation, strconv.FormatUint(res.Incarnation, 10))
	}
	if res.RunID != "" {
		h.Set(frontend.HeaderWorkflowRun, res.RunID)
	}
	if res.Tail != nil {
		h.Set(frontend.HeaderWorkflowTail, strconv.Itoa(*res.Tail))
	}
	if res.Stream == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	maps.Copy(h, p.Header)
	view := res.View
	if view == chat.ViewLog {
		view = of.Name
	}
	return &answer{res.Stream, view, p.MediaType}
}

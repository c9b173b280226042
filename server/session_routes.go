package server

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/server/wires"
)

func (s *Server) snapshot(w http.ResponseWriter, r *request) error {
	agents, err := frontend.ParseSubAgents(r.URL.Query().Get("agents"))
	if err != nil {
		return err
	}
	at, err := number(r.URL.Query(), "at")
	if err != nil {
		return err
	}
	snap, err := frontend.BuildSnapshot(r.Context(), s.front, frontend.SnapshotParams{
		SubAgents:  agents,
		Session:    r.session,
		At:         uint64(at),
		Checkpoint: cmp.Or(r.URL.Query().Get("checkpoint"), r.URL.Query().Get("checkpointId")),
	})
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set(frontend.HeaderSession, r.session)
	h.Set(frontend.HeaderIncarnation, strconv.FormatUint(snap.Incarnation, 10))
	writeJSON(w, http.StatusOK, snap)
	return nil
}

// records responds with a page of the session's records.
func (s *Server) records(w http.ResponseWriter, r *request) error {
	var o chat.RecordsOptions
	q := r.URL.Query()
	after, err := number(q, "after")
	if err != nil {
		return err
	}
	o.After = uint64(after)
	if o.Limit, err = number(q, "limit"); err != nil {
		return err
	}
	switch kept := q.Get("kept"); kept {
	case "", "0":
	case "1":
		o.Kept = true
	default:
		return chunk.ErrInvalid.Because("kept must be 0 or 1")
	}
	if name := q.Get("wire"); name != "" {
		list := wires.List(s.o.Wires)
		of, ok := wires.Find(list, name)
		if !ok {
			return chunk.ErrInvalid.Because("wire must be one of " + strings.Join(wires.NamesOf(list), ", "))
		}
		profile, err := of.Profile(asked(r))
		if err != nil {
			return err
		}
		o.Frames = &profile
	}
	page, err := chat.Records(r.Context(), s.chat, r.session, o)
	if err != nil {
		return err
	}
	w.Header().Set(frontend.HeaderSession, r.session)
	writeJSON(w, http.StatusOK, page)
	return nil
}

func (s *Server) messages(w http.ResponseWriter, r *request) error {
	var o frontend.MessagesOptions
	var err error
	if o.Offset, err = number(r.URL.Query(), "offset"); err != nil {
		return err
	}
	if o.Limit, err = number(r.URL.Query(), "limit"); err != nil {
		return err
	}
	if o.SubAgents, err = frontend.ParseSubAgents(r.URL.Query().Get("agents")); err != nil {
		return err
	}
	page, err := frontend.Messages(r.Context(), s.front, r.session, o)
	if err != nil {
		return err
	}
	w.Header().Set(frontend.HeaderSession, r.session)
	writeJSON(w, http.StatusOK, page)
	return nil
}

func number(q url.Values, name string) (int, error) {
	v := q.Get(name)
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, chunk.ErrInvalid.Because(name + " must be a whole number, 0 or more")
	}
	return n, nil
}

// remove deletes a session with everything in it. It is idempotent: a second delete
// finds nothing and gives 404.
func (s *Server) remove(w http.ResponseWriter, r *request) error {
	t, ok := s.logs.Store().(spool.Trimmer)
	if !ok {
		return spool.ErrUnsupported
	}
	if err := t.Delete(r.Context(), r.session); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// blob sends a large value that a record refers to. It never changes.
func (s *Server) blob(w http.ResponseWriter, r *request) error {
	b, ok := s.logs.Store().(spool.BlobStore)
	if !ok {
		return spool.ErrUnsupported
	}
	data, err := b.GetBlob(r.Context(), chunk.RootID(r.session), r.vars["hash"])
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	if json.Valid(data) {
		h.Set("Content-Type", "application/json; charset=utf-8")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(data)
	return nil
}

// sessions lists the sessions, newest first: all, or those whose TTL has passed.
func (s *Server) sessions(w http.ResponseWriter, r *request) error {
	l, ok := s.logs.Store().(spool.Lister)
	if !ok {
		return spool.ErrUnsupported
	}
	q := r.URL.Query()
	limit, err := number(q, "limit")
	if err != nil {
		return err
	}
	query := spool.SessionQuery{Status: chunk.Status(q.Get("status")), After: q.Get("after"), Max: min(limit, 1000)}
	switch query.Status {
	case "", chunk.StatusActive, chunk.StatusPaused, chunk.StatusEnded, chunk.StatusFailed:
	default:
		return chunk.ErrInvalid.Because("status must be active, paused, ended or failed")
	}
	policy, expired := s.logs.Policy(), false
	switch q.Get("expired") {
	case "", "0":
	case "1":
		expired = true
		var some bool
		if query.Idle, some = policy.Idle(); !some {
			writeJSON(w, http.StatusOK, sessionPage{Sessions: []sessionLine{}})
			return nil
		}
	default:
		return chunk.ErrInvalid.Because("expired must be 0 or 1")
	}
	// A caller with a principal sees only its own sessions.
	query.Principal = r.principal
	page, err := l.Sessions(r.Context(), query)
	if err != nil {
		return err
	}
	out := sessionPage{Sessions: []sessionLine{}, Next: page.NextAfter}
	for _, i := range page.Sessions {
		if !expired || policy.Expired(i, page.Now) {
			out.Sessions = append(out.Sessions, sessionLine{i, i.Head.Seq, i.Head.Incarnation, i.Head.Due})
		}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

type sessionPage struct {
	Sessions []sessionLine `json:"sessions"`
	Next     string        `json:"nextAfter,omitempty"`
}

type sessionLine struct {
	spool.SessionInfo
	StreamSequence uint64 `json:"streamSequence"`
	Incarnation    uint64 `json:"incarnation"`
	Due            int64  `json:"due,omitempty"`
}

// streamInfo returns a log's state, for native clients before they attach.
func (s *Server) streamInfo(w http.ResponseWriter, r *request) error {
	info, err := chat.StreamInfo(r.Context(), s.chat, r.session)
	if err != nil {
		return err
	}
	w.Header().Set(frontend.HeaderIncarnation, strconv.FormatUint(info.Incarnation, 10))
	writeJSON(w, http.StatusOK, info)
	return nil
}

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
	if o.Newest, err = frontend.ParseOrder(q.Get("order")); err != nil {
		return err
	}
	page, err := chat.Checkpoints(r.Context(), s.chat, r.session, o)
	if err != nil {
		return err
	}
	w.Header().Set(frontend.HeaderSession, r.session)
	writeJSON(w, http.StatusOK, page)
	return nil
}

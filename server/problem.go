package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/wire"
)

// Problem is the body of every error response.
type Problem struct {
	Error  string `json:"error"`            // for people
	Code   string `json:"code"`             // stable
	Hint   string `json:"hint,omitempty"`   // for operators
	RunID  string `json:"runId,omitempty"`  // busy: the active run
	Attach string `json:"attach,omitempty"` // busy: where to follow it, relative to the request's URL
}

var (
	errMethod      = &chunk.Error{Code: "method_not_allowed", Message: "the method is not allowed on this route"}
	errRoute       = &chunk.Error{Code: "no_such_route", Message: "no such route"}
	errCrossOrigin = &chunk.Error{Code: "cross_origin", Message: "requests from this origin are not allowed", Hint: "allow the origin with Options.AllowOrigin or --cors-origin"}
	errHost        = &chunk.Error{Code: "host_not_allowed", Message: "this host name is not allowed", Hint: "allow the host name with Options.AllowHost or --allow-host"}
	errBodyTimeout = &chunk.Error{Code: "body_timeout", Message: "the request body did not arrive in time"}
	errBodies      = &chunk.Error{Code: "too_many_bodies", Message: "the request bodies that are being read take too much memory", Hint: "retry later, raise BodyMemory (--body-memory), or add servers"}
	errTooMany     = &chunk.Error{Code: "too_many_readers", Message: "the limit of open streams is reached", Hint: "retry later, raise MaxReaders (--max-readers), or add servers"}
	errDraining    = &chunk.Error{Code: "draining", Message: "the server is shutting down"}
	errMalformed   = wire.ErrMalformed
	errUnexpected  = &chunk.Error{Code: "internal", Message: "internal server error"}
)

// statusOf returns the HTTP status of an error's code.
func statusOf(err error) int { return chunk.InfoOf(chunk.CodeOf(err)).Status }

// fail responds with an error, as JSON.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) { s.failAs(w, r, err, nil) }

// failAs responds with an error: as JSON, or as the text that refusal returns, if there
// is one and the client does not ask for JSON. Errors whose code is not in the table are
// logged and not shown.
func (s *Server) failAs(w http.ResponseWriter, r *http.Request, err error, refusal func(*chunk.Error) string) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the client has left
	}
	status := statusOf(err)
	var known *chunk.Error
	if !errors.As(err, &known) {
		known = errUnexpected
	}
	p := Problem{Error: known.Error(), Code: known.Code, Hint: known.Hint}
	switch {
	case status == http.StatusInternalServerError:
		s.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		p.Error = errUnexpected.Error()
	case status > http.StatusInternalServerError:
		// The cause is only for operators: it may name hosts and users.
		s.log.Warn("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		p.Error = known.With(known.Session, nil).Error()
	}
	if busy, ok := errors.AsType[*chat.BusyError](err); ok {
		p.RunID = busy.RunID
		p.Attach = attachURL(r.URL, busy.Session)
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(1+s.jitter(4)))
	}
	if refusal == nil || strings.Contains(r.Header.Get("Accept"), "application/json") {
		writeJSON(w, status, p)
		return
	}
	if status == http.StatusInternalServerError {
		known = errUnexpected
	}
	h := w.Header()
	h.Set(frontend.HeaderError, p.Code)
	setHead(h, "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, refusal(known))
}

// attachURL returns where to follow a session, on the wire of the request, relative to
// the request's URL: the client may know this server under a path that a proxy or
// [http.StripPrefix] has removed.
func attachURL(from *url.URL, session string) string {
	to := "/api/chat/" + url.PathEscape(session) + "/stream"
	for _, wire := range [...]string{"/merlin/v1", "/merlin/v2"} {
		if strings.HasPrefix(from.Path, wire) {
			to = wire + "/" + url.PathEscape(session)
		}
	}
	base, target := strings.Split(from.EscapedPath(), "/"), strings.Split(to, "/")
	base = base[:len(base)-1] // references begin at the last slash
	for len(base) > 0 && len(target) > 1 && base[0] == target[0] {
		base, target = base[1:], target[1:]
	}
	// "./" because a session's id may contain a colon, which would end a scheme.
	return "./" + strings.Repeat("../", len(base)) + strings.Join(target, "/")
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":"the response could not be encoded","code":"internal"}`)
	}
	setHead(w.Header(), "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

// setHead sets the headers of an answer that is made for its request alone.
func setHead(h http.Header, mediaType string) {
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

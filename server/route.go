package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/wires"
)

// request is what a route's handler gets: the request, its principal, and the path's
// variables.
type request struct {
	*http.Request
	session    string
	principal  string
	identified bool   // its principal is known
	owner      string // whose session it is, or will be if the request creates it
	vars       map[string]string
	held       int64 // bytes of the budget that its body holds
	answer     *answer
}

// answer is a stream that follows when the route's handler has returned, so that a reader
// that has nothing to read does not keep the handler's stack. A reader was counted for it.
type answer struct {
	src             chat.Source
	view, mediaType string
}

// asks reports whether the request's query has a parameter.
func (r *request) asks(name string) bool {
	return r.URL.RawQuery != "" && r.URL.Query().Has(name)
}

type handler func(w http.ResponseWriter, r *request) error

// route is one line of the table. Its name is its pattern; {session} in it is
// checked and authorised before the handler runs.
type route struct {
	pattern string
	parts   []string
	methods map[string]method
}

type method struct {
	action Action // "" authorises nothing: for operations, and for routes that find the session in the body
	do     handler
	// refusal returns the text of an error answer; nil: it is JSON.
	refusal func(*chunk.Error) string
}

func (s *Server) table() []route {
	messages := method{action: ActionRead, do: s.messages}
	list := []route{
		{pattern: "/api/info", methods: map[string]method{"GET": {do: s.info}}},
		{pattern: "/api/chat/{session}", methods: map[string]method{"DELETE": {action: ActionDelete, do: s.remove}}},
		{pattern: "/api/chat/{session}/snapshot", methods: map[string]method{"GET": {action: ActionRead, do: s.snapshot}}},
		{pattern: "/api/chat/{session}/checkpoints", methods: map[string]method{"GET": {action: ActionRead, do: s.checkpoints}}},
		{pattern: "/api/chat/{session}/messages", methods: map[string]method{"GET": messages}},
		{pattern: "/api/messages/{session}", methods: map[string]method{"GET": messages}},
		{pattern: "/api/chat/{session}/stop", methods: map[string]method{"POST": {action: ActionStop, do: s.stop}}},
		{pattern: "/api/chat/{session}/interrupt", methods: map[string]method{"POST": {action: ActionStop, do: s.interrupt}}},
		{pattern: "/api/chat/{session}/resume", methods: map[string]method{"POST": {do: s.resume}}},
		{pattern: "/api/chat/{session}/approvals/{id}", methods: map[string]method{"POST": {action: ActionDecide, do: s.decide}}},
		{pattern: "/api/chat/{session}/tools/{call}", methods: map[string]method{"POST": {action: ActionDecide, do: s.submit}}},
		{pattern: "/api/chat/{session}/blobs/{hash}", methods: map[string]method{"GET": {action: ActionRead, do: s.blob}}},
		{pattern: "/stream/{session}", methods: map[string]method{"POST": {action: ActionAppend, do: s.produce}}},
		{pattern: "/api/chat/{session}/records", methods: map[string]method{"GET": {action: ActionRead, do: s.records}}},
		{pattern: "/api/chat/{session}/info", methods: map[string]method{"GET": {action: ActionRead, do: s.streamInfo}}},
		{pattern: "/stream/{session}/info", methods: map[string]method{"GET": {action: ActionRead, do: s.streamInfo}}},
		{pattern: "/sessions", methods: map[string]method{"GET": {action: ActionList, do: s.sessions}}},
		{pattern: "/openapi.json", methods: map[string]method{"GET": {do: s.openAPI}}},
		{pattern: "/healthz", methods: map[string]method{"GET": {do: s.healthz}}},
		{pattern: "/readyz", methods: map[string]method{"GET": {do: s.readyz}}},
		{pattern: "/metrics", methods: map[string]method{"GET": {action: ActionOps, do: s.metricsText}}},
	}
	for _, w := range wires.List(s.o.Wires) {
		for _, pattern := range w.Send {
			action := ActionSend
			if !strings.Contains(pattern, "{session}") {
				action = "" // the body names the session
			}
			list = add(list, pattern, http.MethodPost, method{action, s.send(w), w.Refusal})
		}
		for _, pattern := range w.Attach {
			list = add(list, pattern, http.MethodGet, method{action: ActionRead, do: s.attach(w)})
		}
	}
	return compile(list)
}

// add gives a route another method, or adds the route at the end.
func add(list []route, pattern, name string, m method) []route {
	for _, r := range list {
		if r.pattern == pattern {
			r.methods[name] = m
			return list
		}
	}
	return append(list, route{pattern: pattern, methods: map[string]method{name: m}})
}

func compile(routes []route) []route {
	for i := range routes {
		routes[i].parts = strings.Split(routes[i].pattern[1:], "/")
	}
	return routes
}

// route finds the handler by the escaped path, so that no path is cleaned, redirected
// or split differently before its ids are checked.
func (s *Server) route(w http.ResponseWriter, r *http.Request, name *string) *answer {
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i := range s.routes {
		rt := &s.routes[i]
		vars, ok := rt.match(parts)
		if !ok {
			continue
		}
		*name = rt.pattern
		m, ok := rt.methods[r.Method]
		if !ok && r.Method == http.MethodHead {
			m, ok = rt.methods[http.MethodGet]
		}
		if !ok {
			w.Header().Set("Allow", rt.allow())
			s.fail(w, r, errMethod)
			return nil
		}
		req := &request{Request: r, vars: vars, session: vars["session"]}
		if req.asks("startIndex") {
			req.session, req.vars["run"] = chat.SplitRunID(req.session)
		}
		var err error
		if m.action != "" {
			err = s.admit(req, m.action)
		}
		defer s.release(req)
		if err == nil {
			err = m.do(w, req)
		}
		if err != nil {
			s.failAs(w, r, err, m.refusal)
		}
		return req.answer
	}
	s.static(w, r, name)
	return nil
}

func (rt *route) match(parts []string) (map[string]string, bool) {
	if len(parts) != len(rt.parts) {
		return nil, false
	}
	for i, want := range rt.parts {
		if !variable(want) && parts[i] != want {
			return nil, false
		}
	}
	vars := map[string]string{}
	for i, want := range rt.parts {
		if variable(want) {
			value, err := url.PathUnescape(parts[i])
			if err != nil {
				return nil, false
			}
			vars[want[1:len(want)-1]] = value
		}
	}
	return vars, true
}

func variable(part string) bool { return len(part) > 2 && part[0] == '{' }

func (rt *route) allow() string {
	var list []string
	for m := range rt.methods {
		list = append(list, m)
		if m == http.MethodGet {
			list = append(list, http.MethodHead)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

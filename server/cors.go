package server

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

const (
	corsMethods = "GET, HEAD, POST, DELETE, OPTIONS"
	corsHeaders = "Content-Type, Authorization, Last-Event-ID, X-Resume-From-Sequence, X-Resume-At, X-Existing-Message-Id, X-Spool-UI, X-AI-SDK-UI, Producer-Epoch, Producer-Seq"
	corsExpose  = "X-Session-Id, X-Stream-Incarnation, X-Workflow-Run-Id, X-Workflow-Stream-Tail-Index, Retry-After"
)

// LoopbackOrigin reports whether an origin is a page served from this machine,
// on whatever port.
func LoopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	if u.Hostname() == "localhost" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}

// cors sets the answer's headers for the request's origin. It reports whether
// the request may go on: what changes something needs a page of this host or an
// allowed origin, whatever its content type.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	own := sameHost(origin, r.Host)
	if !own && s.o.AllowOrigin != nil && s.o.AllowOrigin(origin) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
		h.Set("Access-Control-Expose-Headers", corsExpose)
		if r.Method == http.MethodOptions {
			h.Set("Access-Control-Allow-Methods", corsMethods)
			h.Set("Access-Control-Allow-Headers", corsHeaders)
			h.Set("Access-Control-Max-Age", "600")
		}
		return true
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true // the browser keeps the answer from the page
	}
	return own
}

func sameHost(origin, host string) bool {
	_, rest, ok := strings.Cut(origin, "://")
	return ok && strings.EqualFold(rest, host)
}

package server

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	corsMethods = "GET, HEAD, POST, DELETE, OPTIONS"
	corsHeaders = "Content-Type, Authorization, Last-Event-ID, X-Resume-From-Sequence, X-Resume-At, X-Existing-Message-Id, X-Spool-UI, X-AI-SDK-UI, Producer-Epoch, Producer-Seq"
	corsExpose  = "X-Session-Id, X-Spool-Error, X-Stream-Incarnation, X-Workflow-Run-Id, X-Workflow-Stream-Tail-Index, Retry-After"
)

// LoopbackOrigin reports whether an origin is a page served from this machine, on any
// port.
func LoopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	return LoopbackHost(u.Hostname())
}

// LoopbackHost reports whether a host name, without its port, always names this
// machine, so that no DNS server can change its meaning.
func LoopbackHost(host string) bool {
	host = strings.ToLower(host)
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// hosted reports whether the request's host name is allowed.
func (s *Server) hosted(r *http.Request) bool {
	return s.o.AllowHost == nil || r.Host == "" || s.o.AllowHost((&url.URL{Host: r.Host}).Hostname())
}

// cors sets the response headers for the request's origin. It reports whether the
// request is allowed: a request that changes something must come from a page of this
// host or of an allowed origin, with any content type. With AllowAnyOrigin, pages of
// origins that are not allowed by name cannot use what the browser adds for the user.
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
		s.corsAllow(h, r)
		return true
	}
	switch {
	case own:
		return true
	case s.o.AllowAnyOrigin && !credentials(r):
		h.Set("Access-Control-Allow-Origin", "*")
		s.corsAllow(h, r)
		return true
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true // the browser does not show the page the response
	}
	return false
}

// corsAllow sets the headers that all allowed origins get.
func (s *Server) corsAllow(h http.Header, r *http.Request) {
	h.Set("Access-Control-Expose-Headers", corsExpose)
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", corsHeaders)
		h.Set("Access-Control-Max-Age", "600")
	}
}

// credentials reports whether the request has credentials that a browser adds by itself.
// A token is none: the page must know it to send it.
func credentials(r *http.Request) bool {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	browser := slices.ContainsFunc([]string{"Basic", "Digest", "Negotiate", "NTLM"}, func(s string) bool { return strings.EqualFold(s, scheme) })
	return browser || r.Header.Get("Cookie") != ""
}

func sameHost(origin, host string) bool {
	_, rest, ok := strings.Cut(origin, "://")
	return ok && strings.EqualFold(rest, host)
}

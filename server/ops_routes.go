package server

import (
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/spool-run/spool"
)

func (s *Server) info(w http.ResponseWriter, _ *request) error {
	writeJSON(w, http.StatusOK, s.o.Info)
	return nil
}

// healthz tells what supervises processes whether this one can still work. It asks the
// store nothing: one that is away is no reason to restart. But a store that this process has
// closed does not come back.
func (s *Server) healthz(w http.ResponseWriter, _ *request) error {
	if s.logs.Closed() {
		return spool.ErrClosed
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

func (s *Server) metricsText(w http.ResponseWriter, r *request) error {
	s.scrapes.ServeHTTP(w, r.Request)
	return nil
}

// static serves the page. Paths without a dot are the page's own routes.
func (s *Server) static(w http.ResponseWriter, r *http.Request, name *string) {
	p := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	api := strings.HasPrefix(p, "api/") || strings.HasPrefix(p, "stream/")
	if s.o.Assets == nil || api {
		s.fail(w, r, errRoute)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		s.fail(w, r, errMethod)
		return
	}
	*name = "/"
	switch p {
	case "":
		p = "index.html"
	case "inspect":
		p = "inspect.html"
	}
	if !fs.ValidPath(p) {
		s.fail(w, r, errRoute)
		return
	}
	if i, err := fs.Stat(s.o.Assets, p); err != nil || i.IsDir() {
		s.fail(w, r, errRoute)
		return
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "frame-ancestors 'self'") // no other page may embed this one and its buttons
	h.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(p, "assets/") { // their names contain their hashes
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeFileFS(w, r, s.o.Assets, p)
}

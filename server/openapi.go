package server

import (
	_ "embed"
	"net/http"
)

// openAPI describes every route with its parameters, bodies, answers and error codes.
// docs/http-reference.md is made from it.
//
//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the OpenAPI 3.1 document that is served at /openapi.json. It has the
// routes of the server's own wires, and not those of [wires.Options.More].
func OpenAPI() []byte { return append([]byte(nil), openAPI...) }

func (s *Server) openAPI(w http.ResponseWriter, _ *request) error {
	setHead(w.Header(), "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(openAPI)
	return nil
}

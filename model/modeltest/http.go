package modeltest

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
)

// OverHTTP checks that a model to which a provider sends the streams in dir, over HTTP
// and in pieces of any size, yields what ingest makes of the files.
func OverHTTP(t *testing.T, dir string, ingest Ingest, connect func(url string) model.Model) {
	t.Helper()
	var answer atomic.Pointer[[][]byte] // in pieces; a client that has what it wants leaves the handler writing
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range *answer.Load() {
			if _, err := w.Write(piece); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}))
	defer s.Close()
	m := connect(s.URL)
	rnd := rand.New(rand.NewPCG(1, 2))
	for file, data := range Streams(t, dir, "*.sse") {
		want := read(data, ingest)
		for how, next := range map[string]func() int{
			"whole":         func() int { return len(data) },
			"small pieces":  func() int { return 1 + len(data)/500 },
			"random pieces": func() int { return 1 + rnd.IntN(1+len(data)/10) },
		} {
			var pieces [][]byte
			for rest := data; len(rest) > 0; {
				n := min(next(), len(rest))
				pieces, rest = append(pieces, rest[:n]), rest[n:]
			}
			answer.Store(&pieces)
			parts, err := Collect(m.Stream(t.Context(), &model.Request{Messages: []chunk.Message{
				{Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "Hi"}}}}}))
			want.equals(t, file+" over HTTP, "+how, parts, err)
		}
	}
}

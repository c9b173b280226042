package server_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool/server"
)

// What runners count stands behind what the server does.
func TestMoreMetrics(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Metrics: []io.WriterTo{bytes.NewReader([]byte("spool_runs_started_total 3\n"))}})
	text := string(k.status(http.StatusOK, "GET", "/metrics", ""))
	if !strings.HasSuffix(text, "\nspool_runs_started_total 3\n") || !strings.HasPrefix(text, "# HELP spool_readers ") {
		t.Error(text)
	}
}

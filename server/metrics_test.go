package server_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
)

// The server's metrics have the names and labels by which dashboards know them, and what
// runners and others count is served beside them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	own := prometheus.NewCounter(prometheus.CounterOpts{Name: "own_total", Help: "Own."})
	own.Add(3)
	k := newKit(t, &server.Options{Metrics: []prometheus.Collector{new(runner.Metrics), own}})
	k.turn("s", "u1", "a")
	k.stream("GET", "/api/chat/s/stream", "").all()
	k.status(http.StatusOK, "GET", "/healthz", "")
	text := string(k.status(http.StatusOK, "GET", "/metrics", ""))
	for _, want := range []string{
		"# TYPE spool_readers gauge\nspool_readers{view=",
		"# TYPE spool_readers_opened_total counter\nspool_readers_opened_total{view=",
		"# TYPE spool_reader_ends_total counter\nspool_reader_ends_total{reason=",
		"# TYPE spool_commands_total counter\nspool_commands_total{type=",
		"# TYPE spool_stream_bytes_total counter\nspool_stream_bytes_total ",
		"# TYPE spool_http_requests_total counter\nspool_http_requests_total{route=\"/",
		"spool_http_requests_total{route=\"/healthz\",status=\"200\"} 1\n",
		"\nspool_claims_total 0\n",
		"\nown_total 3\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// A collector that cannot be registered is reported, and leaves the others alone.
func TestMetricsTwice(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	m := new(runner.Metrics)
	k := newKit(t, &server.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Metrics: []prometheus.Collector{m, m}})
	if text := string(k.status(http.StatusOK, "GET", "/metrics", "")); strings.Count(text, "\nspool_claims_total 0\n") != 1 {
		t.Error(text)
	}
	if !strings.Contains(log.String(), "metrics cannot be served") {
		t.Error(log.String())
	}
}

package server

import (
	"log/slog"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the server's counters, and the registry of these and of [Options].Metrics.
type metrics struct {
	registry *prometheus.Registry
	readers  *prometheus.GaugeVec   // by view
	opened   *prometheus.CounterVec // by view
	ends     *prometheus.CounterVec // by reason
	commands *prometheus.CounterVec // by type
	requests *prometheus.CounterVec // by route and status
	bytes    prometheus.Counter
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		readers:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spool_readers", Help: "Open streams by view."}, []string{"view"}),
		opened:   counter("spool_readers_opened_total", "Streams opened by view.", "view"),
		ends:     counter("spool_reader_ends_total", "Streams ended by reason.", "reason"),
		commands: counter("spool_commands_total", "Commands appended by type.", "type"),
		requests: counter("spool_http_requests_total", "Requests by route and status.", "route", "status"),
		bytes:    prometheus.NewCounter(prometheus.CounterOpts{Name: "spool_stream_bytes_total", Help: "Bytes written to finished streams."}),
	}
	m.registry.MustRegister(m.readers, m.opened, m.ends, m.commands, m.requests, m.bytes)
	return m
}

// metricsHandler serves all metrics in the formats of Prometheus. A collector that fails is left
// out and logged.
func (s *Server) metricsHandler() http.Handler {
	for _, c := range s.o.Metrics {
		if err := s.metrics.registry.Register(c); err != nil {
			s.log.Warn("metrics cannot be served", "error", err)
		}
	}
	return promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)})
}

func (m *metrics) reader(view string, by int64) {
	m.readers.WithLabelValues(view).Add(float64(by))
	if by > 0 {
		m.opened.WithLabelValues(view).Inc()
	}
}

func (m *metrics) end(reason string) { m.ends.WithLabelValues(reason).Inc() }

func (m *metrics) command(kind string) { m.commands.WithLabelValues(kind).Inc() }

func (m *metrics) request(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// counted notes the status that was written.
type counted struct {
	http.ResponseWriter
	status int
}

func (c *counted) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// metrics are counters for operators, in the text format of Prometheus.
type metrics struct {
	bytes atomic.Int64

	mu       sync.Mutex
	readers  map[string]int64 // view
	opened   map[string]int64 // view
	ends     map[string]int64 // reason
	commands map[string]int64 // type
	requests map[[2]string]int64
}

func newMetrics() *metrics {
	return &metrics{
		readers:  map[string]int64{},
		opened:   map[string]int64{},
		ends:     map[string]int64{},
		commands: map[string]int64{},
		requests: map[[2]string]int64{},
	}
}

func (m *metrics) reader(view string, by int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readers[view] += by
	if by > 0 {
		m.opened[view]++
	}
}

func (m *metrics) end(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends[reason]++
}

func (m *metrics) command(kind string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands[kind]++
}

func (m *metrics) request(route string, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[[2]string{route, strconv.Itoa(status)}]++
}

// text renders the counters in sorted order, so that two calls differ only in numbers.
func (m *metrics) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	family := func(name, kind, help, label string, values map[string]int64) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		keys := make([]string, 0, len(values))
		for k := range values {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			fmt.Fprintf(&b, "%s{%s=%q} %d\n", name, label, k, values[k])
		}
	}
	family("spool_readers", "gauge", "Open streams by view.", "view", m.readers)
	family("spool_readers_opened_total", "counter", "Streams opened by view.", "view", m.opened)
	family("spool_reader_ends_total", "counter", "Streams ended by reason.", "reason", m.ends)
	family("spool_commands_total", "counter", "Commands appended by type.", "type", m.commands)
	fmt.Fprintf(&b, "# HELP spool_stream_bytes_total Bytes written to finished streams.\n# TYPE spool_stream_bytes_total counter\nspool_stream_bytes_total %d\n", m.bytes.Load())
	b.WriteString("# HELP spool_http_requests_total Requests by route and status.\n# TYPE spool_http_requests_total counter\n")
	keys := make([][2]string, 0, len(m.requests))
	for k := range m.requests {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]string) int {
		if c := strings.Compare(a[0], b[0]); c != 0 {
			return c
		}
		return strings.Compare(a[1], b[1])
	})
	for _, k := range keys {
		fmt.Fprintf(&b, "spool_http_requests_total{route=%q,status=%q} %d\n", k[0], k[1], m.requests[k])
	}
	return b.String()
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

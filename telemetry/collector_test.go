package telemetry_test

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracescollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector is an OTLP receiver.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	bodies   [][]byte
	services map[string]bool
	spans    []*tracepb.Span
	metrics  map[string][]*metricspb.HistogramDataPoint
}

func newCollector(t *testing.T) *collector {
	c := &collector{services: map[string]bool{}, metrics: map[string][]*metricspb.HistogramDataPoint{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Method == http.MethodPost && r.Header.Get("Content-Type") == "application/x-protobuf" {
			err = c.take(r.URL.Path, body)
		} else if err == nil {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(path string, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies = append(c.bodies, body)
	if path == "/v1/traces" {
		var r tracescollector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &r); err != nil {
			return err
		}
		for _, rs := range r.ResourceSpans {
			c.services[attrs(rs.Resource.Attributes)["service.name"]] = true
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
		return nil
	}
	if path != "/v1/metrics" {
		return io.ErrUnexpectedEOF
	}
	var r metricscollector.ExportMetricsServiceRequest
	if err := proto.Unmarshal(body, &r); err != nil {
		return err
	}
	for _, rm := range r.ResourceMetrics {
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				c.metrics[m.Name] = append(c.metrics[m.Name], m.GetHistogram().GetDataPoints()...)
			}
		}
	}
	return nil
}

// attrs are attributes as text.
func attrs(kvs []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range kvs {
		v := kv.Value.GetStringValue()
		switch kv.Value.Value.(type) {
		case *commonpb.AnyValue_IntValue:
			v = itoa(kv.Value.GetIntValue())
		case *commonpb.AnyValue_BoolValue:
			v = map[bool]string{true: "true", false: "false"}[kv.Value.GetBoolValue()]
		case *commonpb.AnyValue_ArrayValue:
			for _, e := range kv.Value.GetArrayValue().Values {
				v += e.GetStringValue()
			}
		}
		m[kv.Key] = v
	}
	return m
}

// named returns the spans of a name.
func (c *collector) named(name string) (found []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// one returns the only span of a name.
func (c *collector) one(t *testing.T, name string) *tracepb.Span {
	t.Helper()
	found := c.named(name)
	if len(found) != 1 {
		t.Fatalf("%d spans are called %q, of\n%s", len(found), name, c.tree())
	}
	return found[0]
}

func (c *collector) tree() (s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.spans {
		s += hex.EncodeToString(p.TraceId)[:6] + " " + hex.EncodeToString(p.SpanId) + " < " + hex.EncodeToString(p.ParentSpanId) + " " + p.Name + "\n"
	}
	return s
}

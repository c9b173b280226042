package runner_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spool-run/spool/runner"
)

// scrape returns metrics as Prometheus gets them.
func scrape(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// Dashboards and alerts name metrics and their labels.
func TestMetricsKeepTheirNames(t *testing.T) {
	descs := make(chan *prometheus.Desc, 100)
	new(runner.Metrics).Describe(descs)
	close(descs)
	var got []string
	for d := range descs {
		s := d.String()
		name, _, _ := strings.Cut(strings.TrimPrefix(s, `Desc{fqName: "`), `"`)
		_, labels, _ := strings.Cut(s, "variableLabels: ")
		got = append(got, name+strings.TrimSuffix(labels, "}"))
	}
	slices.Sort(got)
	want := []string{
		"spool_claims_total{}",
		"spool_due_seconds_total{}",
		"spool_model_calls_total{agent,code}",
		"spool_model_retries_total{agent,code}",
		"spool_model_seconds_total{agent}",
		"spool_model_tokens_total{agent,kind}",
		"spool_runs_finished_total{agent,outcome,code}",
		"spool_runs_handed_over_total{agent}",
		"spool_runs_recovered_total{agent}",
		"spool_runs_started_total{agent,mode}",
		"spool_runs_suspended_total{agent,kind}",
		"spool_sessions_expired_total{}",
		"spool_sessions_served{}",
		"spool_steps_total{agent,result}",
		"spool_store_bytes{}",
		"spool_store_largest_session_bytes{}",
		"spool_store_oldest_session_seconds{}",
		"spool_store_sessions{}",
		"spool_sweeps_total{}",
		"spool_tool_calls_total{tool,result}",
		"spool_tool_seconds_total{tool}",
		"spool_traces_trimmed_total{}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	for _, name := range []string{"spool_claims_total counter", "spool_sessions_served gauge", "spool_due_seconds_total counter"} {
		if text := scrape(t, new(runner.Metrics)); !strings.Contains(text, "# TYPE "+name+"\n") {
			t.Errorf("no %s in\n%s", name, text)
		}
	}
}

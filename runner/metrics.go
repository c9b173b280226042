package runner

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model"
)

// Metrics count what runners do, for Prometheus. One may be given to several runners. The
// zero value is ready.
type Metrics struct {
	once     sync.Once
	counters map[string]*prometheus.CounterVec
	gauges   map[string]*prometheus.GaugeVec
	holding  sync.RWMutex // the gauges of the store are set together
}

var _ prometheus.Collector = (*Metrics)(nil)

const (
	counter = iota
	gauge
)

// families are all metrics, with their labels.
var families = []struct {
	name   string
	kind   int
	help   string
	labels []string
}{
	{"spool_sessions_served", gauge, "Sessions that are claimed here.", nil},
	{"spool_due_seconds_total", counter, "How long claimed sessions had been due.", nil},
	{"spool_claims_total", counter, "Sessions claimed.", nil},
	{"spool_sweeps_total", counter, "Sweeps for old traces and sessions that were done here.", nil},
	{"spool_traces_trimmed_total", counter, "Sessions whose trace was trimmed.", nil},
	{"spool_sessions_expired_total", counter, "Sessions deleted for their age.", nil},
	{"spool_store_sessions", gauge, "Sessions in the store, as of the latest sweep, if it was done here; so are the next three.", nil},
	{"spool_store_bytes", gauge, "Bytes of the records and large values of all sessions.", nil},
	{"spool_store_largest_session_bytes", gauge, "Bytes of the largest session.", nil},
	{"spool_store_oldest_session_seconds", gauge, "How long ago the last append was to the session that is idle for longest.", nil},
	{"spool_runs_started_total", counter, "Runs started by agent and mode.", []string{"agent", "mode"}},
	{"spool_runs_recovered_total", counter, "Runs taken over from a lost owner by agent.", []string{"agent"}},
	{"spool_runs_handed_over_total", counter, "Runs left to the next owner between two phases by agent.", []string{"agent"}},
	{"spool_runs_suspended_total", counter, "Runs paused by agent and kind.", []string{"agent", "kind"}},
	{"spool_runs_finished_total", counter, "Runs ended by agent, outcome and code.", []string{"agent", "outcome", "code"}},
	{"spool_steps_total", counter, "Steps by agent and what became of them.", []string{"agent", "result"}},
	{"spool_model_calls_total", counter, "Model calls by agent and code, empty for success.", []string{"agent", "code"}},
	{"spool_model_seconds_total", counter, "How long model calls took by agent.", []string{"agent"}},
	{"spool_model_tokens_total", counter, "Tokens used by agent and kind.", []string{"agent", "kind"}},
	{"spool_model_retries_total", counter, "Model calls made again by agent and the code of the failed one.", []string{"agent", "code"}},
	{"spool_tool_calls_total", counter, "Tool calls by tool and result.", []string{"tool", "result"}},
	{"spool_tool_seconds_total", counter, "How long tool calls took by tool.", []string{"tool"}},
}

func (m *Metrics) init() {
	m.counters, m.gauges = map[string]*prometheus.CounterVec{}, map[string]*prometheus.GaugeVec{}
	for _, f := range families {
		if f.kind == gauge {
			m.gauges[f.name] = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.name, Help: f.help}, f.labels)
			continue
		}
		m.counters[f.name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.name, Help: f.help}, f.labels)
		if f.labels == nil {
			m.counters[f.name].WithLabelValues() // so that its 0 is served
		}
	}
	m.gauges["spool_sessions_served"].WithLabelValues()
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.each(func(c prometheus.Collector) { c.Describe(to) })
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.holding.RLock()
	defer m.holding.RUnlock()
	m.each(func(c prometheus.Collector) { c.Collect(to) })
}

func (m *Metrics) each(fn func(prometheus.Collector)) {
	m.once.Do(m.init)
	for _, c := range m.counters {
		fn(c)
	}
	for _, g := range m.gauges {
		fn(g)
	}
}

// add counts. labels are the values of the family's labels.
func (m *Metrics) add(family string, by float64, labels ...string) {
	m.once.Do(m.init)
	m.counters[family].WithLabelValues(labels...).Add(max(by, 0))
}

func (m *Metrics) served(by float64) {
	m.once.Do(m.init)
	m.gauges["spool_sessions_served"].WithLabelValues().Add(by)
}

// holds sets what the store holds; nil: another process knows.
func (m *Metrics) holds(u *spool.Usage) {
	m.once.Do(m.init)
	m.holding.Lock()
	defer m.holding.Unlock()
	for name, g := range m.gauges {
		if strings.HasPrefix(name, "spool_store_") {
			g.Reset()
		}
	}
	if u == nil {
		return
	}
	set := func(name string, v float64) { m.gauges[name].WithLabelValues().Set(v) }
	set("spool_store_sessions", float64(u.Sessions))
	set("spool_store_bytes", float64(u.Bytes))
	set("spool_store_largest_session_bytes", float64(u.Largest))
	oldest := 0.0
	if u.Sessions > 0 {
		oldest = float64(u.Now-u.Oldest) / 1000
	}
	set("spool_store_oldest_session_seconds", oldest)
}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Code
	}
	return "other"
}

// observer returns the observer that counts.
func (m *Metrics) observer() Observer {
	o := Observer{
		Claimed: func(_ string, waited time.Duration) {
			m.served(1)
			m.add("spool_claims_total", 1)
			m.add("spool_due_seconds_total", waited.Seconds())
		},
		Released:      func(string) { m.served(-1) },
		RunStarted:    func(r agent.RunInfo) { m.add("spool_runs_started_total", 1, r.Agent, r.Mode) },
		RunRecovered:  func(r agent.RunInfo) { m.add("spool_runs_recovered_total", 1, r.Agent) },
		RunHandedOver: func(r agent.RunInfo) { m.add("spool_runs_handed_over_total", 1, r.Agent) },
		RunSuspended: func(r agent.RunInfo, kind string) {
			m.add("spool_runs_suspended_total", 1, r.Agent, kind)
		},
		RunFinished: func(r agent.RunInfo, _ error) {
			m.add("spool_runs_finished_total", 1, r.Agent, string(r.Outcome), r.Code)
		},
	}
	o.Observer = agent.Observer{
		StepCommitted: func(r agent.RunInfo, _ int) { m.add("spool_steps_total", 1, r.Agent, "committed") },
		StepDiscarded: func(r agent.RunInfo, _ int, reason string) {
			m.add("spool_steps_total", 1, r.Agent, reason)
		},
		ModelEnded: func(r agent.RunInfo, c agent.ModelCall) {
			m.add("spool_model_calls_total", 1, r.Agent, codeOf(c.Err))
			m.add("spool_model_seconds_total", c.Duration.Seconds(), r.Agent)
			m.add("spool_model_tokens_total", float64(c.Usage.InputTokens), r.Agent, "input")
			m.add("spool_model_tokens_total", float64(c.Usage.OutputTokens), r.Agent, "output")
		},
		ModelRetry: func(r agent.RunInfo, c agent.ModelCall, _ time.Duration) {
			m.add("spool_model_retries_total", 1, r.Agent, codeOf(c.Err))
		},
		ToolEnded: func(_ agent.RunInfo, c agent.ToolCall) {
			result := "ok"
			if c.Err != nil {
				result = "error"
			}
			m.add("spool_tool_calls_total", 1, c.Name, result)
			m.add("spool_tool_seconds_total", c.Duration.Seconds(), c.Name)
		},
	}
	return o
}

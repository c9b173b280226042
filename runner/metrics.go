package runner

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model"
)

// Metrics count what runners do, in the text format of Prometheus. One may be
// given to several runners. The zero value is ready.
type Metrics struct {
	mu     sync.Mutex
	values map[string]map[string]float64 // by family and labels
}

var _ io.WriterTo = (*Metrics)(nil)

// families are all metrics, in the order in which they are written.
var families = []struct{ name, kind, help string }{
	{"spool_sessions_served", "gauge", "Sessions that are claimed here."},
	{"spool_due_seconds_total", "counter", "How long claimed sessions had been due."},
	{"spool_claims_total", "counter", "Sessions claimed."},
	{"spool_sweeps_total", "counter", "Sweeps for old traces and sessions that were done here."},
	{"spool_traces_trimmed_total", "counter", "Sessions whose trace was trimmed."},
	{"spool_sessions_expired_total", "counter", "Sessions deleted for their age."},
	{"spool_store_sessions", "gauge", "Sessions in the store, as of the latest sweep, if it was done here; so are the next three."},
	{"spool_store_bytes", "gauge", "Bytes of the records and large values of all sessions."},
	{"spool_store_largest_session_bytes", "gauge", "Bytes of the largest session."},
	{"spool_store_oldest_session_seconds", "gauge", "How long ago the last append was to the session that is idle for longest."},
	{"spool_runs_started_total", "counter", "Runs started by agent and mode."},
	{"spool_runs_recovered_total", "counter", "Runs taken over from a lost owner by agent."},
	{"spool_runs_handed_over_total", "counter", "Runs left to the next owner between two phases by agent."},
	{"spool_runs_suspended_total", "counter", "Runs paused by agent and kind."},
	{"spool_runs_finished_total", "counter", "Runs ended by agent, outcome and code."},
	{"spool_steps_total", "counter", "Steps by agent and what became of them."},
	{"spool_model_calls_total", "counter", "Model calls by agent and code, empty for success."},
	{"spool_model_seconds_total", "counter", "How long model calls took by agent."},
	{"spool_model_tokens_total", "counter", "Tokens used by agent and kind."},
	{"spool_model_retries_total", "counter", "Model calls made again by agent and the code of the failed one."},
	{"spool_tool_calls_total", "counter", "Tool calls by tool and result."},
	{"spool_tool_seconds_total", "counter", "How long tool calls took by tool."},
}

func (m *Metrics) add(family string, by float64, labels ...string) {
	var b strings.Builder
	for i := 0; i+1 < len(labels); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s=%q", labels[i], labels[i+1])
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = map[string]map[string]float64{}
	}
	if m.values[family] == nil {
		m.values[family] = map[string]float64{}
	}
	m.values[family][b.String()] += by
}

// holds sets what the store holds; nil: another process knows.
func (m *Metrics) holds(u *spool.Usage) {
	gauges := map[string]float64{}
	if u != nil {
		gauges["spool_store_sessions"] = float64(u.Sessions)
		gauges["spool_store_bytes"] = float64(u.Bytes)
		gauges["spool_store_largest_session_bytes"] = float64(u.Largest)
		gauges["spool_store_oldest_session_seconds"] = 0
		if u.Sessions > 0 {
			gauges["spool_store_oldest_session_seconds"] = float64(u.Now-u.Oldest) / 1000
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = map[string]map[string]float64{}
	}
	for _, f := range families {
		if !strings.HasPrefix(f.name, "spool_store_") {
			continue
		}
		delete(m.values, f.name)
		if v, ok := gauges[f.name]; ok {
			m.values[f.name] = map[string]float64{"": v}
		}
	}
}

// WriteTo writes all metrics; those of a family are sorted by their labels.
func (m *Metrics) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	m.mu.Lock()
	for _, f := range families {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		labels := make([]string, 0, len(m.values[f.name]))
		for l := range m.values[f.name] {
			labels = append(labels, l)
		}
		slices.Sort(labels)
		for _, l := range labels {
			braced := ""
			if l != "" {
				braced = "{" + l + "}"
			}
			fmt.Fprintf(&b, "%s%s %v\n", f.name, braced, m.values[f.name][l])
		}
	}
	m.mu.Unlock()
	n, err := io.WriteString(w, b.String())
	return int64(n), err
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
			m.add("spool_sessions_served", 1)
			m.add("spool_claims_total", 1)
			m.add("spool_due_seconds_total", waited.Seconds())
		},
		Released:      func(string) { m.add("spool_sessions_served", -1) },
		RunStarted:    func(r agent.RunInfo) { m.add("spool_runs_started_total", 1, "agent", r.Agent, "mode", r.Mode) },
		RunRecovered:  func(r agent.RunInfo) { m.add("spool_runs_recovered_total", 1, "agent", r.Agent) },
		RunHandedOver: func(r agent.RunInfo) { m.add("spool_runs_handed_over_total", 1, "agent", r.Agent) },
		RunSuspended: func(r agent.RunInfo, kind string) {
			m.add("spool_runs_suspended_total", 1, "agent", r.Agent, "kind", kind)
		},
		RunFinished: func(r agent.RunInfo, _ error) {
			m.add("spool_runs_finished_total", 1, "agent", r.Agent, "outcome", string(r.Outcome), "code", r.Code)
		},
	}
	o.Observer = agent.Observer{
		StepCommitted: func(r agent.RunInfo, _ int) { m.add("spool_steps_total", 1, "agent", r.Agent, "result", "committed") },
		StepDiscarded: func(r agent.RunInfo, _ int, reason string) {
			m.add("spool_steps_total", 1, "agent", r.Agent, "result", reason)
		},
		ModelEnded: func(r agent.RunInfo, c agent.ModelCall) {
			m.add("spool_model_calls_total", 1, "agent", r.Agent, "code", codeOf(c.Err))
			m.add("spool_model_seconds_total", c.Duration.Seconds(), "agent", r.Agent)
			m.add("spool_model_tokens_total", float64(c.Usage.InputTokens), "agent", r.Agent, "kind", "input")
			m.add("spool_model_tokens_total", float64(c.Usage.OutputTokens), "agent", r.Agent, "kind", "output")
		},
		ModelRetry: func(r agent.RunInfo, c agent.ModelCall, _ time.Duration) {
			m.add("spool_model_retries_total", 1, "agent", r.Agent, "code", codeOf(c.Err))
		},
		ToolEnded: func(_ agent.RunInfo, c agent.ToolCall) {
			result := "ok"
			if c.Err != nil {
				result = "error"
			}
			m.add("spool_tool_calls_total", 1, "tool", c.Name, "result", result)
			m.add("spool_tool_seconds_total", c.Duration.Seconds(), "tool", c.Name)
		},
	}
	return o
}

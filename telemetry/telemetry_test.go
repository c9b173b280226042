package telemetry_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
	"github.com/spool-run/spool/telemetry"
	"github.com/spool-run/spool/tool"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// process is a runner with telemetry.
type process struct {
	*telemetry.Telemetry
	logs *spool.Logs
	stop func()
}

func start(t *testing.T, c *collector, store telemetry.FullStore, a *agent.Agent) *process {
	t.Helper()
	tel, err := telemetry.New(t.Context(), telemetry.Options{Endpoint: c.URL, Version: "1.2",
		Model: func(agent string) (string, string) { return "openai", "gpt-" + agent }})
	if err != nil {
		t.Fatal(err)
	}
	logs := spool.NewLogs(tel.Store(store), nil)
	r, err := runner.New(logs, []*agent.Agent{a}, &runner.Options{Observer: tel.Observer(), LeaseTTL: 5e9})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	p := &process{Telemetry: tel, logs: logs, stop: func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := logs.Close(); err != nil {
			t.Error(err)
		}
		if err := tel.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}}
	t.Cleanup(p.stop)
	return p
}

// secret is what nobody but the log is to be told.
const secret = "tell-nobody"

func say(t *testing.T, logs *spool.Logs) {
	t.Helper()
	if _, err := runner.Execute(t.Context(), logs, runner.Input{Session: "s", CommandID: "m1", Message: runner.Text(secret + " said").Message}); err != nil {
		t.Fatal(err)
	}
}

func result(t *testing.T, logs *spool.Logs) *runner.Result {
	t.Helper()
	h, err := runner.Execute(t.Context(), logs, runner.Input{Session: "s", CommandID: "m1", Message: runner.Text(secret + " said").Message})
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func within(t *testing.T, c *collector, child, parent *tracepb.Span) {
	t.Helper()
	if !bytes.Equal(child.ParentSpanId, parent.SpanId) || !bytes.Equal(child.TraceId, parent.TraceId) {
		t.Errorf("%q is not a child of %q:\n%s", child.Name, parent.Name, c.tree())
	}
	if child.StartTimeUnixNano < parent.StartTimeUnixNano-1e6 || child.EndTimeUnixNano < child.StartTimeUnixNano {
		t.Errorf("%q begins before %q, or ends before it begins", child.Name, parent.Name)
	}
}

func has(t *testing.T, s *tracepb.Span, want map[string]string) {
	t.Helper()
	got := attrs(s.Attributes)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %s is %q, want %q", s.Name, k, got[k], v)
		}
	}
}

// A run is a trace: its steps, model calls, tool calls and sub-agents are spans in it, with
// the attributes of the conventions, and nothing of what was said. Calls of the store are
// metrics.
func TestRunIsATrace(t *testing.T) {
	helper := &agent.Agent{Name: "helper", Model: scripted.New(&scripted.Options{
		Default: scripted.Steps(scripted.Say(scripted.Text(secret + " helped"))),
	})}
	lead := &agent.Agent{
		Name: "lead",
		Tools: []tool.Tool{
			agent.SubAgent(helper, agent.SubAgentOptions{Description: "Helps."}),
			tool.New("broken", "Fails.", func(tool.Context, struct{}) (string, error) { return "", errors.New(secret + " failed") }),
		},
		Model: scripted.New(&scripted.Options{Default: scripted.Steps(
			scripted.Say(scripted.Calls(
				scripted.ToolCall{ID: "c1", Name: "subagent__helper", Arguments: `{"task":"` + secret + `"}`},
				scripted.ToolCall{ID: "c2", Name: "broken", Arguments: `{}`})),
			scripted.Say(scripted.Text(secret+" answered")))}),
	}
	c := newCollector(t)
	p := start(t, c, memstore.New(nil), lead)
	say(t, p.logs)
	run := result(t, p.logs).RunID
	p.stop()

	root := c.one(t, "invoke_agent lead")
	if len(root.ParentSpanId) != 0 {
		t.Error("the run's span has a parent")
	}
	has(t, root, map[string]string{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "lead", "gen_ai.conversation.id": "s",
		"spool.run.id": run, "spool.run.outcome": "completed", "spool.run.steps": "2", "spool.run.recovered": "false"})
	steps := c.named("step")
	slices.SortFunc(steps, func(a, b *tracepb.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	if len(steps) != 3 {
		t.Fatalf("%d steps:\n%s", len(steps), c.tree())
	}
	first, below, second := steps[0], steps[1], steps[2]
	within(t, c, first, root)
	within(t, c, second, root)
	tool := c.one(t, "execute_tool broken")
	within(t, c, tool, first)
	has(t, tool, map[string]string{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "broken", "gen_ai.tool.call.id": "c2", "error.type": "_OTHER"})
	if tool.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Error("the failed call is not marked")
	}
	within(t, c, c.one(t, "execute_tool subagent__helper"), first)
	child := c.one(t, "invoke_agent helper")
	within(t, c, child, first)
	within(t, c, below, child)
	within(t, c, c.one(t, "chat gpt-helper"), below)
	calls := c.named("chat gpt-lead")
	if len(calls) != 2 {
		t.Fatalf("%d model calls", len(calls))
	}
	for _, call := range calls {
		has(t, call, map[string]string{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-lead"})
		if call.Kind != tracepb.Span_SPAN_KIND_CLIENT || attrs(call.Attributes)["gen_ai.response.finish_reasons"] == "" {
			t.Errorf("%v", call)
		}
	}
	if !c.services["spool"] {
		t.Errorf("services: %v", c.services)
	}
	stored := map[string]uint64{}
	for _, p := range c.metrics["spool.store.call.duration"] {
		stored[attrs(p.Attributes)["spool.store.call"]] += p.Count
	}
	if stored["append"] < 5 || stored["claim"] < 1 || stored["wait"] != 0 {
		t.Errorf("store calls: %v", stored)
	}
	if n := c.metrics["gen_ai.client.operation.duration"]; len(n) != 2 {
		t.Errorf("model calls: %v", n)
	}
	for _, b := range c.bodies {
		if bytes.Contains(b, []byte(secret)) {
			t.Error("what was said was exported")
		}
	}
}

// blocking is a model whose answer does not come while its context lives.
type blocking struct{ asked chan struct{} }

func (m blocking) Stream(ctx context.Context, _ *model.Request) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		if !yield(model.TextDelta{ID: "1", Delta: "begun"}, nil) {
			return
		}
		m.asked <- struct{}{}
		<-ctx.Done()
		yield(nil, ctx.Err())
	}
}

// A process that takes a run over continues its trace. The trace has one first span, by the
// process with which the run ends.
func TestTakenOverRunIsOneTrace(t *testing.T) {
	c := newCollector(t)
	store := memstore.New(nil)
	asked := make(chan struct{}, 1)
	lost := start(t, c, store, &agent.Agent{Name: "lead", Model: blocking{asked}})
	say(t, lost.logs)
	<-asked
	lost.stop()
	if spans := c.named("invoke_agent lead"); len(spans) != 0 {
		t.Errorf("the run has not ended, and its span was sent:\n%s", c.tree())
	}
	next := start(t, c, store, &agent.Agent{Name: "lead", Model: scripted.New(&scripted.Options{Default: scripted.Steps(scripted.Say(scripted.Text("done")))})})
	result(t, next.logs)
	next.stop()
	root := c.one(t, "invoke_agent lead")
	has(t, root, map[string]string{"spool.run.outcome": "completed", "spool.run.recovered": "true"})
	steps := c.named("step")
	if len(steps) != 2 {
		t.Fatal(c.tree())
	}
	for _, s := range steps {
		within(t, c, s, root)
	}
}

// So does one to which a run is handed over in good order, which is not told that it began.
func TestHandedOverRunIsOneTrace(t *testing.T) {
	c := newCollector(t)
	r := agent.RunInfo{Session: "s", Agent: "lead", RunID: "r", Started: time.Now()}
	for i, events := range []func(runner.Observer){
		func(o runner.Observer) {
			o.RunStarted(r)
			o.StepStarted(r, 1)
			o.ToolStarted(r, agent.ToolCall{ID: "c1", Name: "slow"})
			o.ToolEnded(r, agent.ToolCall{ID: "c1", Name: "slow"})
			o.StepCommitted(r, 1)
			o.RunHandedOver(r)
			o.Released("s")
		},
		func(o runner.Observer) {
			o.StepStarted(r, 2)
			o.StepCommitted(r, 2)
			r.Outcome, r.Steps = chunk.OutcomeCompleted, 2
			o.RunFinished(r, nil)
			o.Released("s")
		},
	} {
		tel, err := telemetry.New(t.Context(), telemetry.Options{Endpoint: c.URL})
		if err != nil {
			t.Fatal(err)
		}
		events(tel.Observer())
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(c.named("invoke_agent lead")); n != i {
			t.Errorf("%d first spans after %d owners:\n%s", n, i+1, c.tree())
		}
	}
	root := c.one(t, "invoke_agent lead")
	has(t, root, map[string]string{"spool.run.outcome": "completed", "spool.run.recovered": "false", "spool.run.steps": "2"})
	for _, s := range c.named("step") {
		within(t, c, s, root)
	}
	if len(c.named("step")) != 2 || len(c.named("execute_tool slow")) != 1 {
		t.Error(c.tree())
	}
}

// A request continues the trace of its caller, and is linked with the run that answers it.
func TestRequestContinuesTheCallersTrace(t *testing.T) {
	c := newCollector(t)
	p := start(t, c, memstore.New(nil), &agent.Agent{Name: "lead", Model: scripted.New(&scripted.Options{Default: scripted.Steps(scripted.Say(scripted.Text("done")))})})
	web := httptest.NewServer(p.Handler(server.New(p.logs, nil)))
	defer web.Close()
	const caller, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	do := func(method, path, body string) {
		req, err := http.NewRequestWithContext(t.Context(), method, web.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Traceparent", "00-"+caller+"-"+parent+"-01")
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d, %v", path, res.StatusCode, err)
		}
	}
	do(http.MethodPost, "/api/chat/s", `{"id":"s","trigger":"submit-message","message":{"id":"m1","role":"user","parts":[{"type":"text","text":"`+secret+`"}]}}`)
	do(http.MethodGet, "/api/chat/s/snapshot", "")
	p.stop()
	request, run := c.one(t, "POST"), c.one(t, "invoke_agent lead")
	if hex.EncodeToString(request.TraceId) != caller || hex.EncodeToString(request.ParentSpanId) != parent {
		t.Errorf("the request's span is not in the caller's trace:\n%s", c.tree())
	}
	has(t, request, map[string]string{"http.request.method": "POST", "url.path": "/api/chat/s", "http.response.status_code": "200"})
	if len(run.Links) != 1 || !bytes.Equal(run.Links[0].SpanId, request.SpanId) || len(request.Links) != 1 || !bytes.Equal(request.Links[0].SpanId, run.SpanId) {
		t.Errorf("links: %v, %v", run.Links, request.Links)
	}
	if len(c.named("GET")) != 0 {
		t.Error("reading has a span")
	}
}

// A measured store has the roles of the store, and no others.
func TestMeasuredStoreHasItsRoles(t *testing.T) {
	tel, err := telemetry.New(t.Context(), telemetry.Options{Endpoint: newCollector(t).URL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tel.Shutdown(t.Context()) }()
	file, err := sqlitestore.Open(filepath.Join(t.TempDir(), "s.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, s := range []telemetry.FullStore{file, memstore.New(nil)} {
		m := tel.Store(s)
		_, probes := s.(spool.Prober)
		p, measured := m.(spool.Prober)
		_, volatile := s.(spool.Volatile)
		_, kept := m.(spool.Volatile)
		if probes != measured || volatile != kept {
			t.Errorf("%T: %v, %v; %v, %v", s, probes, measured, volatile, kept)
		}
		if measured {
			if err := p.Probe(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, err := m.Head(t.Context(), "s"); !errors.Is(err, spool.ErrNotFound) {
			t.Error(err)
		}
	}
}

// What is not supported is refused, and not replaced by something else.
func TestConfiguration(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_SDK_DISABLED"} {
		t.Setenv(name, "")
	}
	if telemetry.Configured() {
		t.Error("configured by nothing")
	}
	for _, env := range [][2]string{{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, {"OTEL_TRACES_EXPORTER", "zipkin"}} {
		t.Run(env[0], func(t *testing.T) {
			t.Setenv(env[0], env[1])
			if _, err := telemetry.New(t.Context(), telemetry.Options{}); err == nil || !strings.Contains(err.Error(), env[0]+"="+env[1]) {
				t.Error(err)
			}
		})
	}
	if _, err := telemetry.New(t.Context(), telemetry.Options{Endpoint: "localhost:4318"}); err == nil {
		t.Error("no error")
	}
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_SERVICE_NAME", "mine")
	if !telemetry.Configured() {
		t.Error("not configured by the environment")
	}
	tel, err := telemetry.New(t.Context(), telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := agent.RunInfo{Session: "s", Agent: "a", RunID: "r", Outcome: chunk.OutcomeFailed, Code: "limit"}
	tel.Observer().RunStarted(r)
	tel.Observer().RunFinished(r, errors.New(secret))
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := c.one(t, "invoke_agent a")
	has(t, s, map[string]string{"error.type": "limit", "spool.run.outcome": "failed"})
	if s.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || !c.services["mine"] {
		t.Errorf("%v, %v", s, c.services)
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	if telemetry.Configured() {
		t.Error("disabled, and configured")
	}
}

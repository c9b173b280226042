package telemetry

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/runner"
)

// run is a session's open run and those of its sub-agents.
type run struct {
	mu     sync.Mutex
	agents map[string]*agentSpans // by session
}

// agentSpans are the open spans of one agent's run.
type agentSpans struct {
	run   span // of the whole run
	step  span
	model span
	tools map[string]span
	last  time.Time // when something of it ended
}

// span is a span with the context in which its children begin; the zero value is none.
type span struct {
	ctx context.Context
	trace.Span
}

// end ends a span, if there is one, and forgets it.
func (s *span) end(attrs ...attribute.KeyValue) {
	if s.Span != nil {
		s.SetAttributes(attrs...)
		s.End()
	}
	*s = span{}
}

func (t *Telemetry) begin(ctx context.Context, name string, o ...trace.SpanStartOption) span {
	ctx, s := t.tracer.Start(ctx, name, o...)
	return span{ctx, s}
}

// Observer returns what [runner.Options].Observer is to be, or to call.
func (t *Telemetry) Observer() runner.Observer {
	return runner.Observer{
		RunStarted:    func(r agent.RunInfo) { t.open(r, false) },
		RunRecovered:  func(r agent.RunInfo) { t.open(r, true) },
		RunHandedOver: func(r agent.RunInfo) { t.leave(r.Session) },
		Released:      t.leave,
		RunSuspended: func(r agent.RunInfo, kind string) {
			t.close(r, attribute.String("spool.run.suspended", kind))
		},
		RunFinished: func(r agent.RunInfo, _ error) { t.close(r) },
		Observer: agent.Observer{
			StepStarted:   t.stepStarted,
			StepCommitted: func(r agent.RunInfo, _ int) { t.stepEnded(r) },
			StepDiscarded: func(r agent.RunInfo, _ int, reason string) {
				t.stepEnded(r, attribute.String("spool.step.discarded", reason))
			},
			ModelStarted: t.modelStarted,
			ModelEnded:   t.modelEnded,
			ToolStarted:  t.toolStarted,
			ToolEnded:    t.toolEnded,
		},
	}
}

// open begins a run's trace, or continues it if the run has been another owner's. Its
// first span is sent by the owner with which the run ends.
func (t *Telemetry) open(r agent.RunInfo, recovered bool) {
	var g given
	g.trace, g.span = runIDs(r.Session, r.RunID)
	attrs := append(agentAttributes(r), attribute.String("spool.run.id", r.RunID), attribute.String("spool.turn.id", r.TurnID),
		attribute.String("spool.run.mode", r.Mode), attribute.Bool("spool.run.recovered", recovered))
	o := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(r.Started), trace.WithAttributes(attrs...)}
	request := t.requests.take(r.Session)
	if request != nil {
		o = append(o, trace.WithLinks(trace.Link{SpanContext: request.SpanContext()}))
	}
	s := t.begin(context.WithValue(context.Background(), idsKey{}, g), "invoke_agent "+r.Agent, o...)
	if request != nil {
		request.AddLink(trace.Link{SpanContext: s.SpanContext()})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs[r.Session] = &run{agents: map[string]*agentSpans{r.Session: {run: s, tools: map[string]span{}}}}
}

func agentAttributes(r agent.RunInfo) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "invoke_agent"),
		attribute.String("gen_ai.agent.name", r.Agent),
		attribute.String("gen_ai.conversation.id", r.Session),
	}
}

// known has the run be known, which another owner may have handed over to this one.
func (t *Telemetry) known(r agent.RunInfo) {
	if chunk.IsChild(r.Session) {
		return
	}
	t.mu.Lock()
	known := t.runs[r.Session] != nil
	t.mu.Unlock()
	if !known {
		t.open(r, false)
	}
}

// close ends a run's trace.
func (t *Telemetry) close(r agent.RunInfo, attrs ...attribute.KeyValue) {
	t.known(r)
	l := t.forget(r.Session)
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.agents[r.Session]
	l.endAll(r.Session)
	own.run.SetAttributes(attribute.Int("spool.run.steps", r.Steps),
		attribute.Int64("gen_ai.usage.input_tokens", r.Usage.InputTokens), attribute.Int64("gen_ai.usage.output_tokens", r.Usage.OutputTokens))
	if r.Outcome != "" {
		own.run.SetAttributes(attribute.String("spool.run.outcome", string(r.Outcome)))
	}
	if r.Code != "" {
		own.run.SetAttributes(attribute.String("error.type", r.Code))
	}
	if r.Outcome == chunk.OutcomeFailed {
		own.run.SetStatus(codes.Error, r.Code)
	}
	own.run.end(attrs...)
}

// leave forgets a run that goes on elsewhere. What was open of it here is sent, except for
// the trace's first span.
func (t *Telemetry) leave(session string) {
	t.requests.take(session)
	if l := t.forget(session); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.endAll(session)
	}
}

func (t *Telemetry) forget(session string) *run {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.runs[session]
	delete(t.runs, session)
	return l
}

// endAll ends every span but that of the session's own run. Sub-agents' runs ended when
// they were last heard of.
func (l *run) endAll(session string) {
	for id, a := range l.agents {
		a.endStep()
		if id != session && a.run.Span != nil {
			if a.last.IsZero() {
				a.last = time.Now()
			}
			a.run.End(trace.WithTimestamp(a.last))
			a.run = span{}
		}
	}
}

// endStep ends what is open of a step.
func (a *agentSpans) endStep(attrs ...attribute.KeyValue) {
	a.model.end()
	for id, s := range a.tools {
		s.end()
		delete(a.tools, id)
	}
	a.step.end(attrs...)
	a.last = time.Now()
}

// with calls fn with the spans of an agent's run, if the session's run is known.
func (t *Telemetry) with(r agent.RunInfo, fn func(a *agentSpans)) {
	root := chunk.RootID(r.Session)
	t.mu.Lock()
	l := t.runs[root]
	t.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(t.spans(l, root, r))
}

// spans returns the spans of an agent's run. A sub-agent's run is a child of what its
// parent does.
func (t *Telemetry) spans(l *run, root string, r agent.RunInfo) *agentSpans {
	if a := l.agents[r.Session]; a != nil {
		return a
	}
	above := r.Session[:strings.LastIndexByte(r.Session, '.')]
	for above != root && l.agents[above] == nil {
		above = above[:strings.LastIndexByte(above, '.')]
	}
	parent := l.agents[above]
	within := parent.run
	if parent.step.Span != nil {
		within = parent.step
	}
	a := &agentSpans{tools: map[string]span{}}
	a.run = t.begin(within.ctx, "invoke_agent "+r.Agent, trace.WithAttributes(append(agentAttributes(r), attribute.String("spool.run.id", r.RunID))...))
	l.agents[r.Session] = a
	return a
}

func (t *Telemetry) stepStarted(r agent.RunInfo, step int) {
	t.known(r)
	t.with(r, func(a *agentSpans) {
		a.endStep() // one that began again
		a.step = t.begin(a.run.ctx, "step", trace.WithAttributes(attribute.Int("spool.step", step)))
	})
}

func (t *Telemetry) stepEnded(r agent.RunInfo, attrs ...attribute.KeyValue) {
	t.with(r, func(a *agentSpans) { a.endStep(attrs...) })
}

// within is the context for what an agent does now.
func (a *agentSpans) within() context.Context {
	if a.step.Span != nil {
		return a.step.ctx
	}
	return a.run.ctx
}

// modelAttributes are those of spans and metrics of a model call alike.
func (t *Telemetry) modelAttributes(r agent.RunInfo) (attrs []attribute.KeyValue, name string) {
	attrs = []attribute.KeyValue{attribute.String("gen_ai.operation.name", "chat")}
	if t.o.Model == nil {
		return attrs, ""
	}
	provider, name := t.o.Model(r.Agent)
	if provider != "" {
		attrs = append(attrs, attribute.String("gen_ai.provider.name", provider))
	}
	if name != "" {
		attrs = append(attrs, attribute.String("gen_ai.request.model", name))
	}
	return attrs, name
}

func (t *Telemetry) modelStarted(r agent.RunInfo, c agent.ModelCall) {
	t.known(r)
	attrs, name := t.modelAttributes(r)
	attrs = append(attrs, attribute.String("gen_ai.agent.name", r.Agent), attribute.String("gen_ai.conversation.id", r.Session),
		attribute.Int("spool.model.attempt", c.Attempt), attribute.Bool("spool.model.resumed", c.Resumed))
	t.with(r, func(a *agentSpans) {
		a.model.end()
		a.model = t.begin(a.within(), strings.TrimSpace("chat "+name), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	})
}

func (t *Telemetry) modelEnded(r agent.RunInfo, c agent.ModelCall) {
	attrs, _ := t.modelAttributes(r)
	ctx := context.Background()
	count := func(kind string, n int64) {
		if n > 0 {
			t.tokens.Record(ctx, n, metric.WithAttributes(append(attrs[:len(attrs):len(attrs)], attribute.String("gen_ai.token.type", kind))...))
		}
	}
	count("input", c.Usage.InputTokens)
	count("output", c.Usage.OutputTokens)
	if c.Err != nil {
		attrs = append(attrs, attribute.String("error.type", codeOf(c.Err)))
	}
	t.modelSeconds.Record(ctx, c.Duration.Seconds(), metric.WithAttributes(attrs...))
	t.with(r, func(a *agentSpans) {
		if a.model.Span == nil {
			return
		}
		failed(a.model, c.Err)
		if c.FinishReason != "" {
			a.model.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", []string{c.FinishReason}))
		}
		a.model.end(attribute.Int64("gen_ai.usage.input_tokens", c.Usage.InputTokens), attribute.Int64("gen_ai.usage.output_tokens", c.Usage.OutputTokens))
		a.last = time.Now()
	})
}

func (t *Telemetry) toolStarted(r agent.RunInfo, c agent.ToolCall) {
	t.known(r)
	t.with(r, func(a *agentSpans) {
		a.tools[c.ID] = t.begin(a.within(), "execute_tool "+c.Name, trace.WithAttributes(attribute.String("gen_ai.operation.name", "execute_tool"),
			attribute.String("gen_ai.tool.name", c.Name), attribute.String("gen_ai.tool.call.id", c.ID)))
	})
}

func (t *Telemetry) toolEnded(r agent.RunInfo, c agent.ToolCall) {
	t.with(r, func(a *agentSpans) {
		s, ok := a.tools[c.ID]
		if !ok {
			return
		}
		delete(a.tools, c.ID)
		failed(s, c.Err)
		s.end()
		a.last = time.Now()
	})
}

// failed marks the span of what has failed. An error's text may have in it what was said.
func failed(s span, err error) {
	if err != nil {
		s.SetAttributes(attribute.String("error.type", codeOf(err)))
		s.SetStatus(codes.Error, "")
	}
}

// other is the type of errors without a code, as the conventions have it.
const other = "_OTHER"

func codeOf(err error) string {
	if e, ok := errors.AsType[*model.Error](err); ok && e.Code != "" {
		return e.Code
	}
	switch code := chunk.CodeOf(err); {
	case code != "":
		return code
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return other
}

package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/anthropic"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/tool"
)

// events notes what an observer is told, a line each.
type events struct {
	mu    sync.Mutex
	lines []string
}

func (e *events) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, fmt.Sprintf(format, args...))
}

func (e *events) observer() runner.Observer {
	return runner.Observer{
		Claimed:      func(session string, _ time.Duration) { e.add("claimed %s", session) },
		Released:     func(session string) { e.add("released %s", session) },
		RunStarted:   func(r agent.RunInfo) { e.add("run %s %s", r.Agent, r.Mode) },
		RunRecovered: func(r agent.RunInfo) { e.add("recovered %s", r.Agent) },
		RunSuspended: func(r agent.RunInfo, kind string) { e.add("suspended %s", kind) },
		RunFinished:  func(r agent.RunInfo, err error) { e.add("finished %s %s %d", r.Outcome, r.Code, r.Steps) },
		Observer: agent.Observer{
			StepStarted:   func(_ agent.RunInfo, step int) { e.add("step %d", step) },
			StepCommitted: func(_ agent.RunInfo, step int) { e.add("committed %d", step) },
			StepDiscarded: func(_ agent.RunInfo, step int, reason string) { e.add("discarded %d %s", step, reason) },
			ModelStarted:  func(_ agent.RunInfo, c agent.ModelCall) { e.add("model %d.%d", c.Step, c.Attempt) },
			ModelEnded: func(_ agent.RunInfo, c agent.ModelCall) {
				e.add("answer %s %d %v %v", c.FinishReason, c.Usage.OutputTokens, c.Duration, c.Err != nil)
			},
			ModelRetry:  func(_ agent.RunInfo, c agent.ModelCall, d time.Duration) { e.add("again %v", d > 0) },
			ToolStarted: func(_ agent.RunInfo, c agent.ToolCall) { e.add("tool %s", c.Name) },
			ToolEnded:   func(_ agent.RunInfo, c agent.ToolCall) { e.add("outcome %s %v %v", c.Name, c.Duration, c.Err) },
		},
	}
}

func (e *events) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.lines, "\n")
}

// eventful is a scene in which everything happens: an answer that breaks off, a
// tool that fails, a pause.
func eventful(c scripted.Call) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		time.Sleep(time.Second)
		usage := model.UsageUpdate{Usage: chunk.Usage{InputTokens: 10, OutputTokens: 3}}
		switch {
		case c.Round == 0 && !slices.ContainsFunc(c.Request.Tools, func(t model.ToolSpec) bool { return t.Description == "again" }):
			c.Request.Tools[0].Description = "again" // the next attempt has the same request
			_ = yield(model.TextDelta{Delta: "hm"}, nil) && yield(usage, nil) &&
				yield(nil, &model.Error{Code: model.CodeTruncated, Message: "cut", Retryable: true})
		case c.Round == 0:
			_ = yield(usage, nil) && yield(model.ToolCallEnd{ID: "a", Name: "fails"}, nil) && yield(model.ToolCallEnd{ID: "b", Name: "gated"}, nil) &&
				yield(model.Finish{Reason: "tool-calls"}, nil)
		default:
			_ = yield(usage, nil) && yield(model.TextDelta{Delta: "done"}, nil) && yield(model.Finish{Reason: "stop"}, nil)
		}
	}
}

// observed plays the scene.
func observed(w *world, o *runner.Options) {
	a := demo(map[string]scripted.Scene{"go": eventful})
	a.Tools = append(a.Tools, tool.With(tool.New("gated", "", func(tool.Context, struct{}) (int, error) {
		time.Sleep(2 * time.Second)
		return 0, nil
	}), tool.Options{Approval: true}))
	w.start(a, o)
	w.say("s", "u1", "go")
	f := w.fold("s")
	synctest.Wait() // the pause is over only when the session is released; an answer before that needs no claim
	w.command("s", &chunk.ToolApprovalResponse{CommandID: "ok", ApprovalID: f.Pending()[0].Approval.ID, Approved: true})
	w.fold("s")
	time.Sleep(time.Second)
}

func TestObserver(t *testing.T) {
	inWorld(t, func(w *world) {
		var e events
		var m runner.Metrics
		observed(w, &runner.Options{Observer: e.observer(), Metrics: &m})
		const want = `claimed s
run demo start
step 1
model 1.0
answer  3 1s true
discarded 1 model_retry
again true
step 1
model 1.1
answer tool-calls 3 1s false
tool fails
outcome fails 0s it did not work
suspended awaiting_approval
released s
claimed s
run demo approval
tool gated
outcome gated 2s <nil>
committed 1
step 2
model 2.0
answer stop 3 1s false
committed 2
finished completed  2
released s`
		if got := e.String(); got != want {
			t.Errorf("got\n%s", got)
		}
		text := scrape(t, &m)
		for _, line := range []string{
			"spool_sessions_served 0", "spool_claims_total 2",
			`spool_runs_started_total{agent="demo",mode="approval"} 1`, `spool_runs_suspended_total{agent="demo",kind="awaiting_approval"} 1`,
			`spool_runs_finished_total{agent="demo",code="",outcome="completed"} 1`,
			`spool_steps_total{agent="demo",result="committed"} 2`, `spool_steps_total{agent="demo",result="model_retry"} 1`,
			`spool_model_calls_total{agent="demo",code=""} 2`, `spool_model_calls_total{agent="demo",code="provider_truncated"} 1`,
			`spool_model_seconds_total{agent="demo"} 3`, `spool_model_tokens_total{agent="demo",kind="output"} 9`,
			`spool_model_retries_total{agent="demo",code="provider_truncated"} 1`,
			`spool_tool_calls_total{result="error",tool="fails"} 1`, `spool_tool_seconds_total{tool="gated"} 2`,
		} {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("no %s in\n%s", line, text)
			}
		}
	})
}

// What a logger is told names the run, and says nothing of what was said.
func TestRunsAreLogged(t *testing.T) {
	inWorld(t, func(w *world) {
		var out lockedBuffer
		w.relog(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		observed(w, nil)
		text := out.String()
		for _, msg := range []string{"claimed", "run started", "step started", "model called", "model answered", "model call retried", "step discarded",
			"tool called", "tool answered", "run suspended", "released", "step committed", "run finished"} {
			if !strings.Contains(text, fmt.Sprintf(`"msg":%q,"session":"s"`, msg)) {
				t.Errorf("%q is not logged", msg)
			}
		}
		if strings.Contains(text, "hm") || strings.Count(text, `"level":"INFO"`) != 2 {
			t.Error(text)
		}
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// relog gives the world's logs a logger.
func (w *world) relog(log *slog.Logger) {
	old := w.logs
	w.logs = spool.NewLogs(w.store, &spool.Options{Logger: log, NewID: func() string { return fmt.Sprintf("id-%06d", w.ids.Add(1)) }})
	*w.ends = append(*w.ends, func() { _ = w.logs.Close(); w.logs = old })
}

// No key reaches the log, a reader or a logger, however it comes back: a provider
// that repeats it, a model, a tool and a hook of the application that tell all.
func TestSecretsStayInside(t *testing.T) {
	const key, odd = "sk-live-0123456789abcdef", "correct-horse-battery"
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key") + " " + r.Header.Get("X-Team-Token") + " " + r.URL.RawQuery
		if !strings.Contains(said, key) || !strings.Contains(said, odd) {
			t.Errorf("the provider was sent %q", said)
		}
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("at once")) {
			w.WriteHeader(http.StatusUnauthorized)
		}
		problem, _ := json.Marshal(map[string]any{"error": map[string]string{"message": "who are you, " + said + "?", "type": "authentication_error"}})
		fmt.Fprintf(w, "event: error\ndata: %s\n\n", problem)
	}))
	defer provider.Close()
	base := strings.Replace(provider.URL, "http://", "http://user:"+odd+"@", 1) + "/v1?api_key=" + odd
	header := http.Header{"X-Team-Token": {odd}}
	told := fmt.Errorf("Get %q with Authorization: Bearer %s failed", base, key)
	agents := map[string]*agent.Agent{
		"openai":    {Model: openai.New(&openai.Options{APIKey: key, BaseURL: base, Model: "m", Header: header})},
		"responses": {Model: openai.NewResponses(&openai.Options{APIKey: key, BaseURL: base, Model: "m", Header: header})},
		"anthropic": {Model: anthropic.New(&anthropic.Options{APIKey: key, BaseURL: base, Model: "m", Header: header})},
		"custom":    {Model: failing{told}},
		"told":      {Model: failing{&model.Error{Code: model.CodeUnknown, Message: told.Error(), Retryable: true, Err: told}}},
		"panics":    {Model: failing{nil}},
		"tool": {Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"at": useTool(call("a", "tells", "{}"))}}),
			Tools: []tool.Tool{tool.New("tells", "", func(tool.Context, struct{}) (int, error) { return 0, told })}},
		"hook": {Model: scripted.New(nil), Hooks: &agent.Hooks{BeforeModel: func(agent.HookContext, *model.Request) error { return told }}},
	}
	for name, a := range agents {
		for _, text := range []string{"at once", "in the stream"} {
			t.Run(name+" "+text, func(t *testing.T) {
				a := *a
				a.Name, a.MaxRetries = "demo", -1
				var out lockedBuffer
				store := memstore.New(nil)
				logs := spool.NewLogs(store, &spool.Options{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
				defer logs.Close()
				r, err := runner.New(logs, []*agent.Agent{&a}, nil)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- r.Run(ctx) }()
				stop := sync.OnceFunc(func() { cancel(); <-done })
				defer stop()
				g, err := logs.Log("s")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := g.Command(t.Context(), spool.Row{}, say("u1", text)); err != nil {
					t.Fatal(err)
				}
				finished := false
				for rec, err := range g.Records(t.Context(), spool.ReadOptions{}) {
					if err != nil {
						t.Fatal(err)
					}
					finished = finished || rec.Type == chunk.TypeRunFinished
					if bytes.Contains(rec.Data, []byte(key)) || bytes.Contains(rec.Data, []byte(odd)) {
						t.Errorf("the log has %s", rec.Data)
					}
				}
				stop()
				if text := out.String(); !finished || strings.Contains(text, key) || strings.Contains(text, odd) {
					t.Errorf("finished: %v, logged:\n%s", finished, text)
				}
			})
		}
	}
}

// failing is an application's own model.
type failing struct{ err error }

func (f failing) Stream(context.Context, *model.Request) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		if f.err == nil {
			panic("with password=correct-horse-battery")
		}
		yield(nil, f.err)
	}
}

// Who may not see a cause can still tell failures apart.
func TestForeignErrorsAreGeneric(t *testing.T) {
	inWorld(t, func(w *world) {
		a := demo(nil)
		a.Model = failing{errors.New("connection to 10.0.0.7 refused")}
		told := make(chan error, 1)
		w.start(a, &runner.Options{Observer: runner.Observer{RunFinished: func(_ agent.RunInfo, err error) { told <- err }}})
		w.say("s", "u1", "x")
		end := w.finished("s")[0]
		if end.Code != "agent_failed" || end.Error != "the agent failed" || end.Recoverable {
			t.Errorf("%+v", end)
		}
		if got := <-told; got == nil || !strings.Contains(got.Error(), "10.0.0.7") {
			t.Errorf("the observer was told %v", got)
		}
	})
}

// An application whose own store fails does not look like ours: the run ends.
func TestForeignStoresMayFail(t *testing.T) {
	theirs := spool.ErrUnavailable.With("s", errors.New("theirs"))
	for name, a := range map[string]*agent.Agent{
		"model": {Model: failing{theirs}},
		"hook":  {Model: scripted.New(nil), Hooks: &agent.Hooks{AfterModel: func(agent.HookContext, agent.Answer) error { return theirs }}},
		"tool": {Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"go": useTool(call("a", "tells", "{}"))}}),
			Tools: []tool.Tool{tool.New("tells", "", func(tool.Context, struct{}) (int, error) { return 0, tool.Fatal(theirs) })}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a.Name = "demo"
				w.start(a, nil)
				w.say("s", "u1", "go")
				if f := w.fold("s"); f.Status != chunk.StatusFailed || f.LastTurn().LastRun().Recoveries > 0 {
					t.Errorf("%s %+v", f.Status, f.Error)
				}
			})
		})
	}
}

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
)

func TestDescribe(t *testing.T) {
	cause := errors.New("dial redis://admin:hunter2@10.0.0.7: refused")
	for name, tt := range map[string]struct {
		err  error
		want chunk.ErrorInfo
	}{
		"model": {fmt.Errorf("step 2: %w", &model.Error{Code: model.CodeOverloaded, Message: "the provider is busy", Retryable: true, Err: cause}),
			chunk.ErrorInfo{Error: "the provider is busy", Code: "provider_overloaded", Recoverable: true}},
		"a model that tells": {&model.Error{Code: "provider_mine", Message: "no answer to Bearer abcdef0123456789"},
			chunk.ErrorInfo{Error: "no answer to [redacted]", Code: "provider_mine"}},
		"spool":   {spool.ErrUnavailable.With("s", cause), chunk.ErrorInfo{Error: "the store cannot be reached", Code: "unavailable", Recoverable: true}},
		"tool":    {agent.ErrToolFatal.With("s", errors.New("no licence")), chunk.ErrorInfo{Error: "a tool ended the run: no licence", Code: "tool_fatal"}},
		"hook":    {agent.ErrHookFailed.With("s", cause), chunk.ErrorInfo{Error: "a hook ended the run", Code: "hook_failed"}},
		"foreign": {cause, chunk.ErrorInfo{Error: "the agent failed", Code: "agent_failed"}},
		"network": {&net.DNSError{Err: "no such host", Name: "internal.example", Server: "10.0.0.1"}, chunk.ErrorInfo{Error: "the agent failed", Code: "agent_failed"}},
		"context": {context.DeadlineExceeded, chunk.ErrorInfo{Error: "the agent failed", Code: "agent_failed"}},
	} {
		if got := agent.Describe(tt.err); got != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// panicky is a tool and a model of which everything panics that may be called.
type panicky struct{}

func (panicky) Spec() tool.Spec {
	return tool.Spec{Name: "panicky", Input: json.RawMessage(`{"type":"object"}`)}
}
func (panicky) Check(json.RawMessage) error { panic("the check") }
func (panicky) Call(tool.Context, json.RawMessage) (json.RawMessage, error) {
	panic("the call")
}
func (panicky) Stream(context.Context, *model.Request) iter.Seq2[model.Part, error] {
	panic("the model")
}
func (panicky) Resume(context.Context, string) iter.Seq2[model.Part, error] { panic("resume") }
func (panicky) CancelAnswer(context.Context, string) error                  { panic("cancel") }

// What panics fails what it was called for.
func TestPanicsAreContained(t *testing.T) {
	m := &answers{steps: []scripted.Step{toolCall("c", "panicky", `{}`), text("done")}}
	r, l := begin(t, "go")
	result, err := run(t.Context(), &agent.Agent{Name: "a", Model: m, Tools: []tool.Tool{panicky{}}}, r)
	if err != nil || result.Outcome != chunk.OutcomeCompleted {
		t.Fatalf("%+v, %v", result, err)
	}
	for _, p := range l.fold.Messages[1].Parts {
		if p.Tool != nil && (p.Tool.State != chunk.ToolFailed || p.Tool.Error != "the tool panicked") {
			t.Errorf("%+v", p.Tool)
		}
	}
	r, _ = begin(t, "go")
	if _, _, err := (&agent.Agent{Name: "a", Model: panicky{}}).Drive(t.Context(), r, false); err == nil || agent.Describe(err).Code != "agent_failed" {
		t.Errorf("the model: %v", err)
	}
	if err := (&agent.Agent{Name: "a", Model: panicky{}}).Abandon(t.Context(), r.Seams, "cursor"); err == nil {
		t.Error("nothing is said of the panic")
	}
}

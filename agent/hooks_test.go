package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
)

type counts struct {
	Runs, Steps, Models, Answers, Tools, Results, Done, Ended int
}

// note makes hooks that tell of themselves, count themselves in the state and
// say so.
func note(who string, told *[]string) *agent.Hooks {
	at := func(h agent.HookContext, point string, count func(*counts) *int) error {
		*told = append(*told, who+" "+point)
		if who != "agent" {
			return nil
		}
		if err := h.Emit(point, h.Step, nil); err != nil {
			return err
		}
		return tool.UpdateState(h.Context, func(c *counts) error { *count(c)++; return nil })
	}
	return &agent.Hooks{
		BeforeRun:  func(h agent.HookContext) error { return at(h, "before-run", func(c *counts) *int { return &c.Runs }) },
		BeforeStep: func(h agent.HookContext) error { return at(h, "before-step", func(c *counts) *int { return &c.Steps }) },
		BeforeModel: func(h agent.HookContext, r *model.Request) error {
			r.Instructions += who + " "
			return at(h, "before-model", func(c *counts) *int { return &c.Models })
		},
		AfterModel: func(h agent.HookContext, a agent.Answer) error {
			return at(h, "after-model", func(c *counts) *int { return &c.Answers })
		},
		BeforeTool: func(h agent.HookContext, c *agent.ToolCall) error {
			return at(h, "before-tool", func(c *counts) *int { return &c.Tools })
		},
		AfterTool: func(h agent.HookContext, c *agent.ToolCall) error {
			return at(h, "after-tool", func(c *counts) *int { return &c.Results })
		},
		AfterStep: func(h agent.HookContext, r agent.Result) error {
			return at(h, "after-step", func(c *counts) *int { return &c.Done })
		},
		AfterRun: func(h agent.HookContext, e agent.RunEnd) {
			_ = at(h, "after-run", func(c *counts) *int { return &c.Ended })
		},
	}
}

var echo = tool.New("echo", "", func(_ tool.Context, in struct{ Say string }) (string, error) {
	if in.Say == "fail" {
		return "", errors.New("it failed")
	}
	return in.Say, nil
})

func TestHooksAreCalledInOrder(t *testing.T) {
	var told []string
	m := &answers{steps: []scripted.Step{toolCall("c", "echo", `{"Say":"x"}`), text("done")}}
	a := &agent.Agent{Name: "a", Instructions: "be ", Model: m, Tools: []tool.Tool{echo}, Hooks: note("agent", &told)}
	r, l := begin(t, "go")
	r.Inherited = []*agent.Hooks{note("parent", &told)}
	r.Hooks = note("options", &told)
	timed(r)
	result, err := run(t.Context(), a, r)
	if err != nil {
		t.Fatal(err)
	}
	a.AfterRun(t.Context(), r, agent.RunEnd{Outcome: result.Outcome})
	var want []string
	for _, point := range strings.Fields("before-run before-step before-model after-model before-tool after-tool after-step " +
		"before-step before-model after-model after-step after-run") {
		for _, who := range []string{"parent", "agent", "options"} {
			want = append(want, who+" "+point)
		}
	}
	if !slices.Equal(told, want) {
		t.Errorf("got %q", told)
	}
	if got := m.requests[1].Instructions; got != "be parent agent options " {
		t.Errorf("the request says %q", got)
	}
	var c counts
	if err := json.Unmarshal(l.fold.State, &c); err != nil || c != (counts{1, 2, 2, 2, 1, 1, 2, 1}) {
		t.Errorf("%+v, %v", c, err)
	}
	const records = "step_started custom state_patch custom state_patch custom state_patch " + // before the model
		"tool_arg_stream_start tool_arg_stream_delta tool_arg_stream_end custom state_patch assistant_message " +
		"custom state_patch tool_start custom state_patch tool_end custom state_patch step_committed checkpoint_created " +
		"step_started custom state_patch custom state_patch text_delta custom state_patch assistant_message " +
		"custom state_patch step_committed checkpoint_created custom state_patch"
	if got := l.kinds(); got != records {
		t.Errorf("got %s", got)
	}
}

// What hooks did in a phase that is discarded is gone with it, and done again.
func TestHooksInADiscardedPhase(t *testing.T) {
	word := []model.Part{model.TextDelta{Delta: "h"}}
	for name, first := range map[string]scripted.Step{
		"retry":   {Parts: word, Err: &model.Error{Code: model.CodeTruncated, Retryable: true}},
		"restart": parts(append(word, model.Restart{}, model.TextDelta{Delta: "hi"}, finish)...),
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			m := &answers{steps: []scripted.Step{first, text("hi")}}
			r, l := begin(t, "go")
			if _, err := run(t.Context(), &agent.Agent{Name: "a", Model: m, Hooks: note("agent", &told)}, r); err != nil {
				t.Fatal(err)
			}
			var c counts
			if err := json.Unmarshal(l.fold.State, &c); err != nil || c != (counts{Runs: 1, Steps: 1, Models: 1, Answers: 1, Done: 1}) {
				t.Errorf("%+v, %v", c, err)
			}
			said := ""
			for _, p := range l.fold.Messages[1].Parts {
				said += string(p.Type) + p.Name + " "
			}
			if said != "step databefore-run databefore-step databefore-model text dataafter-model dataafter-step " {
				t.Error(said)
			}
		})
	}
}

func TestHooksOfATool(t *testing.T) {
	set := func(s string) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"Say":%q}`, s)) }
	for name, tt := range map[string]struct {
		input         string
		before, after func(agent.HookContext, *agent.ToolCall) error
		want          string // the outcome, as the model sees it
		started       string // the input of the dispatch
		ends          string // the code of the run's error
	}{
		"nothing":        {"x", nil, nil, `"x"`, `{"Say":"x"}`, ""},
		"another input":  {"x", func(_ agent.HookContext, c *agent.ToolCall) error { c.Input = set("y"); return nil }, nil, `"y"`, `{"Say":"y"}`, ""},
		"a bad input":    {"x", func(_ agent.HookContext, c *agent.ToolCall) error { c.Input = json.RawMessage(`{"Say":7}`); return nil }, nil, "error: the input that a hook gave is not valid", "", ""},
		"a result":       {"x", func(_ agent.HookContext, c *agent.ToolCall) error { c.Result = json.RawMessage(`"z"`); return nil }, nil, `"z"`, "", ""},
		"no result":      {"x", func(_ agent.HookContext, c *agent.ToolCall) error { c.Result = json.RawMessage(`z`); return nil }, nil, "error: the result that a hook gave is not valid JSON", "", ""},
		"refused":        {"x", func(agent.HookContext, *agent.ToolCall) error { return errors.New("not today") }, nil, "error: not today", "", ""},
		"fatal":          {"x", func(agent.HookContext, *agent.ToolCall) error { return tool.Fatal(errors.New("never")) }, nil, "error: never", "", "tool_fatal"},
		"panic":          {"x", func(agent.HookContext, *agent.ToolCall) error { panic("oh") }, nil, "error: a hook panicked", "", ""},
		"another result": {"x", nil, func(_ agent.HookContext, c *agent.ToolCall) error { c.Result = json.RawMessage(`"z"`); return nil }, `"z"`, `{"Say":"x"}`, ""},
		"made to fail":   {"x", nil, func(_ agent.HookContext, c *agent.ToolCall) error { c.Err = errors.New("bad"); return nil }, "error: bad", `{"Say":"x"}`, ""},
		"another error":  {"fail", nil, func(_ agent.HookContext, c *agent.ToolCall) error { return fmt.Errorf("really: %w", c.Err) }, "error: really: it failed", `{"Say":"fail"}`, ""},
		"made to succeed": {"fail", nil, func(_ agent.HookContext, c *agent.ToolCall) error {
			c.Err, c.Result = nil, json.RawMessage(`"rescued"`)
			return nil
		}, `"rescued"`, `{"Say":"fail"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := &answers{steps: []scripted.Step{toolCall("c", "echo", string(set(tt.input))), text("done")}}
			a := &agent.Agent{Name: "a", Model: m, Tools: []tool.Tool{echo}, Hooks: &agent.Hooks{BeforeTool: tt.before, AfterTool: tt.after}}
			r, l := begin(t, "go")
			_, err := run(t.Context(), a, r)
			if code := chunk.CodeOf(err); code != tt.ends {
				t.Errorf("the run ended with %v", err)
			}
			end := find[*chunk.ToolEnd](l)[0]
			got := string(end.Result)
			if !end.Success {
				got = "error: " + end.Error
			}
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %s", got)
			}
			started := ""
			for _, c := range find[*chunk.ToolStart](l) {
				started += string(c.Arguments)
			}
			if started != tt.started {
				t.Errorf("dispatched with %q", started)
			}
		})
	}
}

// A hook's error ends the run, by its own code if it has one.
func TestHooksFail(t *testing.T) {
	secret := errors.New("dial tcp: sk-123456789")
	for name, tt := range map[string]struct {
		err, want error
	}{
		"any":       {secret, agent.ErrHookFailed},
		"limit":     {agent.LimitTokens, agent.LimitTokens},
		"own limit": {&agent.Limit{Code: "credit"}, &agent.Limit{Code: "credit"}},
		"coded":     {spool.ErrBusy, spool.ErrBusy},
	} {
		for point, hooks := range map[string]*agent.Hooks{
			"BeforeRun":   {BeforeRun: func(agent.HookContext) error { return tt.err }},
			"BeforeStep":  {BeforeStep: func(agent.HookContext) error { return tt.err }},
			"BeforeModel": {BeforeModel: func(agent.HookContext, *model.Request) error { return tt.err }},
			"AfterModel":  {AfterModel: func(agent.HookContext, agent.Answer) error { return tt.err }},
			"AfterStep":   {AfterStep: func(agent.HookContext, agent.Result) error { return tt.err }},
		} {
			t.Run(point+" "+name, func(t *testing.T) {
				r, l := begin(t, "go")
				_, err := run(t.Context(), &agent.Agent{Name: "a", Model: &answers{steps: []scripted.Step{text("hi")}}, Hooks: hooks}, r)
				if !errors.Is(err, tt.want) {
					t.Errorf("got %v", err)
				}
				if len(find[*chunk.StepCommitted](l)) > 0 {
					t.Error("the step was committed")
				}
			})
		}
	}
}

// A call that asks for an approval asks with the input that it will be made with.
func TestHookBeforeAnApproval(t *testing.T) {
	m := &answers{steps: []scripted.Step{toolCall("c", "echo", `{"Say":"x"}`), text("done")}}
	calls := 0
	a := &agent.Agent{Name: "a", Model: m, Tools: []tool.Tool{tool.With(echo, tool.Options{Approval: true})},
		Hooks: &agent.Hooks{BeforeTool: func(h agent.HookContext, c *agent.ToolCall) error {
			calls++
			c.Input = json.RawMessage(`{"Say":"y"}`)
			return nil
		}}}
	r, l := begin(t, "go")
	result, err := a.Step(t.Context(), r)
	if err != nil || result.Suspended != "awaiting_approval" {
		t.Fatal(result, err)
	}
	request := find[*chunk.ToolApprovalRequest](l)[0]
	if string(request.Input) != `{"Say":"y"}` {
		t.Errorf("asked for %s", request.Input)
	}
	suspended := l.fold.Owed().Suspend(result.Suspended, []string{"c"}, 0)
	answer := &chunk.ToolApprovalResponse{CommandID: "ok", ApprovalID: request.ApprovalID, Approved: true}
	next := r.Info
	next.RunID = "r2"
	start := a.Start(t.Context(), next, []string{"ok"})
	if err := l.Append(t.Context(), append(suspended, answer, start)...); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Recover(t.Context(), &agent.Run{Info: next, Log: l, Seams: r.Seams}); err != nil {
		t.Fatal(err)
	}
	if end := find[*chunk.ToolEnd](l); len(end) != 1 || string(end[0].Result) != `"y"` || calls != 1 {
		t.Errorf("%+v after %d calls of the hook", end, calls)
	}
}

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
)

// memLog is a log without a store.
type memLog struct {
	t *testing.T

	mu     sync.Mutex
	fold   *fold.Fold
	chunks []chunk.Chunk
}

func (l *memLog) Append(ctx context.Context, chunks ...chunk.Chunk) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, c := range chunks {
		raw, err := chunk.Append(nil, c)
		if err != nil {
			return err
		}
		if err := l.fold.Apply(chunk.Record{Seq: l.fold.Seq + 1, Type: c.ChunkType(), Class: chunk.ClassOf(c), Data: raw}); err != nil {
			return err
		}
		l.chunks = append(l.chunks, c)
	}
	return nil
}

func (l *memLog) Flush(ctx context.Context) error { return ctx.Err() }

func (l *memLog) View(_ context.Context, fn func(*fold.Fold) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fn(l.fold)
}

func (l *memLog) Blob(_ context.Context, ref json.RawMessage) (json.RawMessage, error) {
	if string(ref) == `{"$blob":"x"}` {
		return json.RawMessage(`"large"`), nil
	}
	return ref, nil
}

func (l *memLog) kinds() string {
	var kinds []string
	for _, c := range l.chunks[2:] {
		kinds = append(kinds, string(c.ChunkType()))
	}
	return strings.Join(kinds, " ")
}

func find[C chunk.Chunk](l *memLog) (found []C) {
	for _, c := range l.chunks {
		if c, ok := c.(C); ok {
			found = append(found, c)
		}
	}
	return found
}

// begin returns a run whose first records are in the log. Its functions run at
// once, where they are called.
func begin(t *testing.T, text string, files ...chunk.Part) (*agent.Run, *memLog) {
	t.Helper()
	l := &memLog{t: t, fold: fold.New("s")}
	ids := 0
	r := &agent.Run{
		Info: agent.RunInfo{Session: "s", RunID: "r1", TurnID: "u1", MessageID: "m1", Mode: "start"},
		Log:  l,
		Seams: agent.Seams{
			Now:       func() time.Time { return time.UnixMilli(1000) },
			StoreTime: func() int64 { return 1000 },
			NewID:     func() string { ids++; return fmt.Sprintf("id-%06d", ids) },
			Go:        func(f func()) { f() },
			Sleep:     func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
		},
	}
	start := (&agent.Agent{}).Start(t.Context(), r.Info, []string{"u1"})
	err := l.Append(t.Context(), &chunk.UserMessage{CommandID: "u1", Message: chunk.Message{ID: "u1", Role: chunk.RoleUser,
		Parts: append([]chunk.Part{{Type: chunk.PartText, Text: text}}, files...)}}, start)
	if err != nil {
		t.Fatal(err)
	}
	return r, l
}

// timed gives a run a clock and goroutines that are real ones, or those of a bubble.
func timed(r *agent.Run) {
	r.Seams.Go = func(f func()) { go f() }
	r.Seams.Sleep = func(ctx context.Context, d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func run(ctx context.Context, a *agent.Agent, r *agent.Run) (agent.Result, error) {
	for {
		result, err := a.Step(ctx, r)
		if err != nil || result.Done {
			return result, err
		}
	}
}

// answers is a model that gives the next answer at each call.
type answers struct {
	steps    []scripted.Step
	requests []*model.Request
}

func (m *answers) Stream(_ context.Context, r *model.Request) iter.Seq2[model.Part, error] {
	m.requests = append(m.requests, r)
	s := m.steps[min(len(m.requests), len(m.steps))-1]
	return func(yield func(model.Part, error) bool) {
		for _, p := range s.Parts {
			if !yield(p, nil) {
				return
			}
		}
		if s.Err != nil {
			yield(nil, s.Err)
		}
	}
}

func parts(parts ...model.Part) scripted.Step { return scripted.Step{Parts: parts} }

var finish = model.Finish{Reason: "stop"}

func text(s string) scripted.Step { return parts(model.TextDelta{ID: "t", Delta: s}, finish) }

func toolCall(id, name, args string) scripted.Step {
	return parts(model.ToolCallStart{ID: id, Name: name}, model.ToolCallDelta{ID: id, Delta: args},
		model.ToolCallEnd{ID: id, Name: name, Arguments: args}, model.Finish{Reason: "tool-calls"})
}

type verdict struct {
	Sound bool `json:"sound"`
}

func TestStructuredOutput(t *testing.T) {
	for name, tt := range map[string]struct {
		answers []scripted.Step
		want    string
		steps   int
	}{
		"ok":           {[]scripted.Step{text(`{"sound":true}`)}, `{"sound":true}`, 1},
		"fenced":       {[]scripted.Step{text("```json\n{\"sound\":true}\n```\n")}, `{"sound":true}`, 1},
		"second try":   {[]scripted.Step{text(`It is sound.`), text(`{"sound":false}`)}, `{"sound":false}`, 2},
		"never":        {[]scripted.Step{text(`{"sound":"yes"}`)}, "", 2},
		"after a tool": {[]scripted.Step{toolCall("a", "noop", "{}"), text(`no`), text(`{"sound":true}`)}, `{"sound":true}`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			m := &answers{steps: tt.answers}
			output := agent.OutputOf[verdict]()
			if name == "fenced" || name == "never" { // a schema from elsewhere does as well
				var err error
				output, err = agent.OutputSchema(json.RawMessage(`{"type":"object","properties":{"sound":{"type":"boolean"}},"required":["sound"]}`))
				if err != nil {
					t.Fatal(err)
				}
			}
			a := &agent.Agent{Name: "a", Model: m, Output: output, Tools: []tool.Tool{
				tool.New("noop", "", func(tool.Context, struct{}) (int, error) { return 0, nil })}}
			r, l := begin(t, "is it?")
			result, err := run(t.Context(), a, r)
			outputs := find[*chunk.Output](l)
			if tt.want == "" {
				if !errors.Is(err, agent.ErrOutputInvalid) || len(outputs) != 0 || agent.Describe(err).Code != "output_invalid" {
					t.Errorf("%v, %d outputs", err, len(outputs))
				}
			} else if err != nil || len(outputs) != 1 || string(outputs[0].Output) != tt.want || result.Outcome != chunk.OutcomeCompleted {
				t.Errorf("%+v, %v, %v", result, err, outputs)
			}
			if len(m.requests) != tt.steps {
				t.Fatalf("%d requests", len(m.requests))
			}
			for _, req := range m.requests {
				if !strings.Contains(string(req.Output), `"sound"`) {
					t.Errorf("the schema was not sent: %s", req.Output)
				}
			}
			if last := m.requests[tt.steps-1].Messages; tt.steps > 1 {
				if told := last[len(last)-1]; told.Role != chunk.RoleUser || !strings.Contains(told.Text(), "not accepted") {
					t.Errorf("the model was not told: %+v", told)
				}
			}
			if n := len(l.fold.Messages); n != 2 {
				t.Errorf("the correction got into the history: %d messages", n)
			}
		})
	}
}

func TestOutputSchemaIsChecked(t *testing.T) {
	for _, schema := range []string{`{"type":`, `{"$ref":"#/$defs/none"}`, `7`} {
		if _, err := agent.OutputSchema(json.RawMessage(schema)); err == nil {
			t.Errorf("%s was taken for a schema", schema)
		}
	}
}

func TestTruncatedAnswerFails(t *testing.T) {
	r, _ := begin(t, "hi")
	m := &answers{steps: []scripted.Step{parts(model.TextDelta{Delta: "h"})}}
	_, err := run(t.Context(), &agent.Agent{Name: "a", Model: m}, r)
	if len(m.requests) != 3 {
		t.Errorf("%d requests", len(m.requests))
	}
	if info := agent.Describe(err); info.Code != model.CodeTruncated || !info.Recoverable {
		t.Errorf("%+v", info)
	}
}

func TestMaxSteps(t *testing.T) {
	m := &answers{steps: []scripted.Step{toolCall("a", "noop", "{}")}}
	a := &agent.Agent{Name: "a", Model: m, MaxSteps: 3, Tools: []tool.Tool{
		tool.New("noop", "", func(tool.Context, struct{}) (int, error) { return 0, nil })}}
	r, l := begin(t, "go")
	result, err := run(t.Context(), a, r)
	if err != nil || result.Outcome != chunk.OutcomeLimit || result.FinishReason != "length" || len(m.requests) != 3 {
		t.Errorf("%+v, %v, %d requests", result, err, len(m.requests))
	}
	var ids []string
	for _, c := range find[*chunk.ToolStart](l) {
		ids = append(ids, c.ToolCallID+" "+c.EffectID)
	}
	if got := strings.Join(ids, ", "); got != "a r1:a, a-s2 r1:a-s2, a-s3 r1:a-s3" {
		t.Errorf("calls %s", got)
	}
}

func TestTranscript(t *testing.T) {
	for name, tt := range map[string]struct {
		step scripted.Step
		want string // the parts of the assistant message: type, text or call
	}{
		"reasoning that is not ended": {parts(model.ReasoningDelta{ID: "r", Delta: "hm"}, model.TextDelta{Delta: "a"}, finish), "reasoning:hm text:a"},
		"reasoning repeated at its end": {parts(model.ReasoningDelta{ID: "r", Delta: "hm"},
			model.ReasoningEnd{ID: "r", Text: "hm", Metadata: json.RawMessage(`{"sig":1}`)}, finish), `reasoning:hm{"sig":1}`},
		"reasoning with a longer end":      {parts(model.ReasoningDelta{ID: "r", Delta: "h"}, model.ReasoningEnd{ID: "r", Text: "hm"}, finish), "reasoning:hm"},
		"reasoning only at its end":        {parts(model.ReasoningEnd{ID: "r", Text: "hm"}, finish), "reasoning:hm"},
		"reasoning that is only a secret":  {parts(model.ReasoningEnd{ID: "r", Metadata: json.RawMessage(`{"e":1}`)}, finish), `reasoning:{"e":1}`},
		"two text blocks":                  {parts(model.TextDelta{ID: "1", Delta: "a"}, model.TextDelta{ID: "2", Delta: "b"}, finish), "text:a text:b"},
		"empty deltas":                     {parts(model.TextDelta{}, model.ReasoningDelta{}, finish), ""},
		"a call without a beginning":       {parts(model.ToolCallEnd{ID: "a", Name: "noop", Arguments: `{"x":1}`}, finish), `tool:a noop {"x":1}`},
		"a call without an end":            {parts(model.ToolCallStart{ID: "a", Name: "noop"}, model.ToolCallDelta{ID: "a", Delta: "{}"}, finish), `tool:a noop {}`},
		"a call without arguments":         {parts(model.ToolCallStart{ID: "a", Name: "noop"}, model.ToolCallEnd{ID: "a"}, finish), `tool:a noop {}`},
		"arguments longer than streamed":   {parts(model.ToolCallStart{ID: "a", Name: "noop"}, model.ToolCallDelta{ID: "a", Delta: `{"x"`}, model.ToolCallEnd{ID: "a", Arguments: `{"x":1}`}, finish), `tool:a noop {"x":1}`},
		"arguments other than streamed":    {parts(model.ToolCallStart{ID: "a", Name: "noop"}, model.ToolCallDelta{ID: "a", Delta: `{"y`}, model.ToolCallEnd{ID: "a", Arguments: `{"x":1}`}, finish), `tool:a noop {"x":1}`},
		"the same call id twice":           {parts(model.ToolCallEnd{ID: "a", Name: "noop"}, model.ToolCallEnd{ID: "a", Name: "noop"}, finish), `tool:a noop {} tool:a-s1 noop {}`},
		"an id that is none of ours":       {parts(model.ToolCallEnd{ID: "a/b", Name: "noop"}, model.ToolCallEnd{ID: "", Name: "noop"}, finish), `tool:call noop {} tool:call-s1 noop {}`},
		"a source and a file":              {parts(model.TextDelta{Delta: "a"}, model.Source{ID: "1", URL: "u"}, model.File{URL: "f"}, finish), "text:a source:u file:f"},
		"calls whose arguments come mixed": {parts(scripted.Calls(scripted.ToolCall{ID: "a", Name: "noop", Arguments: `{"a":"aaaaaaa"}`}, scripted.ToolCall{ID: "b", Name: "noop", Arguments: `{"b":"bbbbbbb"}`})...), `tool:a noop {"a":"aaaaaaa"} tool:b noop {"b":"bbbbbbb"}`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, ok := tt.step.Parts[len(tt.step.Parts)-1].(model.Finish); !ok {
				tt.step.Parts = append(tt.step.Parts, finish)
			}
			a := &agent.Agent{Name: "a", Model: &answers{steps: []scripted.Step{tt.step}}, Tools: []tool.Tool{
				tool.New("noop", "", func(tool.Context, map[string]any) (int, error) { return 1, nil })}}
			r, l := begin(t, "go")
			if _, err := a.Step(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range l.fold.Messages[1].Parts[1:] {
				line := string(p.Type) + ":" + p.Text + p.URL + string(p.ProviderMetadata)
				if p.Tool != nil {
					line += p.Tool.CallID + " " + p.Tool.Name + " " + string(p.Tool.Input) + p.Tool.InputText
					if p.Tool.State != chunk.ToolCompleted {
						t.Errorf("call %s: %s %s", p.Tool.CallID, p.Tool.State, p.Tool.Error)
					}
				}
				got = append(got, line)
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

func TestRequestIsBuiltFromTheLog(t *testing.T) {
	m := &answers{steps: []scripted.Step{toolCall("a", "big", "{}"), text("done")}}
	temperature := 0.5
	a := &agent.Agent{Name: "a", Model: m, Instructions: "Be brief.", MaxTokens: 7, Temperature: &temperature, Tools: []tool.Tool{
		tool.New("big", "Big.", func(tool.Context, struct{}) (json.RawMessage, error) { return json.RawMessage(`{"$blob":"x"}`), nil })}}
	r, _ := begin(t, "go")
	if _, err := run(t.Context(), a, r); err != nil {
		t.Fatal(err)
	}
	first, second := m.requests[0], m.requests[1]
	if len(first.Messages) != 1 || first.Messages[0].Text() != "go" || first.Instructions != "Be brief." || first.MaxTokens != 7 ||
		first.Temperature != &temperature || first.Step != 1 || first.Session != "s" || first.RunID != "r1" ||
		len(first.Tools) != 1 || first.Tools[0].Description != "Big." {
		t.Errorf("first: %+v", first)
	}
	if len(second.Messages) != 2 || second.Step != 2 {
		t.Fatalf("second: %+v", second)
	}
	for _, p := range second.Messages[1].Parts {
		if p.Tool != nil && (string(p.Tool.Output) != `"large"` || p.Tool.State != chunk.ToolCompleted) {
			t.Errorf("call %+v", p.Tool)
		}
	}
}

func TestToolTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &answers{steps: []scripted.Step{
			parts(model.ToolCallEnd{ID: "a", Name: "deaf"}, model.ToolCallEnd{ID: "b", Name: "listens"}, model.ToolCallEnd{ID: "c", Name: "quick"}, finish), text("ok")}}
		late := make(chan error, 1)
		a := &agent.Agent{Name: "a", Model: m, ToolTimeout: time.Second, Tools: []tool.Tool{
			tool.New("deaf", "", func(ctx tool.Context, _ struct{}) (int, error) {
				time.Sleep(time.Minute)
				late <- ctx.Emit("late", 1, nil)
				return 1, nil
			}),
			tool.New("listens", "", func(ctx tool.Context, _ struct{}) (int, error) { <-ctx.Done(); return 0, ctx.Err() }),
			tool.New("quick", "", func(tool.Context, struct{}) (int, error) { return 1, nil }),
		}}
		r, l := begin(t, "go")
		timed(r)
		begun := time.Now()
		if _, err := run(t.Context(), a, r); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it took %v", took)
		}
		failed := 0
		for _, c := range find[*chunk.ToolEnd](l) {
			if !c.Success {
				failed++
				if c.Error != "timed out after 1s" {
					t.Errorf("%s: %s", c.ToolName, c.Error)
				}
			}
		}
		if failed != 2 {
			t.Errorf("%d failed", failed)
		}
		if err := <-late; !errors.Is(err, tool.ErrCallOver) {
			t.Errorf("a late event: %v", err)
		}
	})
}

func TestParallelStateChanges(t *testing.T) {
	type list struct {
		Items []int `json:"items,omitempty"`
	}
	m := &answers{steps: []scripted.Step{
		parts(model.ToolCallEnd{ID: "a", Name: "add", Arguments: `{"n":1}`}, model.ToolCallEnd{ID: "b", Name: "add", Arguments: `{"n":-2}`},
			model.ToolCallEnd{ID: "c", Name: "add", Arguments: `{"n":3}`}, finish), text("ok")}}
	a := &agent.Agent{Name: "a", Model: m, Tools: []tool.Tool{
		tool.New("add", "", func(ctx tool.Context, in struct {
			N int `json:"n"`
		}) (int, error) {
			err := tool.UpdateState(ctx, func(s *list) error { s.Items = append(s.Items, in.N); return nil })
			if in.N < 0 {
				return 0, errors.New("negative")
			}
			return len(ctx.State()), err
		}),
	}}
	r, l := begin(t, "go")
	if _, err := run(t.Context(), a, r); err != nil {
		t.Fatal(err)
	}
	if string(l.fold.State) != `{"items":[1,3]}` {
		t.Errorf("state %s\n%s", l.fold.State, l.kinds())
	}
	for _, p := range find[*chunk.StatePatch](l) {
		if p.ToolCallID == "" {
			t.Errorf("a patch without its call: %+v", p)
		}
	}
}

func TestSameSeamsSameChunks(t *testing.T) {
	record := func() string {
		a := &agent.Agent{Name: "a", Model: scripted.New(nil), Tools: []tool.Tool{
			tool.New("get_weather", "", func(tool.Context, map[string]any) (string, error) { return "fine", nil }),
			tool.New("search_notes", "", func(tool.Context, map[string]any) (string, error) { return "", errors.New("none") }),
		}}
		r, l := begin(t, "tools")
		if _, err := run(t.Context(), a, r); err != nil {
			t.Fatal(err)
		}
		var b []byte
		for _, c := range l.chunks {
			b, _ = chunk.Append(append(b, '\n'), c)
		}
		return string(b)
	}
	if a, b := record(), record(); a != b || !strings.Contains(a, "cpv1-s-s3-t1000-000003") {
		t.Errorf("\n%s\n%s", a, b)
	}
}

func TestMetadata(t *testing.T) {
	calls := 0
	a := &agent.Agent{Name: "a",
		StartMetadata:  func(_ context.Context, r agent.RunInfo) any { calls++; return map[string]string{"run": r.RunID} },
		FinishMetadata: func(context.Context, agent.RunInfo) any { return "not an object" }}
	info := agent.RunInfo{RunID: "r", Outcome: chunk.OutcomeCompleted, FinishReason: "stop"}
	if c := a.Start(t.Context(), info, nil); string(c.Metadata) != `{"run":"r"}` || calls != 1 {
		t.Errorf("%s after %d calls", c.Metadata, calls)
	}
	if c := a.Finish(t.Context(), info); c.Metadata != nil || c.Usage != nil {
		t.Errorf("%+v", c)
	}
}

func TestCheck(t *testing.T) {
	noop := tool.New("noop", "", func(tool.Context, struct{}) (int, error) { return 0, nil })
	for _, a := range []*agent.Agent{{Name: "a"}, {Model: &answers{}}, {Name: "a", Model: &answers{}, Tools: []tool.Tool{noop, noop}}} {
		if a.Check() == nil {
			t.Errorf("%+v passed", a)
		}
	}
	if err := (&agent.Agent{Name: "a", Model: &answers{}, Tools: []tool.Tool{noop}}).Check(); err != nil {
		t.Error(err)
	}
}

package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
)

func ask(text string, answer ...chunk.Part) *model.Request {
	r := &model.Request{Messages: []chunk.Message{
		{Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "tools, long ago"}}},
		{Role: chunk.RoleAssistant, Parts: []chunk.Part{{Type: chunk.PartTool, Tool: &chunk.ToolPart{}}}},
		{Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}},
	}}
	if answer != nil {
		r.Messages = append(r.Messages, chunk.Message{Role: chunk.RoleAssistant, Parts: answer})
	}
	return r
}

func play(ctx context.Context, m model.Model, r *model.Request) (parts []model.Part, err error) {
	for p, e := range m.Stream(ctx, r) {
		if e != nil {
			return parts, e
		}
		parts = append(parts, p)
	}
	return parts, nil
}

type said struct {
	text, reasoning string
	calls           []model.ToolCallEnd
	deltas          int
	usage           chunk.Usage
	finish          string
}

func sum(t *testing.T, parts []model.Part) (s said) {
	t.Helper()
	var text strings.Builder
	defer func() { s.text = text.String() }()
	arguments, pieces := map[string]string{}, map[string]int{}
	for i, p := range parts {
		switch p := p.(type) {
		case model.TextDelta:
			text.WriteString(p.Delta)
			s.deltas++
			if p.Delta == "" || !utf8.ValidString(p.Delta) {
				t.Errorf("part %d: bad delta %q", i, p.Delta)
			}
		case model.ReasoningDelta:
			s.reasoning += p.Delta
		case model.ReasoningEnd:
			if p.Text != s.reasoning {
				t.Errorf("reasoning ends as %q, streamed %q", p.Text, s.reasoning)
			}
		case model.ToolCallStart:
			arguments[p.ID] = ""
		case model.ToolCallDelta:
			arguments[p.ID] += p.Delta
			pieces[p.ID]++
		case model.ToolCallEnd:
			s.calls = append(s.calls, p)
			if arguments[p.ID] != p.Arguments || pieces[p.ID] < 2 {
				t.Errorf("call %s streamed %q in %d pieces, ends as %q", p.ID, arguments[p.ID], pieces[p.ID], p.Arguments)
			}
			if !json.Valid([]byte(p.Arguments)) {
				t.Errorf("call %s: arguments %q", p.ID, p.Arguments)
			}
		case model.UsageUpdate:
			s.usage = p.Usage
		case model.Finish:
			s.finish = p.Reason
			if i != len(parts)-1 {
				t.Errorf("finish is part %d of %d", i, len(parts))
			}
		}
	}
	return s
}

func TestScenesAreTheSameEveryTime(t *testing.T) {
	m := scripted.New(nil)
	for _, text := range []string{"hello", "Hello, you!", "think", "tools", "long", "what is this?", ""} {
		first, err := play(t.Context(), m, ask(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		second, err := play(t.Context(), scripted.New(nil), ask(text))
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("%q: the second time differs (%v)", text, err)
		}
		s := sum(t, first)
		if s.finish == "" || s.text == "" || s.usage.OutputTokens == 0 || s.usage.InputTokens == 0 {
			t.Errorf("%q: %+v", text, s)
		}
	}
}

func TestThink(t *testing.T) {
	parts, err := play(t.Context(), scripted.New(nil), ask("THINK about it"))
	if err != nil {
		t.Fatal(err)
	}
	s := sum(t, parts)
	if s.reasoning == "" || s.usage.ReasoningTokens == 0 || s.finish != "stop" {
		t.Errorf("%+v", s)
	}
	if _, ok := parts[0].(model.ReasoningDelta); !ok {
		t.Errorf("begins with %T", parts[0])
	}
}

func TestTools(t *testing.T) {
	m := scripted.New(nil)
	step := chunk.Part{Type: chunk.PartStep}
	call := chunk.Part{Type: chunk.PartTool, Tool: &chunk.ToolPart{State: chunk.ToolCompleted}}
	for _, tt := range []struct {
		name   string
		answer []chunk.Part
		calls  []string
		finish string
	}{
		{"first", nil, []string{"get_weather", "search_notes"}, "tool-calls"},
		{"open step", []chunk.Part{step}, []string{"get_weather", "search_notes"}, "tool-calls"},
		{"second", []chunk.Part{step, call, call}, []string{"plan_trip"}, "tool-calls"},
		{"second, next step begun", []chunk.Part{step, call, call, step}, []string{"plan_trip"}, "tool-calls"},
		{"last", []chunk.Part{step, call, call, step, call}, nil, "stop"},
		{"beyond", []chunk.Part{step, call, step, call, step, call}, nil, "stop"},
	} {
		parts, err := play(t.Context(), m, ask("tools please", tt.answer...))
		if err != nil {
			t.Fatal(err)
		}
		s := sum(t, parts)
		var names []string
		for _, c := range s.calls {
			names = append(names, c.Name)
		}
		if !reflect.DeepEqual(names, tt.calls) || s.finish != tt.finish {
			t.Errorf("%s: calls %v, finish %q", tt.name, names, s.finish)
		}
	}
}

func TestBulk(t *testing.T) {
	parts, err := play(t.Context(), scripted.New(nil), ask("bulk"))
	if err != nil {
		t.Fatal(err)
	}
	s := sum(t, parts)
	if s.deltas != 20_000 || len(s.text) < 550_000 || len(s.text) > 650_000 {
		t.Errorf("%d deltas, %d bytes", s.deltas, len(s.text))
	}
	if !strings.Contains(s.text, "## Part 50\n") || !strings.Contains(s.text, "That was all of it.") {
		t.Error("the last part is missing")
	}
}

// Long is a text for people. It has what a page must render, and is long enough to
// reload and to kill the server while it is said.
func TestLong(t *testing.T) {
	parts, err := play(t.Context(), scripted.New(nil), ask("long"))
	if err != nil {
		t.Fatal(err)
	}
	s := sum(t, parts)
	whole, err := os.ReadFile("long.md")
	if err != nil || s.text != strings.TrimSpace(string(whole)) {
		t.Errorf("it is not the essay: %v", err)
	}
	if s.deltas < 1500 || s.deltas > 3000 || s.finish != "stop" {
		t.Errorf("%d deltas, finish %q", s.deltas, s.finish)
	}
	for _, markup := range []string{"# ", "\n## ", "\n1. ", "\n> ", "\n| --- | --- |\n", "**log**", "É"} {
		if !strings.Contains(s.text, markup) {
			t.Errorf("there is no %q in it", markup)
		}
	}
}

func TestFail(t *testing.T) {
	parts, err := play(t.Context(), scripted.New(nil), ask("fail"))
	failure, ok := errors.AsType[*model.Error](err)
	if !ok || failure.Code != model.CodeUnavailable {
		t.Fatalf("error %v", err)
	}
	if s := sum(t, parts); s.text == "" || s.finish != "" {
		t.Errorf("%+v", s)
	}
}

func TestOwnScenes(t *testing.T) {
	boom := errors.New("boom")
	m := scripted.New(&scripted.Options{
		Scenes: map[string]scripted.Scene{
			"hello": scripted.Steps(scripted.Say(scripted.Text("mine"))),
			"empty": scripted.Steps(),
			"exact": scripted.Steps(scripted.Step{Parts: []model.Part{
				model.UsageUpdate{Usage: chunk.Usage{InputTokens: 7}}, model.Finish{Reason: "length"}, model.TextDelta{Delta: "never"}}}),
		},
		Default: scripted.Steps(scripted.Step{Err: boom}),
	})
	if parts, err := play(t.Context(), m, ask("hello")); err != nil || sum(t, parts).text != "mine" {
		t.Errorf("hello: %v %v", parts, err)
	}
	if parts, err := play(t.Context(), m, ask("empty")); err != nil || sum(t, parts).finish != "stop" {
		t.Errorf("empty: %v %v", parts, err)
	}
	want := []model.Part{model.UsageUpdate{Usage: chunk.Usage{InputTokens: 7}}, model.Finish{Reason: "length"}}
	if parts, err := play(t.Context(), m, ask("exact")); err != nil || !reflect.DeepEqual(parts, want) {
		t.Errorf("exact: %v %v", parts, err)
	}
	if _, err := play(t.Context(), m, ask("other")); !errors.Is(err, boom) {
		t.Errorf("other: %v", err)
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []float64{40, 10_000} {
			start := time.Now()
			parts, err := play(t.Context(), scripted.New(&scripted.Options{Rate: rate}), ask("bulk"))
			if err != nil {
				t.Fatal(err)
			}
			want := time.Duration(float64(sum(t, parts).deltas) / rate * float64(time.Second))
			if got := time.Since(start); got < want-2*time.Millisecond || got > want {
				t.Errorf("at %v a second it took %v, want %v", rate, got, want)
			}
		}
	})
}

func TestCancelWithinADelta(t *testing.T) {
	for _, rate := range []float64{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 0
			var last error
			for _, err := range scripted.New(&scripted.Options{Rate: rate}).Stream(ctx, ask("bulk")) {
				last = err
				if n++; n == 5 {
					time.AfterFunc(time.Millisecond, cancel)
					if rate == 0 {
						cancel()
					}
				}
			}
			if n != 6 || !errors.Is(last, context.Canceled) {
				t.Errorf("rate %v: %d yields, last %v", rate, n, last)
			}
		})
	}
}

func TestBreak(t *testing.T) {
	for range scripted.New(nil).Stream(t.Context(), ask("tools")) {
		break
	}
}

func TestBranch(t *testing.T) {
	m := scripted.New(nil)
	step := chunk.Part{Type: chunk.PartStep}
	call := chunk.Part{Type: chunk.PartTool, Tool: &chunk.ToolPart{State: chunk.ToolCompleted}}
	for text, cities := range map[string][]string{"branch": {"Lisbon", "Coimbra", "Porto"}, "Branch south, please": {"Évora", "Faro"}} {
		var answer []chunk.Part
		for _, city := range append(cities, "") {
			parts, err := play(t.Context(), m, ask(text, answer...))
			if err != nil {
				t.Fatal(err)
			}
			s := sum(t, parts)
			if city == "" && len(s.calls) == 0 && s.finish == "stop" {
				continue
			}
			if len(s.calls) != 1 || s.calls[0].Name != "plan_trip" || !strings.Contains(s.calls[0].Arguments, city) {
				t.Errorf("%s: calls %v instead of %q", text, s.calls, city)
			}
			answer = append(answer, step, call)
		}
	}
}

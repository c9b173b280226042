package agent_test

import (
	"errors"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
)

// goesOn recovers a run whose log holds these chunks of its first model phase.
func goesOn(t *testing.T, a *agent.Agent, stored ...chunk.Chunk) (l *memLog, err error) {
	t.Helper()
	r, l := begin(t, "go")
	stored = append([]chunk.Chunk{&chunk.StepStarted{Base: chunk.Base{RunID: "r1", Step: 1}, StepID: "r1-s1"}}, stored...)
	if err := l.Append(t.Context(), stored...); err != nil {
		t.Fatal(err)
	}
	first, _ := a.TakeOver(l.fold)
	if err := l.Append(t.Context(), first...); err != nil {
		t.Fatal(err)
	}
	result, err := a.Recover(t.Context(), r)
	if err == nil && !result.Done {
		_, err = a.Step(t.Context(), r)
	}
	return l, err
}

// With FailPartial, a run whose process was lost after its model had shown something
// fails with what was shown. Without it, and for what nobody was shown, the model is
// asked again.
func TestLostModelPhase(t *testing.T) {
	word := &chunk.TextDelta{Delta: "Hel", PartID: "t"}
	named := &chunk.AnswerStarted{StepID: "r1-s1", Cursor: "a:0"}
	for name, tt := range map[string]struct {
		keep   bool
		stored []chunk.Chunk
		kept   bool
		asked  int
	}{
		"asked again":             {false, []chunk.Chunk{word}, false, 1},
		"kept":                    {true, []chunk.Chunk{word}, true, 0},
		"kept reasoning":          {true, []chunk.Chunk{&chunk.Thinking{Content: "Hm", PartID: "r"}}, true, 0},
		"kept arguments":          {true, []chunk.Chunk{&chunk.ToolArgStreamStart{ToolCallID: "c", ToolName: "f"}}, true, 0},
		"named, but not resumed":  {true, []chunk.Chunk{named, word}, true, 0},
		"nothing shown":           {true, nil, false, 1},
		"only a hook's event":     {true, []chunk.Chunk{&chunk.Custom{EventName: "mine", Data: []byte(`1`)}}, false, 1},
		"nothing shown, no wish ": {false, nil, false, 1},
	} {
		m := &answers{steps: []scripted.Step{text("Bye")}}
		l, err := goesOn(t, &agent.Agent{Name: "a", Model: m, FailPartial: tt.keep}, tt.stored...)
		if errors.Is(err, agent.ErrLost) != tt.kept || !tt.kept && err != nil || len(m.requests) != tt.asked {
			t.Errorf("%s: %v, asked %d times", name, err, len(m.requests))
		}
		discarded := len(find[*chunk.StepDiscarded](l)) == 1
		if shown := len(tt.stored) > 0; discarded != (shown && !tt.kept) {
			t.Errorf("%s: %s", name, l.kinds())
		}
		if info := agent.Describe(err); tt.kept && (info.Code != "executor_lost" || !info.Recoverable) {
			t.Errorf("%s: %+v", name, info)
		}
	}
}

// An answer that can be resumed is resumed, whatever FailPartial says. If it cannot
// be had after all, FailPartial decides.
func TestLostModelPhaseOfAResumer(t *testing.T) {
	lost := &model.Error{Code: model.CodeUnavailable, Message: "no connection", Retryable: true}
	gone := &model.Error{Code: model.CodeGone, Message: "no such answer"}
	word := &chunk.TextDelta{Delta: "Hel", PartID: "t"}
	for name, tt := range map[string]struct {
		keep   bool
		stored []chunk.Chunk
		again  scripted.Step
		want   error
		asked  int
		said   string
	}{
		"resumed":          {true, []chunk.Chunk{word}, parts(model.TextDelta{ID: "t", Delta: "Hello"}, finish), nil, 0, "Hello"},
		"gone":             {true, []chunk.Chunk{word}, scripted.Step{Err: gone}, agent.ErrLost, 0, "Hel"},
		"broken off":       {true, []chunk.Chunk{word}, scripted.Step{Parts: []model.Part{model.TextDelta{ID: "t", Delta: "Hell"}}, Err: lost}, lost, 0, "Hell"},
		"broken off first": {true, nil, scripted.Step{Parts: []model.Part{model.TextDelta{ID: "t", Delta: "Hell"}}, Err: lost}, lost, 0, "Hell"},
		"gone, not shown":  {true, nil, scripted.Step{Err: gone}, nil, 1, "Bye"},
		"gone, asked":      {false, []chunk.Chunk{word}, scripted.Step{Err: gone}, nil, 1, "Bye"},
	} {
		k := &keeper{again: func(string) scripted.Step { return tt.again }}
		k.steps = []scripted.Step{text("Bye")}
		stored := append([]chunk.Chunk{&chunk.AnswerStarted{StepID: "r1-s1", Cursor: "a:0"}}, tt.stored...)
		l, err := goesOn(t, &agent.Agent{Name: "a", Model: k, FailPartial: tt.keep}, stored...)
		if !errors.Is(err, tt.want) || len(k.requests) != tt.asked || len(k.resumed) != 1 {
			t.Errorf("%s: %v, asked %d times, resumed %v", name, err, len(k.requests), k.resumed)
		}
		if got := l.fold.Message("m1").Text(); got != tt.said {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A hook that adds something before the model says anything does not make the phase
// one that was shown.
func TestLostModelPhaseWithHooks(t *testing.T) {
	m := &answers{steps: []scripted.Step{text("Bye")}}
	calls := 0
	a := &agent.Agent{Name: "a", Model: m, FailPartial: true, Hooks: &agent.Hooks{BeforeModel: func(h agent.HookContext, _ *model.Request) error {
		calls++
		return h.Emit("asked", calls, &tool.EmitOptions{ID: "n"})
	}}}
	l, err := goesOn(t, a, &chunk.Custom{EventName: "asked", ID: "n", Data: []byte(`1`)})
	if err != nil || calls != 1 || l.fold.Message("m1").Text() != "Bye" {
		t.Errorf("%v, %d calls, %s", err, calls, l.kinds())
	}
}

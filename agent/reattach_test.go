package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/model/scripted"
)

// keeper is a model whose answers can be taken up again.
type keeper struct {
	answers
	again     func(cursor string) scripted.Step
	resumed   []string
	cancelled []string
}

func (k *keeper) Resume(_ context.Context, cursor string) iter.Seq2[model.Part, error] {
	k.resumed = append(k.resumed, cursor)
	s := k.again(cursor)
	return (&answers{steps: []scripted.Step{s}}).Stream(context.Background(), nil)
}

func (k *keeper) CancelAnswer(_ context.Context, cursor string) error {
	k.cancelled = append(k.cancelled, cursor)
	return nil
}

// recording is an answer as it was streamed, and as the provider has it when it
// can be streamed no more.
func recording(t *testing.T, file string) (streamed, whole scripted.Step, ok bool) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	collect := func(data []byte) scripted.Step {
		parts, err := modeltest.Collect(openai.IngestResponses(bytes.NewReader(data), nil))
		return scripted.Step{Parts: append([]model.Part{model.Position{Cursor: "a:0"}}, parts...), Err: err}
	}
	streamed = collect(data)
	var last struct{ Response json.RawMessage }
	at := bytes.LastIndex(data, []byte("\ndata: {"))
	if at < 0 || json.Unmarshal(bytes.TrimSpace(data[at+len("\ndata: "):]), &last) != nil || last.Response == nil {
		return streamed, whole, false
	}
	whole = collect(last.Response)
	return streamed, whole, streamed.Err == nil && whole.Err == nil
}

// joined makes one delta of adjacent ones, and single makes them of one rune.
func joined(s scripted.Step) scripted.Step {
	var out []model.Part
	for _, p := range s.Parts {
		if len(out) > 0 {
			switch q := out[len(out)-1].(type) {
			case model.TextDelta:
				if p, ok := p.(model.TextDelta); ok && p.ID == q.ID {
					out[len(out)-1] = model.TextDelta{ID: p.ID, Delta: q.Delta + p.Delta}
					continue
				}
			case model.ReasoningDelta:
				if p, ok := p.(model.ReasoningDelta); ok && p.ID == q.ID {
					out[len(out)-1] = model.ReasoningDelta{ID: p.ID, Delta: q.Delta + p.Delta}
					continue
				}
			case model.ToolCallDelta:
				if p, ok := p.(model.ToolCallDelta); ok && p.ID == q.ID {
					out[len(out)-1] = model.ToolCallDelta{ID: p.ID, Delta: q.Delta + p.Delta}
					continue
				}
			}
		}
		out = append(out, p)
	}
	return scripted.Step{Parts: out}
}

func single(s scripted.Step) scripted.Step {
	var out []model.Part
	for _, p := range s.Parts {
		switch p := p.(type) {
		case model.TextDelta:
			for _, r := range p.Delta {
				out = append(out, model.TextDelta{ID: p.ID, Delta: string(r)})
			}
		case model.ReasoningDelta:
			for _, r := range p.Delta {
				out = append(out, model.ReasoningDelta{ID: p.ID, Delta: string(r)})
			}
		case model.ToolCallDelta:
			for _, r := range p.Delta {
				out = append(out, model.ToolCallDelta{ID: p.ID, Delta: string(r)})
			}
		default:
			out = append(out, p)
		}
	}
	return scripted.Step{Parts: out}
}

// heard runs the first step of an answer, or goes on with one that the log has
// the first chunks of, and returns the message.
func heard(t *testing.T, a *agent.Agent, stored []chunk.Chunk) (message string, l *memLog, err error) {
	t.Helper()
	r, l := begin(t, "go")
	if stored == nil {
		_, err = a.Step(t.Context(), r)
	} else {
		if err := l.Append(t.Context(), stored...); err != nil {
			t.Fatal(err)
		}
		_, err = a.Recover(t.Context(), r)
	}
	return said(l), l, err
}

func said(l *memLog) string {
	m := l.fold.Message("m1").Clone()
	for i := range m.Parts {
		m.Parts[i].First = 0
	}
	raw, _ := json.Marshal(struct {
		Parts  []chunk.Part
		Usage  chunk.Usage
		Finish string
	}{m.Parts, l.fold.Usage, l.fold.Step().Finish})
	return string(raw)
}

func retracted(l *memLog) bool { return strings.Contains(l.kinds(), "step_discarded") }

// Wherever the log breaks off, and however the answer is cut into deltas when it
// is heard again, the log gets exactly what it lacks.
func TestReattach(t *testing.T) {
	files, err := filepath.Glob("../model/modeltest/testdata/openai-responses/*.sse")
	if err != nil || len(files) < 30 {
		t.Fatal(len(files), err)
	}
	went, wholes, diverged := 0, 0, 0
	for _, file := range files {
		name := filepath.Base(file)
		streamed, whole, ok := recording(t, file)
		if !ok || name == "restart.sse" {
			continue
		}
		ask := func(first, again scripted.Step) *agent.Agent {
			k := &keeper{again: func(string) scripted.Step { return again }}
			k.steps = []scripted.Step{first}
			return &agent.Agent{Name: "a", Model: k}
		}
		want, l, err := heard(t, ask(streamed, scripted.Step{}), nil)
		if err != nil {
			t.Fatal(name, err)
		}
		only, _, err := heard(t, ask(whole, scripted.Step{}), nil)
		if err != nil {
			t.Fatal(name, err)
		}
		chunks := l.chunks[2:]
		for n, c := range chunks {
			if c.ChunkType() == chunk.TypeAssistantMessage {
				break
			}
			if n == 0 { // step_started: nobody knows of the answer
				continue
			}
			for how, again := range map[string]scripted.Step{"as it was": streamed, "joined": joined(streamed), "in runes": single(streamed), "whole": whole} {
				if how == "whole" && only != want {
					continue // what was streamed is not in it
				}
				a := ask(scripted.Step{}, again)
				got, l, err := heard(t, a, chunks[:n+1])
				k := a.Model.(*keeper)
				went++
				if err != nil || len(k.requests) != 0 || k.resumed[0] != "a:0" {
					t.Errorf("%s after %d, %s: %v, asked %d, %v", name, n, how, err, len(k.requests), k.resumed)
				}
				if got != want || retracted(l) && how != "whole" {
					t.Errorf("%s after %d chunks, heard %s: %s\n%s\nwant %s", name, n, how, l.kinds(), got, want)
				}
				if how == "whole" {
					wholes++
				}
				if retracted(l) {
					diverged++
				}
			}
		}
	}
	if went < 500 || wholes < 50 || diverged > 0 {
		t.Errorf("%d times, of them %d whole answers, %d were retracted", went, wholes, diverged)
	}
}

var position = model.Position{Cursor: "a:0"}

// An answer that is not the one that was begun is retracted, and taken as it is.
func TestReattachedAnswerDiverges(t *testing.T) {
	begun := []model.Part{position, model.ReasoningDelta{ID: "r", Delta: "Hm"}, model.ReasoningEnd{ID: "r", Text: "Hm"},
		model.TextDelta{ID: "t", Delta: "Hello"}, model.Source{ID: "s", URL: "https://a.example"}, model.ToolCallStart{ID: "c", Name: "f"},
		model.ToolCallDelta{ID: "c", Delta: `{"a":`}}
	k := &keeper{}
	k.steps = []scripted.Step{{Parts: append(begun, model.ToolCallDelta{ID: "c", Delta: `1}`}, finish)}}
	_, l, err := heard(t, &agent.Agent{Name: "a", Model: k}, nil)
	if err != nil {
		t.Fatal(err)
	}
	stored := l.chunks[2 : 2+len(begun)+1]
	for name, other := range map[string]scripted.Step{
		"text":      parts(model.ReasoningDelta{ID: "r", Delta: "Hm"}, model.ReasoningEnd{ID: "r"}, model.TextDelta{ID: "t", Delta: "Hi"}, finish),
		"reasoning": parts(model.ReasoningEnd{ID: "r", Text: "Hmm"}, model.TextDelta{ID: "t", Delta: "Hello"}, finish),
		"order":     parts(model.TextDelta{ID: "t", Delta: "Hello"}, finish),
		"source":    parts(model.Source{ID: "s", URL: "https://b.example"}, model.TextDelta{ID: "t", Delta: "Hello"}, finish),
		"call":      parts(model.ToolCallStart{ID: "c", Name: "g"}, model.ToolCallEnd{ID: "c", Name: "g"}, finish),
		"shorter":   parts(model.ReasoningDelta{ID: "r", Delta: "Hm"}, finish),
		"nothing":   parts(finish),
		"arguments": {Parts: append(begun[:6:6], model.ToolCallEnd{ID: "c", Name: "f", Arguments: `{"b":1}`}, finish)},
		"no call":   {Parts: append(begun[:5:5], finish)},
		"longer":    {Parts: append(begun[:4:4], model.TextDelta{ID: "t", Delta: " there"}, finish)},
		"restarted": {Parts: append(begun[:4:4], model.TextDelta{ID: "t", Delta: " there"}, model.Restart{}, position, model.TextDelta{ID: "t", Delta: "Bye"}, finish)},
	} {
		k := &keeper{again: func(string) scripted.Step { return other }}
		got, l, err := heard(t, &agent.Agent{Name: "a", Model: k}, stored)
		fresh := &keeper{}
		fresh.steps = []scripted.Step{other}
		want, _, _ := heard(t, &agent.Agent{Name: "a", Model: fresh}, nil)
		if err != nil || got != want || !retracted(l) || len(k.requests) != 0 {
			t.Errorf("%s: %v, %s\n%s\nwant %s", name, err, l.kinds(), got, want)
		}
	}
}

// So is one that says the same in another order: what the log has open is closed
// by what comes now.
func TestReattachedAnswerIsInAnotherOrder(t *testing.T) {
	said := []model.Part{model.TextDelta{ID: "t", Delta: "Hel"}, model.TextDelta{ID: "t", Delta: "lo"}}
	called := []model.Part{model.ToolCallStart{ID: "c", Name: "f", ProviderExecuted: true}, model.ToolCallEnd{ID: "c", Name: "f"}, model.ToolResult{ID: "c", Result: []byte("1")}}
	for name, order := range map[string]struct {
		first  []model.Part
		stored int // records
		again  []model.Part
	}{
		"call before text":    {slices.Concat(said, called), 3, slices.Concat(called, said)},
		"start before text":   {slices.Concat(said, called[:2]), 3, slices.Concat(called[:2], said)},
		"result before text":  {slices.Concat(called[:2], said, called[2:]), 5, slices.Concat(called, said)},
		"text after the text": {slices.Concat(said, called), 6, slices.Concat(said[:1], called, said[1:])},
	} {
		k := &keeper{}
		k.steps = []scripted.Step{{Parts: append([]model.Part{position}, append(order.first, finish)...)}}
		_, l, err := heard(t, &agent.Agent{Name: "a", Model: k}, nil)
		if err != nil {
			t.Fatal(err)
		}
		again := scripted.Step{Parts: append(slices.Clone(order.again), finish)}
		k.steps = []scripted.Step{again}
		want, _, _ := heard(t, &agent.Agent{Name: "a", Model: k}, nil)
		k = &keeper{again: func(string) scripted.Step { return again }}
		got, again2, err := heard(t, &agent.Agent{Name: "a", Model: k}, l.chunks[2:2+order.stored])
		if err != nil || got != want || !retracted(again2) || len(k.requests) != 0 {
			t.Errorf("%s: %v, %s\n%s\nwant %s", name, err, again2.kinds(), got, want)
		}
	}
}

// A provider that begins again, with what was said before: nothing is retracted.
func TestReattachedAnswerRestarts(t *testing.T) {
	first := parts(position, model.TextDelta{ID: "t", Delta: "Hel"}, model.TextDelta{ID: "t", Delta: "lo"}, model.ToolCallStart{ID: "c", Name: "f"}, finish)
	k := &keeper{}
	k.steps = []scripted.Step{first}
	want, l, err := heard(t, &agent.Agent{Name: "a", Model: k}, nil)
	if err != nil {
		t.Fatal(err)
	}
	k = &keeper{again: func(string) scripted.Step {
		return parts(model.TextDelta{ID: "t", Delta: "He"}, model.Restart{}, model.TextDelta{ID: "t", Delta: "Hello"}, model.ToolCallStart{ID: "c", Name: "f"}, finish)
	}}
	got, again, err := heard(t, &agent.Agent{Name: "a", Model: k}, l.chunks[2:5])
	if err != nil || got != want || retracted(again) {
		t.Errorf("%v, %s\n%s\nwant %s", err, again.kinds(), got, want)
	}
}

// What an answer that cannot be taken up again has shown is retracted, and the
// model is asked again.
func TestReattachFails(t *testing.T) {
	for code, want := range map[string]struct {
		retryable, asked, cancelled bool
	}{
		model.CodeGone:           {false, true, false},
		model.CodeUnavailable:    {true, true, true},
		model.CodeTruncated:      {true, true, true},
		model.CodeAuthentication: {false, false, false},
	} {
		for _, shown := range []bool{false, true} {
			k := &keeper{again: func(string) scripted.Step {
				return scripted.Step{Parts: []model.Part{model.TextDelta{ID: "t", Delta: "Hell"}}, Err: &model.Error{Code: code, Retryable: want.retryable}}
			}}
			k.steps = []scripted.Step{parts(model.Position{Cursor: "b:0"}, model.TextDelta{ID: "t", Delta: "Bye"}, finish)}
			a := &agent.Agent{Name: "a", Model: k}
			r, l := begin(t, "go")
			stored := []chunk.Chunk{&chunk.StepStarted{Base: chunk.Base{RunID: "r1", Step: 1}, StepID: "r1-s1"}, &chunk.AnswerStarted{StepID: "r1-s1", Cursor: "a:0"}}
			if shown {
				stored = append(stored, &chunk.TextDelta{Delta: "Hel", PartID: "t"})
			}
			if err := l.Append(t.Context(), stored...); err != nil {
				t.Fatal(err)
			}
			result, err := a.Recover(t.Context(), r)
			if failed, ok := errors.AsType[*model.Error](err); !want.asked {
				if !ok || failed.Code != code || retracted(l) {
					t.Errorf("%s: %v, %s", code, err, l.kinds())
				}
				continue
			}
			if err == nil && !result.Done {
				result, err = a.Step(t.Context(), r)
			}
			if err != nil || !result.Done || len(k.requests) != 1 || len(k.cancelled) > 0 != want.cancelled || l.fold.Message("m1").Text() != "Bye" {
				t.Errorf("%s, shown %v: %+v, %v, asked %d, cancelled %v, %s", code, shown, result, err, len(k.requests), k.cancelled, l.kinds())
			}
			if n := len(find[*chunk.StepDiscarded](l)); n != 1 || len(find[*chunk.AnswerStarted](l)) != 2 {
				t.Errorf("%s, shown %v: %s", code, shown, l.kinds())
			}
		}
	}
}

// A call of an answer that is taken up again gets no id of a call that the history does
// not hold any more.
func TestReattachAfterAnEdit(t *testing.T) {
	r, l := begin(t, "go")
	history := func(id string, messages ...chunk.Message) *chunk.HistoryReplaced {
		messages = append([]chunk.Message{}, messages...) // null would replace nothing
		return &chunk.HistoryReplaced{CommandID: id, Messages: &messages}
	}
	said := chunk.Message{ID: "m0", Role: chunk.RoleAssistant, Parts: []chunk.Part{{Type: chunk.PartTool, Tool: &chunk.ToolPart{CallID: "c", Name: "f", State: chunk.ToolCompleted}}}}
	l.fold = fold.New("s")
	if err := l.Append(t.Context(), history("h1", said), history("h2"),
		&chunk.UserMessage{CommandID: "u1", Message: chunk.Message{ID: "u1", Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "go"}}}},
		(&agent.Agent{}).Start(t.Context(), r.Info, []string{"u1"}),
		&chunk.StepStarted{Base: chunk.Base{RunID: "r1", Step: 1}, StepID: "r1-s1"}, &chunk.AnswerStarted{StepID: "r1-s1", Cursor: "a:0"}); err != nil {
		t.Fatal(err)
	}
	k := &keeper{again: func(string) scripted.Step {
		return parts(position, model.ToolCallStart{ID: "c", Name: "f"}, model.ToolCallEnd{ID: "c", Name: "f", Arguments: "{}"}, finish)
	}}
	if _, err := (&agent.Agent{Name: "a", Model: k}).Recover(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := find[*chunk.ToolArgStreamStart](l); len(l.fold.Retired) != 1 || len(got) != 1 || got[0].ToolCallID == "c" {
		t.Errorf("retired %v, calls %+v: %s", l.fold.Retired, got, l.kinds())
	}
}

// A model that cannot resume leaves nothing in the log, nor does a position that
// comes too late or is no id.
func TestPositions(t *testing.T) {
	for name, step := range map[string]scripted.Step{
		"none":     text("Hello"),
		"too late": parts(model.TextDelta{ID: "t", Delta: "Hello"}, position, finish),
		"too long": parts(model.Position{Cursor: strings.Repeat("x", chunk.MaxCursorBytes+1)}, model.TextDelta{ID: "t", Delta: "Hello"}, finish),
		"empty":    parts(model.Position{}, model.TextDelta{ID: "t", Delta: "Hello"}, finish),
	} {
		_, _, l := message(t, step)
		if n := len(find[*chunk.AnswerStarted](l)); n != 0 {
			t.Errorf("%s: %s", name, l.kinds())
		}
	}
	_, _, l := message(t, parts(position, model.Position{Cursor: "a:1"}, model.TextDelta{ID: "t", Delta: "Hello"}, model.Position{Cursor: "a:2"}, finish))
	if got := find[*chunk.AnswerStarted](l); len(got) != 1 || got[0].Cursor != "a:0" || got[0].Step != 1 || got[0].RunID != "r1" {
		t.Errorf("%+v", got)
	}
	// After a restart the next one counts.
	_, _, l = message(t, parts(position, model.TextDelta{ID: "t", Delta: "Hello"}, model.Restart{}, model.Position{Cursor: "a:5"}, model.TextDelta{ID: "t", Delta: "Bye"}, finish))
	if got := find[*chunk.AnswerStarted](l); len(got) != 2 || got[1].Cursor != "a:5" {
		t.Errorf("%+v", got)
	}
}

package aisdk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
	"github.com/spool-run/spool/wire/aisdk"
)

// Clients parse a call's arguments with each delta, and fail on what is nested too deep.
// They get the text up to there and an error, live and by a plan; then what became of the
// call, as snapshots have it.
func TestDeepArguments(t *testing.T) {
	t.Parallel()
	deltas := make([]string, 9)
	for i := range deltas {
		deltas[i] = strings.Repeat("[", 100)
	}
	writing := func() *logOf {
		l := newLog(t).user("t").start("r", "t", "t").begin().text("See: ")
		l.add(&chunk.ToolArgStreamStart{ToolCallID: "c", ToolName: "look"})
		for _, d := range deltas {
			l.add(&chunk.ToolArgStreamDelta{ToolCallID: "c", Delta: d})
		}
		return l
	}
	settled := map[string]*logOf{
		"refused": func() *logOf {
			l := writing().add(&chunk.ToolArgStreamEnd{ToolCallID: "c", ToolName: "look"}).said()
			l.add(&chunk.ToolInputError{ToolCallID: "c", ToolName: "look", Input: jsonenc.AppendString(nil, strings.Join(deltas, "")), Error: "the arguments are not valid JSON"})
			return l.commit().begin().text("sorry").said().commit().finish(chunk.OutcomeCompleted, "stop")
		}(),
		"stopped": func() *logOf {
			l := writing()
			return l.add(l.fold.Owed().Settle(&chunk.RunFinished{Outcome: chunk.OutcomeStopped})...)
		}(),
	}
	for name, o := range profiles {
		t.Run(name, func(t *testing.T) {
			l := writing()
			live, p := project(t, l, "t", &o)
			sent := events(live)
			if got := strings.Count(sent, "["); got != 2*jsonenc.MaxDepth {
				t.Errorf("%d levels are sent, and once more in the error", got)
			}
			if got := strings.Count(sent, `"tool-input-error"`); got != 1 || !strings.Contains(sent, "nested deeper") {
				t.Errorf("%d errors in\n%s", got, sent)
			}
			stream, err := read(&o, live, false)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := read(&o, planOf(t, p), false)
			if err != nil {
				t.Fatal(err)
			}
			converting := converting(l, &o)
			converting.Live = true
			snapshot := canonical(t, aisdk.ConvertToUIMessage(l.fold.Message("a-t"), converting), &o)
			want := callsOf(snapshot)
			for how, r := range map[string]*reader{"stream": stream, "plan": plan} {
				if d := diff(callsOf(canonical(t, r.client.Message, &o)), want); d != "" {
					t.Errorf("%s and snapshot: %s", how, d)
				}
			}
			for how, l := range settled {
				t.Run(how, func(t *testing.T) { checkLog(t, l, o) })
			}
		})
	}
}

// callsOf are a message's calls, as text.
func callsOf(m any) any {
	var calls []any
	for _, p := range m.(map[string]any)["parts"].([]any) {
		if part := p.(map[string]any); part["toolCallId"] != nil {
			calls = append(calls, fmt.Sprint(part))
		}
	}
	return calls
}

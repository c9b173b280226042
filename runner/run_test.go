package runner_test

import (
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model/scripted"
)

func TestToolsRun(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "tools please")
		records := w.settled("s")
		const step = " step_committed checkpoint_created "
		want := "user_message run_started " +
			"step_started thinking text_delta tool_arg_stream_start tool_arg_stream_delta tool_arg_stream_end assistant_message " +
			"tool_start tool_start progress tool_end custom tool_end" + step +
			"step_started tool_arg_stream_start tool_arg_stream_delta tool_arg_stream_end assistant_message " +
			"tool_start state_patch tool_end" + step +
			"step_started text_delta assistant_message" + step +
			"run_finished"
		if got := kinds(records); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		f := w.fold("s")
		if string(f.State) != `{"itinerary":["3 days in Lisbon"]}` {
			t.Errorf("state %s", f.State)
		}
		calls := toolParts(f)
		if len(calls) != 3 || calls[0].CallID != "call_0" || calls[2].CallID != "call_0-s2" {
			t.Errorf("calls %s", mustJSON(calls))
		}
		for _, c := range calls {
			if c.State != chunk.ToolCompleted || c.EffectID == "" {
				t.Errorf("call %s", mustJSON(c))
			}
		}
		if f.Status != chunk.StatusEnded || f.Reason != "completed" || f.Usage.OutputTokens == 0 {
			t.Errorf("status %s %s, usage %+v", f.Status, f.Reason, f.Usage)
		}
		end := w.finished("s")[0]
		if end.Usage == nil || *end.Usage != f.Usage || end.FinishReason != "stop" {
			t.Errorf("end %s", mustJSON(end))
		}
		if len(f.Checkpoints) != 3 || !strings.HasPrefix(f.Checkpoints[1].ID, "cpv1-s-s2-t") {
			t.Errorf("checkpoints %s", mustJSON(f.Checkpoints))
		}
		info, err := w.store.(spool.Lister).Session(w.t.Context(), "s")
		if err != nil || info.Status != chunk.StatusEnded || info.Title != "tools please" || info.Agent != "demo" || info.Head.Due != 0 {
			t.Errorf("row %+v, %v", info, err)
		}
	})
}

// A title that somebody gave the session stays; else the user's first words are it.
func TestTitleThatWasGivenStays(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		for _, given := range []string{"mine", ""} {
			session := "s" + given
			if _, err := w.log(session).Command(w.t.Context(), spool.Row{Title: given}, say("u1", "hello  you\nthere")); err != nil {
				t.Fatal(err)
			}
			w.settled(session)
			w.say(session, "u2", "again")
			w.settled(session)
			want := given
			if want == "" {
				want = "hello you"
			}
			if info, err := w.store.(spool.Lister).Session(w.t.Context(), session); err != nil || info.Title != want {
				t.Errorf("title %q, want %q, %v", info.Title, want, err)
			}
		}
	})
}

func TestEveryRecordOfARunNamesIt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "tools")
		step := 0
		for _, r := range w.settled("s") {
			if chunk.IsCommand(r.Type) {
				continue
			}
			b := w.decode(r).ChunkBase()
			if b.RunID == "" || b.AgentID != "s" || b.AgentType != "demo" || b.Timestamp == 0 {
				t.Errorf("%d %s: %+v", r.Seq, r.Type, b)
			}
			if r.Type == chunk.TypeStepStarted {
				step++
			}
			outside := r.Type == chunk.TypeRunStarted || r.Type == chunk.TypeRunFinished
			if outside != (b.Step == 0) || !outside && b.Step != step {
				t.Errorf("%d %s: step %d of %d", r.Seq, r.Type, b.Step, step)
			}
		}
	})
}

func TestConversation(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		for _, id := range []string{"u1", "u2", "u3"} {
			w.say("s", id, "tools")
			w.settled("s")
		}
		f := w.fold("s")
		if len(f.Messages) != 6 || len(f.Turns) != 3 {
			t.Fatalf("%d messages, %d turns", len(f.Messages), len(f.Turns))
		}
		seen := map[string]bool{}
		for _, c := range toolParts(f) {
			if seen[c.CallID] {
				t.Errorf("call id %s is used twice", c.CallID)
			}
			seen[c.CallID] = true
		}
		if len(seen) != 9 {
			t.Errorf("%d calls", len(seen))
		}
		if got := string(f.State); got != `{"itinerary":["3 days in Lisbon","3 days in Lisbon","3 days in Lisbon"]}` {
			t.Errorf("state %s", got)
		}
	})
}

func TestToolOutcomes(t *testing.T) {
	for name, tt := range map[string]struct {
		calls   []scripted.ToolCall
		kinds   string // of the first step's tool phase
		errors  []string
		outcome chunk.Outcome
		code    string
	}{
		"error":     {[]scripted.ToolCall{call("a", "fails", "{}")}, "tool_start state_patch state_patch tool_end", []string{"it did not work"}, "completed", ""},
		"panic":     {[]scripted.ToolCall{call("a", "panics", "")}, "tool_start tool_end", []string{"the tool panicked"}, "completed", ""},
		"unknown":   {[]scripted.ToolCall{call("a", "fly", "{}")}, "tool_input_error", []string{`there is no tool "fly"`}, "completed", ""},
		"not JSON":  {[]scripted.ToolCall{call("a", "get_weather", `{"city":`)}, "tool_input_error", []string{"not valid JSON"}, "completed", ""},
		"bad input": {[]scripted.ToolCall{call("a", "get_weather", `{"town":"x"}`)}, "tool_input_error", []string{"town"}, "completed", ""},
		"fatal":     {[]scripted.ToolCall{call("a", "fatal", "{}")}, "tool_start tool_end", []string{"no licence"}, "failed", "tool_fatal"},
		"fatal cancels": {[]scripted.ToolCall{call("a", "slow", "{}"), call("b", "fatal", "{}")}, "tool_start tool_start tool_end tool_end",
			[]string{"context canceled", "no licence"}, "failed", "tool_fatal"},
		"one of two": {[]scripted.ToolCall{call("a", "fails", "{}"), call("b", "get_weather", `{"city":"Rome"}`)},
			"tool_start tool_start state_patch state_patch tool_end progress tool_end", []string{"it did not work", ""}, "completed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start(demo(map[string]scripted.Scene{"go": useTool(tt.calls...)}), nil)
				w.say("s", "u1", "go")
				records := w.settled("s")
				_, phase, _ := strings.Cut(kinds(records), "assistant_message ")
				phase, _, _ = strings.Cut(phase, " step_committed")
				if phase != tt.kinds {
					t.Errorf("tool phase %s, want %s", phase, tt.kinds)
				}
				f := w.fold("s")
				for i, c := range toolParts(f) {
					if !strings.Contains(c.Error, tt.errors[i]) || (c.Error == "") != (tt.errors[i] == "") {
						t.Errorf("call %d: %s", i, mustJSON(c))
					}
				}
				if f.Reason != string(tt.outcome) || tt.code != "" && f.Error.Code != tt.code {
					t.Errorf("%s %+v", f.Reason, f.Error)
				}
				if tt.outcome == chunk.OutcomeCompleted && !strings.Contains(f.Messages[1].Text(), "done") {
					t.Errorf("the run did not go on: %q", f.Messages[1].Text())
				}
				if len(f.State) > 0 && string(f.State) != "{}" {
					t.Errorf("a failed call changed the state: %s", f.State)
				}
			})
		})
	}
}

func TestFailScene(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "fail now")
		f := w.fold("s")
		if f.Status != chunk.StatusFailed || f.Error.Code != "provider_unavailable" {
			t.Errorf("%s %+v", f.Status, f.Error)
		}
		if got := f.Messages[1].Text(); !strings.HasPrefix(got, "I will begin to answer") {
			t.Errorf("the partial is gone: %q", got)
		}
		want := "user_message run_started step_started text_delta assistant_message step_committed error run_finished"
		if got := kinds(w.settled("s")); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		w.say("s", "u2", "hello") // a failed turn does not end the session
		if f := w.fold("s"); f.Status != chunk.StatusEnded || len(f.Turns) != 2 {
			t.Errorf("%s, %d turns", f.Status, len(f.Turns))
		}
	})
}

package aisdk_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

// project returns what the turn's records become, and the projector.
func project(t testing.TB, l *logOf, turn string, o *aisdk.Options) ([]spool.Frame, *aisdk.Projector) {
	t.Helper()
	p := aisdk.NewProjector(wire.Subject{Turn: turn, Resolve: l.resolve}, o)
	var frames []spool.Frame
	for _, r := range l.records {
		var err error
		if frames, err = p.Apply(frames, r); err != nil {
			t.Fatal(err)
		}
	}
	return frames, p
}

func planOf(t testing.TB, p spool.Projector) []spool.Frame {
	t.Helper()
	plan, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// events returns the events' JSON, one a line, without the transient ones.
func events(frames []spool.Frame) string {
	var lines []string
	for _, f := range frames {
		line := strings.TrimSuffix(strings.TrimPrefix(string(f.Data), "data: "), "\n\n")
		if !strings.HasSuffix(line, `"transient":true}`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func wantTail(t *testing.T, got string, want ...string) {
	t.Helper()
	if tail := strings.Join(want, "\n"); !strings.HasSuffix(got, "\n"+tail) {
		t.Errorf("got\n%s\nwant it to end with\n%s", got, tail)
	}
}

func TestEnds(t *testing.T) {
	open := func() *logOf { return newLog(t).user("t").start("r", "t", "t").begin().text("Hello") }
	const closing = `{"type":"text-end","id":"block-1"}`
	const metadata = `,"messageMetadata":{"tokens":{"out":7}}}`
	tests := map[string]struct {
		log  *logOf
		want []string
	}{
		"completed": {open().said().commit().finish(chunk.OutcomeCompleted, "stop"),
			[]string{closing, `{"type":"finish-step"}`, `{"type":"finish","finishReason":"stop"` + metadata, "[DONE]"}},
		"completed by length": {open().said().commit().finish(chunk.OutcomeCompleted, "length"),
			[]string{closing, `{"type":"finish-step"}`, `{"type":"finish","finishReason":"length"` + metadata, "[DONE]"}},
		"stopped": {open().settle("stopped").finish(chunk.OutcomeStopped, "other"),
			[]string{closing, `{"type":"finish-step"}`, `{"type":"data-run-interrupted","data":{"reason":"stopped","runId":"r"}}`,
				`{"type":"abort"}`, `{"type":"finish","finishReason":"other"` + metadata, "[DONE]"}},
		"steered": {open().settle("").finish(chunk.OutcomeSteered, "stop"),
			[]string{closing, `{"type":"finish-step"}`, `{"type":"finish","finishReason":"other"` + metadata, "[DONE]"}},
		"limit": {open().settle("").finish(chunk.OutcomeLimit, "other"),
			[]string{closing, `{"type":"finish-step"}`, `{"type":"finish","finishReason":"length"` + metadata, "[DONE]"}},
		"failed": {open().settle("").finish(chunk.OutcomeFailed, "error"),
			[]string{closing, `{"type":"finish-step"}`, `{"type":"data-error","data":{"error":"the model went away","code":"provider_failed"}}`,
				`{"type":"error","errorText":"the model went away"}`, `{"type":"finish","finishReason":"error"` + metadata, "[DONE]"}},
		"interrupted": {open().settle("").add(&chunk.RunSuspended{Kind: "interrupted"}),
			[]string{closing, `{"type":"finish-step"}`, `{"type":"data-run-interrupted","data":{"reason":"interrupted","runId":"r"}}`,
				`{"type":"finish","finishReason":"other"}`, "[DONE]"}},
		"awaiting a client tool": {open().call("c", "where", "{}").said().dispatch("c", "where", "{}").
			add(&chunk.RunSuspended{Kind: "awaiting_client_tool", ToolCallIDs: []string{"c"}}),
			[]string{`{"type":"tool-input-available","toolCallId":"c","toolName":"where","input":{},"dynamic":true}`,
				`{"type":"finish-step"}`, `{"type":"finish","finishReason":"tool-calls"}`, "[DONE]"}},
		"completed with tools last": {open().call("c", "where", "{}").said().dispatch("c", "where", "{}").result("c", "where", "1").
			commit().finish(chunk.OutcomeCompleted, "tool-calls"),
			[]string{`{"type":"tool-output-available","toolCallId":"c","output":1,"dynamic":true}`, `{"type":"finish-step"}`,
				`{"type":"start-step"}`, `{"type":"finish-step"}`, `{"type":"start","messageId":"a-t"}`, `{"type":"finish","finishReason":"tool-calls"` + metadata, "[DONE]"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			live, p := project(t, test.log, "t", nil)
			wantTail(t, events(live), test.want...)
			terminal := 0
			for _, f := range live {
				if f.Terminal {
					terminal++
				}
			}
			want := 2
			if name == "stopped" || strings.HasPrefix(name, "failed") {
				want = 3
			}
			if terminal != want {
				t.Errorf("%d terminal frames, want %d", terminal, want)
			}
			if plan := planOf(t, p); !plan[len(plan)-1].Terminal || string(plan[len(plan)-1].Data) != "data: [DONE]\n\n" {
				t.Error("the plan of a turn that has ended does not end")
			}
			checkLog(t, test.log, aisdk.Options{})
		})
	}
}

func TestDiscardedPhaseCutsReaders(t *testing.T) {
	l := newLog(t).user("t").start("r", "t", "t").begin().text("Wrong").
		add(&chunk.StepDiscarded{StepID: "r.1", Reason: "crash_recovery"},
			&chunk.StreamResync{CheckpointID: "c", Reason: "crash_recovery"}).
		begin().text("Right").said().commit().finish(chunk.OutcomeCompleted, "stop")
	p := aisdk.NewProjector(wire.Subject{Turn: "t"}, nil)
	var cut []spool.Frame
	for _, r := range l.records {
		frames, err := p.Apply(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Type == chunk.TypeStepDiscarded {
			cut = frames
		}
	}
	want := []string{"text-end", "data-step-discarded", "data-stream-resync"}
	got := strings.Split(strings.TrimSpace(joined(cut)), "\n\n")
	if len(got) != 3 {
		t.Fatalf("got %q", got)
	}
	for i, name := range want {
		if !strings.HasPrefix(got[i], `data: {"type":"`+name+`"`) {
			t.Errorf("frame %d is %s, want %s", i, got[i], name)
		}
	}
	for i, f := range cut {
		if f.Seq != 0 || f.Cut != (i == len(cut)-1) {
			t.Errorf("frame %d: sequence %d, cut %v", i, f.Seq, f.Cut)
		}
	}
	if plan := joined(planOf(t, p)); strings.Contains(plan, "Wrong") || !strings.Contains(plan, `"id":"block-1","delta":"Right"`) {
		t.Errorf("plan: %s", plan)
	}

	live, _ := project(t, l, "t", &aisdk.Options{UI7: true})
	if s := joined(live); !strings.Contains(s, `{"type":"reset-step"}`) || strings.Contains(s, "data-stream-resync\",\"data\":{\"reason") {
		t.Errorf("ui 7: %s", s)
	}
	rd, err := read(&aisdk.Options{UI7: true}, live, true)
	if err != nil || rd.cut {
		t.Fatal(err, rd.cut)
	}
	if n := len(rd.client.Message.Parts); n != 2 {
		t.Errorf("ui 7: %d parts, want a step and its text", n)
	}
}

func TestApprovals(t *testing.T) {
	for _, approved := range []bool{true, false} {
		l := newLog(t).user("t").start("r", "t", "t").begin().call("c", "pay", `{"sum":3}`).said()
		l.add(&chunk.ToolApprovalRequest{ApprovalID: "a", ToolCallID: "c", ToolName: "pay", Input: json.RawMessage(`{"sum":3}`)},
			&chunk.RunSuspended{Kind: "awaiting_approval", ToolCallIDs: []string{"c"}})
		live, _ := project(t, l, "t", nil)
		wantTail(t, events(live), `{"type":"tool-approval-request","approvalId":"a","toolCallId":"c"}`,
			`{"type":"finish-step"}`, `{"type":"finish","finishReason":"tool-calls"}`, "[DONE]")

		l.add(&chunk.ToolApprovalResponse{CommandID: "d", ApprovalID: "a", Approved: approved, Reason: "no money"})
		live, _ = project(t, l, "t", nil)
		answered := len(live)
		if !approved {
			wantTail(t, events(live), `{"type":"tool-output-denied","toolCallId":"c"}`, `{"type":"finish","finishReason":"tool-calls"}`, "[DONE]")
		}
		l.start("r2", "t", "d")
		if approved {
			l.dispatch("c", "pay", `{"sum":3}`).result("c", "pay", `"paid"`)
		}
		l.commit().begin().text("Done.").said().commit().finish(chunk.OutcomeCompleted, "stop")
		live, _ = project(t, l, "t", nil)
		want := `{"type":"tool-output-denied","toolCallId":"c"}`
		if approved {
			want = `{"type":"tool-output-available","toolCallId":"c","output":"paid","dynamic":true}`
		}
		segment := strings.Split(events(live[answered:]), "\n")
		if !strings.HasPrefix(segment[0], `{"type":"start","messageId":"a-t"`) || segment[1] != want || segment[2] != `{"type":"start-step"}` {
			t.Errorf("approved %v: the next run begins with\n%s", approved, strings.Join(segment[:3], "\n"))
		}
		if strings.Count(events(live), "tool-input-available") != 1 {
			t.Error("the input was sent again")
		}
		for _, o := range profiles {
			checkLog(t, l, o)
		}
	}
}

func TestOutputOfAnUnknownCall(t *testing.T) {
	l := newLog(t).user("t").start("r", "t", "t").begin().result("x", "late", "1").said().commit().finish(chunk.OutcomeCompleted, "stop")
	live, _ := project(t, l, "t", nil)
	if s := events(live); !strings.Contains(s, `{"type":"tool-input-available","toolCallId":"x","toolName":"late","input":{},"dynamic":true}`+"\n"+
		`{"type":"tool-output-available","toolCallId":"x","output":1,"dynamic":true}`) {
		t.Error(s)
	}
	checkLog(t, l, aisdk.Options{})
}

func TestInputAgainOnlyIfItDiffers(t *testing.T) {
	for arguments, want := range map[string]int{`{ "b": 2, "a": 1.0 }`: 1, `{"a":1,"b":3}`: 2} {
		l := newLog(t).user("t").start("r", "t", "t").begin().call("c", "x", `{"a":1,"b":2}`).said().dispatch("c", "x", arguments)
		live, _ := project(t, l, "t", nil)
		if n := strings.Count(events(live), "tool-input-available"); n != want {
			t.Errorf("%s: sent %d times, want %d", arguments, n, want)
		}
	}
}

func TestErrors(t *testing.T) {
	log := func() *logOf {
		return newLog(t).user("t").start("r", "t", "t").begin().
			add(&chunk.ErrorChunk{Error: "busy", Code: "rate_limited", Recoverable: true}, &chunk.ErrorChunk{Error: "gone"}).
			text("x").said().commit().add(&chunk.RunFinished{Outcome: chunk.OutcomeFailed})
	}
	live, _ := project(t, log(), "t", nil)
	s := joined(live)
	for _, want := range []string{
		`{"type":"data-error","data":{"error":"busy","code":"rate_limited","recoverable":true}}`,
		`{"type":"data-error","data":{"error":"gone"},"transient":true}`,
		`{"type":"error","errorText":"gone"}`,
	} {
		if strings.Count(s, want) != 1 {
			t.Errorf("%s: not once in %s", want, s)
		}
	}
	if strings.Index(s, `"type":"error"`) < strings.Index(s, `"type":"text-end"`) {
		t.Error("an error frame before the end: clients would read nothing after it")
	}
	live, _ = project(t, log(), "t", &aisdk.Options{LiteralErrors: true})
	if s := joined(live); !strings.Contains(s, `{"type":"error","errorText":"busy"}`) || strings.Contains(s, "data-error") {
		t.Errorf("literal: %s", s)
	}
}

func TestFilter(t *testing.T) {
	o := aisdk.Options{ChunkFilter: func(c chunk.Chunk) bool {
		switch c.ChunkType() {
		case chunk.TypeThinking, chunk.TypeStatePatch, chunk.TypeProgress, chunk.TypeStepCommitted:
			return false
		}
		return true
	}}
	live, p := project(t, toolsTurn(t), "t", &o)
	for what, s := range map[string]string{"stream": joined(live), "plan": joined(planOf(t, p))} {
		for _, gone := range []string{"reasoning", "state-patch", "progress", "step-committed"} {
			if strings.Contains(s, gone) {
				t.Errorf("%s is in the %s", gone, what)
			}
		}
		if !strings.Contains(s, `"id":"block-2"`) || !strings.Contains(s, "finish-step") {
			t.Errorf("the %s lacks what was not dropped: %s", what, s)
		}
	}
	a, err := read(&o, live, true)
	if err != nil {
		t.Fatal(err)
	}
	b, err := read(&o, planOf(t, p), true)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(canonical(t, a.client.Message, &o), canonical(t, b.client.Message, &o)); d != "" {
		t.Error(d)
	}
}

// What a filter drops is in no stream, no plan and no converted message.
func TestFilterEverywhere(t *testing.T) {
	o := aisdk.Options{ChunkFilter: func(c chunk.Chunk) bool {
		if custom, ok := c.(*chunk.Custom); ok {
			return custom.EventName != "note"
		}
		return !chunk.Is(c, chunk.TypeThinking, chunk.TypeProgress, chunk.TypeCitation, chunk.TypeOutput, chunk.TypeError, chunk.TypeStatePatch)
	}}
	flat := o
	flat.SubAgents = aisdk.Flatten
	checkLog(t, toolsTurn(t), o)
	for seed := range uint64(3) {
		checkCuts(t, randomLog(t, seed), o, 7)
		checkCuts(t, randomLog(t, seed), flat, 7)
	}
}

func TestPlanOfALongText(t *testing.T) {
	l := newLog(t).user("t").start("r", "t", "t").begin()
	piece := strings.Repeat("é\u2028\"\x01abcdefgh", 100)
	for range 2000 {
		l.text(piece)
	}
	_, p := project(t, l, "t", nil)
	plan := planOf(t, p)
	bytes := 0
	for _, f := range plan {
		bytes += len(f.Data)
		if len(f.Data) > 256<<10 {
			t.Errorf("a frame of %d bytes", len(f.Data))
		}
	}
	if limit := 4 + bytes/(250<<10); len(plan) > limit {
		t.Errorf("%d frames for %d bytes, want at most %d", len(plan), bytes, limit)
	}
	rd, err := read(&aisdk.Options{}, plan, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := rd.client.Message.Parts[1]; got.Text != strings.Repeat(piece, 2000) || got.State != "streaming" {
		t.Errorf("%d bytes, %s", len(got.Text), got.State)
	}
}

func TestRecordsOfOthersBecomeNothing(t *testing.T) {
	l := toolsTurn(t)
	for _, turn := range []string{"other", ""} {
		frames, p := project(t, l, turn, nil)
		if len(frames) > 0 || len(planOf(t, p)) > 0 {
			t.Errorf("turn %q: %s", turn, joined(frames))
		}
	}
	p := aisdk.NewProjector(wire.Subject{Turn: "t"}, nil)
	if _, err := p.Apply(nil, chunk.Record{Seq: 1, Type: chunk.TypeRunStarted, Agent: "s", Data: json.RawMessage("not JSON")}); err == nil {
		t.Error("a record that is no JSON went unnoticed")
	}
}

func TestResolvedValues(t *testing.T) {
	ref := `{"$blob":"sha256:aa","size":5}`
	l := newLog(t).user("t").start("r", "t", "t").begin().call("c", "x", "{}").said().dispatch("c", "x", ref).
		result("c", "x", ref).add(&chunk.Custom{EventName: "n", Data: json.RawMessage(ref)}).commit().finish(chunk.OutcomeCompleted, "stop")
	l.resolve = func(v json.RawMessage) (json.RawMessage, error) {
		if string(v) == ref {
			return json.RawMessage(`{"big":` + "\n" + `"value"}`), nil
		}
		return v, nil
	}
	live, p := project(t, l, "t", nil)
	for _, s := range []string{joined(live), joined(planOf(t, p))} {
		if strings.Contains(s, "$blob") || strings.Count(s, `{"big":"value"}`)+strings.Count(s, `{\"big\":\"value\"}`) != 3 {
			t.Error(s)
		}
	}
	checkLog(t, l, aisdk.Options{})
}

func TestBlockIDs(t *testing.T) {
	o := aisdk.Options{BlockID: func(i int) string { return strings.Repeat("b", i+1) }}
	live, p := project(t, toolsTurn(t), "t", &o)
	for _, s := range []string{joined(live), joined(planOf(t, p))} {
		for _, want := range []string{`{"type":"reasoning-start","id":"b"}`, `{"type":"text-end","id":"bb"}`, `{"type":"text-end","id":"bbb"}`} {
			if !strings.Contains(s, want) {
				t.Errorf("%s is not in %s", want, s)
			}
		}
	}
}

func TestASettledPhaseThatTakesWordsBackCutsReaders(t *testing.T) {
	l := newLog(t).user("t").start("r", "t", "t").begin().text("What was never", " said")
	l.add(&chunk.AssistantMessage{MessageID: "a-t", StepID: "r.1", Parts: []chunk.Part{{Type: chunk.PartText, First: 4, Text: "Other words"}}})
	l.commit().finish(chunk.OutcomeCompleted, "stop")
	p := aisdk.NewProjector(wire.Subject{Turn: "t"}, nil)
	cuts := 0
	for _, r := range l.records {
		frames, err := p.Apply(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range frames {
			if f.Cut {
				cuts++
				if r.Type != chunk.TypeAssistantMessage || i != len(frames)-1 || f.Seq != 0 {
					t.Errorf("record %d: frame %d cuts", r.Seq, i)
				}
			}
		}
	}
	if cuts != 1 {
		t.Errorf("cut %d times", cuts)
	}
	checkLog(t, l, aisdk.Options{})
}

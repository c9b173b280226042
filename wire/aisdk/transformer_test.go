package aisdk_test

import (
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/aisdk"
)

func agent() chunk.Base { return chunk.Base{AgentID: "s"} }

// chunks are what an agent without a log writes.
func chunks() []chunk.Chunk {
	return []chunk.Chunk{
		&chunk.TextDelta{Base: agent(), Delta: "Hello"},
		&chunk.ToolStart{Base: agent(), ToolCallID: "c", ToolName: "x", Arguments: json.RawMessage(`{"a":1}`)},
		&chunk.TextDelta{Base: chunk.Base{AgentID: "s.1"}, Delta: "a child's"},
		&chunk.ToolEnd{Base: agent(), ToolCallID: "c", ToolName: "x", Result: json.RawMessage("1"), Success: true},
		&chunk.TextDelta{Base: agent(), Delta: "Bye"},
	}
}

func TestTransformer(t *testing.T) {
	tr := aisdk.NewTransformer(&aisdk.TransformerOptions{
		StartMetadata:     func(agent string) json.RawMessage { return json.RawMessage(`{"agent":"` + agent + `"}`) },
		FinishMetadata:    func(string) json.RawMessage { return json.RawMessage(`{"cost":1}`) },
		GenerateMessageID: func(agent string) string { return "answer-of-" + agent },
	})
	var frames []spool.Frame
	for i, c := range chunks() {
		out, seq := tr.Transform(c)
		if seq != uint64(i+1) {
			t.Errorf("chunk %d has sequence %d", i, seq)
		}
		frames = append(frames, out...)
	}
	frames = append(frames, tr.Finalize()...)
	want := `{"type":"start","messageId":"answer-of-s","messageMetadata":{"agent":"s"}}
{"type":"text-start","id":"block-1"}
{"type":"text-delta","id":"block-1","delta":"Hello"}
{"type":"text-end","id":"block-1"}
{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{"a":1},"dynamic":true}
{"type":"tool-output-available","toolCallId":"c","output":1,"dynamic":true}
{"type":"text-start","id":"block-2"}
{"type":"text-delta","id":"block-2","delta":"Bye"}
{"type":"text-end","id":"block-2"}
{"type":"finish","finishReason":"stop","messageMetadata":{"cost":1}}
[DONE]`
	if got := events(frames); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if more := tr.Finalize(); more != nil {
		t.Errorf("finalized twice: %s", joined(more))
	}
	if more, _ := tr.Transform(chunks()[0]); more != nil {
		t.Errorf("a chunk after the end: %s", joined(more))
	}
}

func TestTransformerEndsOnce(t *testing.T) {
	tr := aisdk.NewTransformer(nil)
	var frames []spool.Frame
	for _, c := range []chunk.Chunk{
		&chunk.RunStarted{Base: agent(), TurnID: "t"},
		&chunk.TextDelta{Base: agent(), Delta: "x"},
		&chunk.RunFinished{Base: agent(), Outcome: chunk.OutcomeStopped},
	} {
		out, _ := tr.Transform(c)
		frames = append(frames, out...)
	}
	frames = append(frames, tr.Finalize()...)
	got := events(frames)
	wantTail(t, got, `{"type":"text-end","id":"block-1"}`, `{"type":"data-run-interrupted","data":{"reason":"stopped","runId":""}}`,
		`{"type":"abort"}`, `{"type":"finish","finishReason":"other"}`, "[DONE]")
	if !strings.HasPrefix(got, `{"type":"start","messageId":"msg-s"}`) {
		t.Error(got)
	}
}

func TestTransformerTellsFatalErrorsAtOnce(t *testing.T) {
	tr := aisdk.NewTransformer(nil)
	frames, _ := tr.Transform(&chunk.ErrorChunk{Base: agent(), Error: "busy", Recoverable: true})
	more, _ := tr.Transform(&chunk.ErrorChunk{Base: agent(), Error: "gone"})
	frames = append(append(frames, more...), tr.Finalize()...)
	wantTail(t, events(frames), `{"type":"data-error","data":{"error":"busy","recoverable":true}}`,
		`{"type":"error","errorText":"gone"}`, `{"type":"finish","finishReason":"error"}`, "[DONE]")
}

func TestTransformerOfNothing(t *testing.T) {
	tr := aisdk.NewTransformer(nil)
	if frames, _ := tr.Transform(&chunk.ToolStart{Base: agent(), Arguments: json.RawMessage("{")}); frames != nil {
		t.Errorf("a chunk that is no JSON: %s", joined(frames))
	}
	wantTail(t, "\n"+events(tr.Finalize()), `{"type":"start","messageId":"msg-"}`, `{"type":"finish","finishReason":"stop"}`, "[DONE]")
}

func TestToDataStream(t *testing.T) {
	failure := errors.New("lost")
	for _, fail := range []bool{false, true} {
		source := iter.Seq2[chunk.Chunk, error](func(yield func(chunk.Chunk, error) bool) {
			for _, c := range chunks() {
				if !yield(c, nil) {
					return
				}
			}
			if fail {
				yield(nil, failure)
			}
		})
		var frames []spool.Frame
		var failed error
		for f, err := range aisdk.ToDataStream(source, nil) {
			if err != nil {
				failed = err
				break
			}
			frames = append(frames, f)
		}
		if done := strings.HasSuffix(joined(frames), "data: [DONE]\n\n"); done == fail || fail != errors.Is(failed, failure) {
			t.Errorf("fail %v: done %v, error %v", fail, done, failed)
		}
		for range aisdk.ToDataStream(source, nil) {
			break // a reader may leave
		}
	}
}

func TestReplayGoesOnInTheOpenBlock(t *testing.T) {
	l := newLog(t).user("t").start("r", "t", "t").begin().add(&chunk.Thinking{Content: "Hm", IsComplete: true}).text("Hel")
	_, p := project(t, l, "t", nil)
	content := aisdk.ReplayContentOf(p.Message())
	if !aisdk.HasReplayContent(content) || aisdk.HasReplayContent(aisdk.ReplayContent{}) || aisdk.HasReplayContent(aisdk.ReplayContentOf(nil)) {
		t.Error("wrong answer to whether there is anything to replay")
	}
	r := aisdk.CreateReplayEvents(content, nil)
	if r.MessageID != "a-t" || r.TextBlockID != "block-2" || r.ReasoningBlockID != "" {
		t.Errorf("%+v", r)
	}
	if got, want := joined(r.Frames), joined(planOf(t, p)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	next := l.text("lo").records[len(l.records)-1]
	live, err := p.Apply(nil, next)
	if err != nil || joined(live) != "data: {\"type\":\"text-delta\",\"id\":\""+r.TextBlockID+"\",\"delta\":\"lo\"}\n\n" {
		t.Errorf("%v %s", err, joined(live))
	}

	ids := 0
	content.MessageID = ""
	r = aisdk.CreateReplayEvents(content, &aisdk.ReplayOptions{AgentID: "s", GenerateBlockID: func() string { ids++; return strings.Repeat("b", ids) }})
	if r.MessageID != "msg-s" || r.TextBlockID != "bb" || !strings.Contains(joined(r.Frames), `{"type":"reasoning-end","id":"b"}`) {
		t.Errorf("%+v %s", r, joined(r.Frames))
	}
}

func TestRespond(t *testing.T) {
	frames := func(fail bool) iter.Seq2[spool.Frame, error] {
		return func(yield func(spool.Frame, error) bool) {
			if yield(spool.Frame{Data: []byte("data: {}\n\n"), Seq: 7}, nil) && yield(spool.Frame{Data: []byte("data: [DONE]\n\n")}, nil) && fail {
				yield(spool.Frame{}, errors.New("lost"))
			}
		}
	}
	w := httptest.NewRecorder()
	aisdk.Respond(w, http.Header{"x-custom": {"1"}, "Cache-Control": {"no-store"}}, frames(false))
	if got := w.Body.String(); got != "id: 7\ndata: {}\n\ndata: [DONE]\n\n" || !w.Flushed {
		t.Errorf("%q", got)
	}
	for name, want := range map[string]string{
		"content-type": "text/event-stream", "x-vercel-ai-ui-message-stream": "v1", "x-accel-buffering": "no", "connection": "keep-alive",
		"x-custom": "1", "cache-control": "no-store",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("a stream that failed ended like one that did not")
		}
	}()
	aisdk.Respond(httptest.NewRecorder(), nil, frames(true))
}

func TestTransformerEndsWithAnEmptyStep(t *testing.T) {
	tr := aisdk.NewTransformer(nil)
	var frames []spool.Frame
	for _, c := range append([]chunk.Chunk{&chunk.StepStarted{Base: agent()}}, chunks()...) {
		out, _ := tr.Transform(c)
		frames = append(frames, out...)
	}
	frames = append(frames, tr.Finalize()...)
	rd, err := read(&aisdk.Options{}, frames, true)
	if err != nil {
		t.Fatal(err)
	}
	parts := rd.client.Message.Parts
	if n := len(parts); n != 5 || parts[n-1].Type != "step-start" || rd.client.Message.ID != "msg-s" {
		t.Errorf("%+v", rd.client.Message)
	}
}

// TestEveryChunkHasItsFrame: what each kind of chunk becomes. Those that say how
// a run goes on are their own payload, and are forgotten.
func TestEveryChunkHasItsFrame(t *testing.T) {
	cp := "cp-1"
	transient := []struct {
		c    chunk.Chunk
		name string
	}{
		{&chunk.SubAgentStart{SubAgentType: "helper", SubSessionID: "s.1", CallID: "c"}, "data-subagent-start"},
		{&chunk.SubAgentEnd{SubAgentType: "helper", SubSessionID: "s.1", CallID: "c", Result: json.RawMessage("1")}, "data-subagent-end"},
		{&chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "remove", Path: "/a"}}}, "data-state-patch"},
		{&chunk.RunInterrupted{CheckpointID: &cp, Reason: "user"}, "data-run-interrupted"},
		{&chunk.RunResumed{FromCheckpointID: &cp, FromStepCount: 1, Mode: "continue"}, "data-run-resumed"},
		{&chunk.RunPaused{Reason: "approval", PendingToolName: "pay", PendingToolCallID: "c"}, "data-run-paused"},
		{&chunk.CheckpointCreated{CheckpointID: cp, StepCount: 1}, "data-checkpoint-created"},
		{&chunk.StepCommitted{StepID: "step", CheckpointID: cp}, "data-step-committed"},
		{&chunk.StepDiscarded{StepID: "step", Reason: "crash_recovery"}, "data-step-discarded"},
		{&chunk.StreamResync{CheckpointID: cp, StepCount: 1, MessageCount: 2, FromSequence: 3, Reason: "rollback"}, "data-stream-resync"},
		{&chunk.ExecutorSuperseded{Reason: "claimed"}, "data-executor-superseded"},
		{&chunk.RunSuspended{Kind: "awaiting_approval", ToolCallIDs: []string{"c"}}, "data-run-suspended"},
		{&chunk.Custom{EventName: "note", Data: json.RawMessage(`{"a":1}`), Transient: true}, "data-note"},
	}
	begun := func() *aisdk.Transformer {
		tr := aisdk.NewTransformer(nil)
		tr.Transform(&chunk.TextDelta{Base: agent(), Delta: "x"})
		return tr
	}
	for _, tt := range transient {
		*tt.c.ChunkBase() = chunk.Base{AgentID: "s", AgentType: "demo", Timestamp: 5, Step: 1, RunID: "r"}
		frames, _ := begun().Transform(tt.c)
		want, err := json.Marshal(tt.c)
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := tt.c.(*chunk.Custom); ok {
			want = c.Data
		}
		found := false
		for _, f := range frames {
			var e struct {
				Type      string
				Data      json.RawMessage
				Transient bool
			}
			if json.Unmarshal(f.Data[len("data: "):], &e) == nil && e.Type == tt.name {
				found = true
				if !e.Transient || !sameText(e.Data, string(want)) {
					t.Errorf("%s: %s, want its data to be %s", tt.name, f.Data, want)
				}
			}
		}
		if !found {
			t.Errorf("%s is not in %s", tt.name, joined(frames))
		}
	}
	const call = `"toolCallId":"c","toolName":"pay"`
	for want, chunks := range map[string][]chunk.Chunk{
		`{"type":"text-delta","id":"block-1","delta":"y"}`:        {&chunk.TextDelta{Delta: "y"}},
		`{"type":"reasoning-delta","id":"block-2","delta":"hm"}`:  {&chunk.Thinking{Content: "hm"}},
		`{"type":"reasoning-end","id":"block-2"}`:                 {&chunk.Thinking{Content: "hm"}, &chunk.Thinking{Content: "hm", IsComplete: true}},
		`{"type":"data-note","data":{"a":1}}`:                     {&chunk.Custom{EventName: "note", Data: json.RawMessage(`{"a":1}`)}},
		`{"type":"data-note","id":"n","data":null}`:               {&chunk.Custom{EventName: "note", ID: "n"}},
		`{"type":"data-output","data":{"a":1}}`:                   {&chunk.Output{Output: json.RawMessage(`{"a":1}`)}},
		`{"type":"error","errorText":"boom"}`:                     {&chunk.ErrorChunk{Error: "boom"}},
		`{"type":"tool-input-start",` + call + `,"dynamic":true}`: {&chunk.ToolArgStreamStart{ToolCallID: "c", ToolName: "pay"}},
		`{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{\"a\":1}"}`: {&chunk.ToolArgStreamStart{ToolCallID: "c", ToolName: "pay"},
			&chunk.ToolArgStreamDelta{ToolCallID: "c", Delta: `{"a":1}`}},
		`{"type":"tool-input-available",` + call + `,"input":{"a":1},"dynamic":true}`: {&chunk.ToolArgStreamStart{ToolCallID: "c", ToolName: "pay"},
			&chunk.ToolArgStreamDelta{ToolCallID: "c", Delta: `{"a":1}`}, &chunk.ToolArgStreamEnd{ToolCallID: "c"}},
		`{"type":"tool-input-available",` + call + `,"input":{"b":2},"dynamic":true}`: {&chunk.ToolStart{ToolCallID: "c", ToolName: "pay", Arguments: json.RawMessage(`{"b":2}`)}},
		`{"type":"tool-output-available","toolCallId":"c","output":3,"dynamic":true}`: {&chunk.ToolStart{ToolCallID: "c", ToolName: "pay"},
			&chunk.ToolEnd{ToolCallID: "c", ToolName: "pay", Result: json.RawMessage("3"), Success: true}},
		`{"type":"tool-output-error","toolCallId":"c","errorText":"no","dynamic":true}`: {&chunk.ToolStart{ToolCallID: "c", ToolName: "pay"},
			&chunk.ToolEnd{ToolCallID: "c", ToolName: "pay", Error: "no"}},
		`{"type":"tool-output-error","toolCallId":"c","errorText":"out","dynamic":true}`: {&chunk.ToolStart{ToolCallID: "c", ToolName: "pay"},
			&chunk.ToolOutputError{ToolCallID: "c", Error: "out"}},
		`{"type":"tool-input-error",` + call + `,"input":{"b":2},"errorText":"bad","dynamic":true}`: {
			&chunk.ToolInputError{ToolCallID: "c", ToolName: "pay", Input: json.RawMessage(`{"b":2}`), Error: "bad"}},
		`{"type":"tool-approval-request","approvalId":"a","toolCallId":"c"}`: {
			&chunk.ToolApprovalRequest{ApprovalID: "a", ToolCallID: "c", ToolName: "pay", Input: json.RawMessage(`{}`)}},
	} {
		tr := begun()
		var frames []spool.Frame
		for _, c := range chunks {
			c.ChunkBase().AgentID = "s"
			more, _ := tr.Transform(c)
			frames = append(frames, more...)
		}
		lines := strings.Split(events(frames), "\n")
		if lines[len(lines)-1] != want {
			t.Errorf("got\n%s\nwant it to end with\n%s", strings.Join(lines, "\n"), want)
		}
		// Calls and reasoning close the text before them.
		if closed := strings.Contains(events(frames), `{"type":"text-end","id":"block-1"}`); closed != (strings.Contains(want, `"tool`) || strings.Contains(want, `"reasoning`)) {
			t.Errorf("%s: the block before it is closed: %v", want, closed)
		}
	}
}

// A failed run is told once, with and without its run_finished, and whether or not the
// chunks name its error before the end.
func TestTransformerTellsAFailureOnce(t *testing.T) {
	t.Parallel()
	end := &chunk.RunFinished{Outcome: chunk.OutcomeFailed, FinishReason: "error", Error: "gone", Code: "provider_error", Recoverable: true}
	for name, tt := range map[string][]chunk.Chunk{
		"the end alone":         {end},
		"the error and the end": {&chunk.ErrorChunk{Error: "gone", Code: "provider_error", Recoverable: true, Fatal: true}, end},
		"the error alone":       {&chunk.ErrorChunk{Error: "gone", Code: "provider_error", Recoverable: true, Fatal: true}},
		"an error by hand":      {&chunk.ErrorChunk{Error: "gone"}, end},
	} {
		tr := aisdk.NewTransformer(nil)
		var frames []spool.Frame
		for _, c := range append([]chunk.Chunk{&chunk.TextDelta{Delta: "hi"}}, tt...) {
			made, _ := tr.Transform(c)
			frames = append(frames, made...)
		}
		frames = append(frames, tr.Finalize()...)
		s := joined(frames)
		if strings.Count(s, `{"type":"error","errorText":"gone"}`) != 1 || !strings.HasSuffix(s, `"finishReason":"error"}`+"\n\ndata: [DONE]\n\n") {
			t.Errorf("%s: %s", name, s)
		}
	}
}

// An outcome made by hand without an error is a success, and the chunk stays as it is.
func TestTransformerTakesOutcomesWithoutSuccess(t *testing.T) {
	t.Parallel()
	tr := aisdk.NewTransformer(nil)
	end := &chunk.ToolEnd{ToolCallID: "c", Result: json.RawMessage(`7`)}
	var frames []spool.Frame
	for _, c := range []chunk.Chunk{&chunk.ToolStart{ToolCallID: "c", ToolName: "look", Arguments: json.RawMessage(`{}`)}, end} {
		made, _ := tr.Transform(c)
		frames = append(frames, made...)
	}
	if s := joined(frames); !strings.Contains(s, `{"type":"tool-output-available","toolCallId":"c","output":7,"dynamic":true}`) || end.Success {
		t.Errorf("%s, %+v", s, end)
	}
}

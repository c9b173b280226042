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
	"github.com/spool-run/spool/wire/aisdk"
)

func agent() spool.Base { return spool.Base{AgentID: "s"} }

// chunks are what an agent without a log writes.
func chunks() []spool.Chunk {
	return []spool.Chunk{
		&spool.TextDelta{Base: agent(), Delta: "Hello"},
		&spool.ToolStart{Base: agent(), ToolCallID: "c", ToolName: "x", Arguments: json.RawMessage(`{"a":1}`)},
		&spool.TextDelta{Base: spool.Base{AgentID: "s.1"}, Delta: "a child's"},
		&spool.ToolEnd{Base: agent(), ToolCallID: "c", ToolName: "x", Result: json.RawMessage("1"), Success: true},
		&spool.TextDelta{Base: agent(), Delta: "Bye"},
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
	for _, c := range []spool.Chunk{
		&spool.RunStarted{Base: agent(), TurnID: "t"},
		&spool.TextDelta{Base: agent(), Delta: "x"},
		&spool.RunFinished{Base: agent(), Outcome: spool.OutcomeStopped},
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
	frames, _ := tr.Transform(&spool.ErrorChunk{Base: agent(), Error: "busy", Recoverable: true})
	more, _ := tr.Transform(&spool.ErrorChunk{Base: agent(), Error: "gone"})
	frames = append(append(frames, more...), tr.Finalize()...)
	wantTail(t, events(frames), `{"type":"data-error","data":{"error":"busy","recoverable":true}}`,
		`{"type":"error","errorText":"gone"}`, `{"type":"finish","finishReason":"error"}`, "[DONE]")
}

func TestTransformerOfNothing(t *testing.T) {
	tr := aisdk.NewTransformer(nil)
	if frames, _ := tr.Transform(&spool.ToolStart{Base: agent(), Arguments: json.RawMessage("{")}); frames != nil {
		t.Errorf("a chunk that is no JSON: %s", joined(frames))
	}
	wantTail(t, "\n"+events(tr.Finalize()), `{"type":"start","messageId":"msg-"}`, `{"type":"finish","finishReason":"stop"}`, "[DONE]")
}

func TestToDataStream(t *testing.T) {
	failure := errors.New("lost")
	for _, fail := range []bool{false, true} {
		source := iter.Seq2[spool.Chunk, error](func(yield func(spool.Chunk, error) bool) {
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
	l := newLog(t).user("t").start("r", "t", "t").begin().add(&spool.Thinking{Content: "Hm", IsComplete: true}).text("Hel")
	_, p := project(t, l, "t", nil)
	content := aisdk.ReplayContentOf(p.Message())
	if !aisdk.HasReplayContent(content) || aisdk.HasReplayContent(aisdk.ReplayContent{}) || aisdk.HasReplayContent(aisdk.ReplayContentOf(nil)) {
		t.Error("wrong answer to whether there is anything to replay")
	}
	r := aisdk.CreateReplayEvents(content, nil)
	if r.MessageID != "a-t" || r.TextBlockID != "block-2" || r.ReasoningBlockID != "" {
		t.Errorf("%+v", r)
	}
	if got, want := joined(r.Frames), joined(p.Plan()); got != want {
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

func TestHeaders(t *testing.T) {
	h := aisdk.Headers(http.Header{"x-custom": {"1"}, "Cache-Control": {"no-store"}})
	for name, want := range map[string]string{
		"content-type": "text/event-stream", "x-vercel-ai-ui-message-stream": "v1", "x-accel-buffering": "no", "connection": "keep-alive",
		"x-custom": "1", "cache-control": "no-store",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if !aisdk.Wants(http.Header{"X-Ai-Sdk-Ui": {"vercel-ai-sdk-ui"}}) || aisdk.Wants(http.Header{}) {
		t.Error("wrong answer to whether a request wants this wire")
	}
}

func TestExtractResumePosition(t *testing.T) {
	for _, test := range []struct {
		last, from, at string
		want, header   string
	}{
		{"3", "2", "1", "3", "Last-Event-ID"},
		{"", "2", "1", "2", "X-Resume-From-Sequence"},
		{"x", "", "p1-4.2", "p1-4.2", "X-Resume-At"},
		{"-1", "1e3", "", "", ""},
		{"0", "", "", "0", "Last-Event-ID"},
	} {
		h := http.Header{}
		h.Set("Last-Event-ID", test.last)
		h.Set("X-Resume-From-Sequence", test.from)
		h.Set("X-Resume-At", test.at)
		c, header, ok := aisdk.ExtractResumePosition(h)
		if ok != (test.want != "") || header != test.header || ok && c.String() != test.want {
			t.Errorf("%+v: %s %s %v", test, c, header, ok)
		}
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
	aisdk.Respond(w, nil, frames(false))
	if got := w.Body.String(); got != "id: 7\ndata: {}\n\ndata: [DONE]\n\n" || !w.Flushed || w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%q %v", got, w.Header())
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
	for _, c := range append([]spool.Chunk{&spool.StepStarted{Base: agent()}}, chunks()...) {
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

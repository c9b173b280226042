package stream_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/stream"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

// uiFrames returns what an AI SDK client gets of a stream's last turn: the data of its
// frames.
func uiFrames(t *testing.T, logs *spool.Logs, session string) []string {
	t.Helper()
	var turn string
	view(t, logs, session, func(f *fold.Fold) { turn = f.LastTurn().ID })
	p := aisdk.NewProjector(wire.Subject{Turn: turn, Agent: session}, nil)
	records, _, err := logs.Store().Read(t.Context(), session, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var frames []spool.Frame
	for _, r := range records {
		if frames, err = p.Apply(frames, r); err != nil {
			t.Fatal(err)
		}
	}
	var list []string
	for _, f := range frames {
		list = append(list, strings.TrimSpace(strings.TrimPrefix(string(f.Data), "data: ")))
	}
	return list
}

// events lists the types of frames.
func events(frames []string) string {
	var list []string
	for _, f := range frames {
		var e struct{ Type string }
		if json.Unmarshal([]byte(f), &e) == nil {
			list = append(list, e.Type)
		}
	}
	return strings.Join(list, " ")
}

func stored(t *testing.T, m *stream.Manager, session string) []stream.StoredChunk {
	t.Helper()
	all, err := m.GetAllChunks(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A writer refuses what it writes by itself and what is a command. Nothing of it is
// stored, and the stream ends as if it had not been tried.
func TestWriterRefusesLifecycleAndCommands(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	w := create(t, m, "s", "")
	write(t, w, &chunk.TextDelta{Delta: "Hello"})
	before := len(stored(t, m, "s"))
	foreign := chunk.Base{RunID: "another"}
	for _, c := range []chunk.Chunk{
		&chunk.RunStarted{Base: foreign, TurnID: "t", MessageID: "m", Mode: "start"},
		&chunk.RunFinished{Base: foreign, Outcome: chunk.OutcomeCompleted, FinishReason: "stop"},
		&chunk.RunSuspended{Base: foreign, Kind: chunk.SuspendedInterrupted},
		&chunk.AssistantMessage{MessageID: "m", Parts: []chunk.Part{}},
		&chunk.StepStarted{StepID: "x"}, &chunk.StepCommitted{StepID: "x"}, &chunk.StepDiscarded{StepID: "x", Reason: "rollback"},
		&chunk.AnswerStarted{StepID: "x", Cursor: "c"}, &chunk.ExecutorHandedOver{Epoch: 1},
		say("u", "hi"), &chunk.StopRequested{CommandID: "x"}, &chunk.InterruptRequested{CommandID: "x"},
		&chunk.ResumeRequested{CommandID: "x", Mode: "continue"}, &chunk.ToolApprovalResponse{CommandID: "x", ApprovalID: "a"},
		&chunk.ToolResultSubmitted{CommandID: "x", ToolCallID: "c"}, &chunk.HistoryRewound{CommandID: "x", Trigger: "edit"},
		&chunk.HistoryReplaced{CommandID: "x"},
		&chunk.Unknown{Type: chunk.TypeRunFinished, Raw: json.RawMessage(`{"type":"run_finished","outcome":7}`)},
	} {
		if err := w.Write(t.Context(), c); !errors.Is(err, stream.ErrProducerKind) || !strings.Contains(err.Error(), string(c.ChunkType())) {
			t.Errorf("%s: %v", c.ChunkType(), err)
		}
	}
	if got := len(stored(t, m, "s")); got != before {
		t.Errorf("%d chunks were stored", got-before)
	}
	r, err := m.CreateResumableReader(t.Context(), "s", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.EndStream(t.Context(), "s", json.RawMessage(`{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := r.Next(t.Context()); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if end := r.End(); end.Status != chunk.StatusEnded || end.Message == nil || string(end.Message.FinalOutput) != `{"n":1}` || end.Message.StreamID != "s" || end.Message.Timestamp == 0 {
		t.Errorf("the end: %+v", end)
	}
	for _, c := range stored(t, m, "s") {
		if c.Chunk.ChunkType() == chunk.TypeStreamEnd {
			t.Error("the control message is stored")
		}
	}
	view(t, logs, "s", func(f *fold.Fold) {
		if f.Status != chunk.StatusEnded || f.Live() || f.Messages[0].Text() != "Hello" {
			t.Errorf("%s, live %v: %s", f.Status, f.Live(), mustJSON(f.Messages))
		}
	})
}

// What producers report of their sub-agents, checkpoints and rewinds is stored as it
// is. A checkpoint is a step boundary: the kept records before it have the text.
func TestWriterTakesReports(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	w := create(t, m, "s", "")
	write(t, w, &chunk.TextDelta{Delta: "one"},
		&chunk.CheckpointCreated{CheckpointID: "cp"},
		&chunk.StreamResync{CheckpointID: "cp", StepCount: 1, MessageCount: 1, Reason: "rollback"},
		&chunk.ToolStart{ToolCallID: "c", ToolName: "subagent__x", Arguments: json.RawMessage(`{}`)},
		&chunk.SubAgentStart{SubAgentType: "researcher", SubSessionID: "child", CallID: "c"},
		&chunk.TextDelta{Base: chunk.Base{AgentID: "child"}, Delta: "the child's words"},
		&chunk.SubAgentEnd{SubAgentType: "researcher", SubSessionID: "child", CallID: "c", Result: json.RawMessage(`1`)},
		&chunk.ToolEnd{ToolCallID: "c", Result: json.RawMessage(`1`)},
		&chunk.RunPaused{Reason: "confirm"}, &chunk.RunInterrupted{}, &chunk.RunResumed{Mode: "continue"}, &chunk.ExecutorSuperseded{},
		&chunk.TextDelta{Delta: "two"})
	if err := m.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	want := []chunk.Type{"run_started", "step_started", "text_delta", "assistant_message", "step_committed", "checkpoint_created", "stream_resync",
		"step_started", "assistant_message", "tool_start", "subagent_start", "text_delta", "subagent_end", "tool_end",
		"run_paused", "run_interrupted", "run_resumed", "executor_superseded",
		"step_committed", "step_started", "text_delta", "assistant_message", "step_committed", "run_finished"}
	if got := types(stored(t, m, "s")); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	view(t, logs, "s", func(f *fold.Fold) {
		if got := f.Messages[0].Text(); got != "onetwo" || f.Call("c").State != chunk.ToolCompleted {
			t.Errorf("%q, %s", got, mustJSON(f.Messages))
		}
		if c := f.Checkpoint("cp"); c == nil || c.StepCount != 1 || c.StepID == "" {
			t.Errorf("the checkpoint: %+v", c)
		}
	})
	child, err := stream.CollectText(stream.FilterByAgentID(m.CreateReader(t.Context(), "s"), "child"))
	if err != nil || child != "the child's words" {
		t.Errorf("the child said %q, %v", child, err)
	}
}

// A call's outcome without an error is a success, with or without a result; its tool's
// name comes from the call's start. Text after it is in the next step, and no empty
// step follows it.
func TestWriterCompletesOutcomes(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	w := create(t, m, "s", "")
	write(t, w, &chunk.ToolStart{ToolCallID: "a", ToolName: "look", Arguments: json.RawMessage(`{}`)},
		&chunk.ToolStart{ToolCallID: "b", ToolName: "take", Arguments: json.RawMessage(`{}`)},
		&chunk.ToolStart{ToolCallID: "c", ToolName: "break", Arguments: json.RawMessage(`{}`)},
		&chunk.ToolStart{ToolCallID: "d", ToolName: "drop", Arguments: json.RawMessage(`{}`)},
		&chunk.ToolEnd{ToolCallID: "a", Result: json.RawMessage(`{"n":1}`)},
		&chunk.ToolEnd{ToolCallID: "b"},
		&chunk.ToolEnd{ToolCallID: "c", Error: "broken"},
		&chunk.ToolOutputError{ToolCallID: "d", Error: "dropped"},
		&chunk.TextDelta{Delta: "Done."})
	if err := m.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	var ends []string
	for _, c := range stored(t, m, "s") {
		switch c := c.Chunk.(type) {
		case *chunk.ToolEnd:
			ends = append(ends, fmt.Sprint(c.ToolName, " ", c.Success, " ", string(c.Result), " ", c.Error))
		case *chunk.ToolOutputError:
			ends = append(ends, fmt.Sprint(c.ToolName, " ", c.Error))
		}
	}
	if want := []string{`look true {"n":1} `, `take true null `, `break false null broken`, `drop dropped`}; !slices.Equal(ends, want) {
		t.Errorf("the outcomes: %q", ends)
	}
	want := "start start-step tool-input-available tool-input-available tool-input-available tool-input-available " +
		"tool-output-available tool-output-available tool-output-error tool-output-error finish-step data-step-committed " +
		"start-step text-start text-delta text-end finish-step data-step-committed finish"
	if got := events(uiFrames(t, logs, "s")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A call that names no arguments has those that were streamed for it.
func TestWriterCompletesArguments(t *testing.T) {
	inWorld(t, func(w *world) {
		m, e := stream.NewManager(w.logs, nil), stream.NewExternal(w.logs, nil)
		large := `{"text":"` + strings.Repeat("x", 100_000) + `","$blob":1}`
		chunks := func() []chunk.Chunk {
			var list []chunk.Chunk
			for id, text := range map[string]string{"a": `{"n":1}`, "b": ""} {
				list = append(list, &chunk.ToolArgStreamStart{ToolCallID: id, ToolName: "look"})
				if text != "" {
					list = append(list, &chunk.ToolArgStreamDelta{ToolCallID: id, Delta: text})
				}
				list = append(list, &chunk.ToolArgStreamEnd{ToolCallID: id})
			}
			list = append(list, &chunk.ToolArgStreamEnd{ToolCallID: "c", ToolName: "look", Arguments: json.RawMessage(large)})
			for _, id := range []string{"a", "b", "c", "d"} {
				list = append(list, &chunk.ToolStart{ToolCallID: id, ToolName: "look"})
			}
			return list
		}
		out, err := m.CreateWriter(w.t.Context(), "s", "", "")
		for _, c := range chunks() {
			err = errors.Join(err, out.Write(w.t.Context(), c))
		}
		if err != nil {
			t.Fatal(err)
		}
		w.produce(e, w.claim(e, "x"), 0, chunks()...)
		for _, session := range []string{"s", "x"} {
			f := w.fold(session)
			for id, want := range map[string]string{"a": `{"n":1}`, "b": `{}`, "c": large, "d": `{}`} {
				got, err := w.log(session).Blob(w.t.Context(), f.Call(id).Input)
				if err != nil || string(got) != want {
					t.Errorf("%s: the arguments of %s are %.60s, %v", session, id, got, err)
				}
			}
		}
	})
}

// The shortest stream is one text in one step.
func TestWriterWritesOneStep(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	write(t, create(t, m, "s", ""), &chunk.TextDelta{Delta: "Sunny."})
	if err := m.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	if got, want := events(uiFrames(t, logs, "s")), "start start-step text-start text-delta text-end finish-step data-step-committed finish"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	view(t, logs, "s", func(f *fold.Fold) {
		if parts := f.Messages[0].Parts; len(parts) != 2 || parts[1].Text != "Sunny." {
			t.Errorf("the message: %s", mustJSON(parts))
		}
	})
	create(t, m, "empty", "")
	if err := m.EndStream(t.Context(), "empty", nil); err != nil {
		t.Fatal(err)
	}
	if got, want := events(uiFrames(t, logs, "empty")), "start finish"; got != want {
		t.Errorf("a stream without chunks: %s", got)
	}
}

// Words belong to the stream's message, whatever agent id they carry, unless that is a
// sub-agent's. The id that the documents use is the producer's own run id.
func TestWhoseWords(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ writer, chunk string }{
		"the stream's":           {"s", "s"},
		"none":                   {"", ""},
		"a run id of the writer": {"run-abc123", ""},
		"a run id of the chunk":  {"run-abc123", "run-abc123"},
		"of the chunk only":      {"s", "run-abc123"},
	} {
		m, logs := newManager(t)
		w := create(t, m, "s", tt.writer)
		write(t, w, &chunk.TextDelta{Base: chunk.Base{AgentID: tt.chunk, RunID: "foreign", Timestamp: 1702329600000}, Delta: "Hello"})
		view(t, logs, "s", func(f *fold.Fold) {
			if got := f.Messages[0].Text(); got != "Hello" {
				t.Errorf("%s: the open stream's message is %q", name, got)
			}
		})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := m.EndStream(t.Context(), "s", nil); err != nil {
			t.Fatal(err)
		}
		if frames := uiFrames(t, logs, "s"); !slices.Contains(frames, `{"type":"text-delta","id":"block-1","delta":"Hello"}`) {
			t.Errorf("%s: %s", name, frames)
		}
		text, err := stream.CollectText(stream.FilterByAgentID(m.CreateReader(t.Context(), "s"), "s"))
		if err != nil || text != "Hello" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		for _, c := range stored(t, m, "s") {
			if b := c.Chunk.ChunkBase(); b.AgentType != "writer" || b.RunID == "foreign" {
				t.Errorf("%s: %s has the base %+v", name, c.Chunk.ChunkType(), b)
			}
		}
	}
}

// A sub-agent's words stay its own when another process takes the stream over, and
// have its type.
func TestWhoseWordsAfterTakingOver(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	write(t, create(t, m, "s", ""), &chunk.ToolStart{ToolCallID: "c", ToolName: "ask", Arguments: json.RawMessage(`{}`)},
		&chunk.SubAgentStart{SubAgentType: "researcher", SubSessionID: "child", CallID: "c"})
	other := stream.NewManager(logs, nil)
	w, err := other.CreateWriter(t.Context(), "s", "", "")
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, &chunk.TextDelta{Base: chunk.Base{AgentID: "child"}, Delta: "mine"}, &chunk.TextDelta{Base: chunk.Base{AgentID: "s.1"}, Delta: "hers"},
		&chunk.ToolEnd{ToolCallID: "c"}, &chunk.TextDelta{Delta: "ours"})
	if err := other.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	view(t, logs, "s", func(f *fold.Fold) {
		if got := f.Messages[0].Text(); got != "ours" {
			t.Errorf("the message: %q", got)
		}
	})
	for _, c := range stored(t, m, "s") {
		want := "writer"
		if b := c.Chunk.ChunkBase(); b.AgentID == "child" {
			want = "researcher"
		}
		if b := c.Chunk.ChunkBase(); b.AgentType != want {
			t.Errorf("%s of %s is of type %q", c.Chunk.ChunkType(), b.AgentID, b.AgentType)
		}
	}
}

// A producer that numbers its steps gets those steps.
func TestWriterFollowsStepNumbers(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	w := create(t, m, "s", "")
	for i, text := range []string{"one", "more", "two", "four", "late"} {
		write(t, w, &chunk.TextDelta{Base: chunk.Base{Step: []int{1, 0, 2, 4, 3}[i]}, Delta: text})
	}
	if err := m.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, c := range stored(t, m, "s") {
		if d, ok := c.Chunk.(*chunk.TextDelta); ok {
			steps = append(steps, fmt.Sprint(d.Delta, d.Step))
		}
	}
	if want := []string{"one1", "more1", "two2", "four4", "late4"}; !slices.Equal(steps, want) {
		t.Errorf("the steps: %v", steps)
	}
	view(t, logs, "s", func(f *fold.Fold) {
		if n := f.LastTurn().LastRun().Steps; n != 3 {
			t.Errorf("%d steps", n)
		}
	})
}

// The agent's type is on every chunk, also on those that a resume and a take-over
// write.
func TestAgentTypeAfterResume(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	write(t, create(t, m, "s", ""), &chunk.TextDelta{Delta: "one"})
	if err := m.PauseStream(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if err := m.ResumeStream(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	other := stream.NewManager(logs, nil)
	w, err := other.CreateWriter(t.Context(), "s", "", "")
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, &chunk.TextDelta{Delta: "two"})
	if err := other.FailStream(t.Context(), "s", "boom"); err != nil {
		t.Fatal(err)
	}
	for _, c := range stored(t, m, "s") {
		if b := c.Chunk.ChunkBase(); b.AgentType != "writer" {
			t.Errorf("%d: %s of type %q", c.Sequence, c.Chunk.ChunkType(), b.AgentType)
		}
	}
}

// A state patch that does not apply is refused, with all that came with it.
func TestPatchesThatDoNotApplyAreRefused(t *testing.T) {
	add := func(path string) *chunk.StatePatch {
		return &chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "add", Path: path, Value: json.RawMessage(`1`)}}}
	}
	inWorld(t, func(w *world) {
		m, e := stream.NewManager(w.logs, nil), stream.NewExternal(w.logs, nil)
		out, err := m.CreateWriter(w.t.Context(), "s", "", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Write(w.t.Context(), add("/a/b")); !errors.Is(err, chunk.ErrInvalidChunk) {
			t.Errorf("a patch of a path that is not there: %v", err)
		}
		if err := errors.Join(out.Write(w.t.Context(), &chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "add", Path: "/a", Value: json.RawMessage(`{}`)}}}),
			out.Write(w.t.Context(), add("/a/b")), m.EndStream(w.t.Context(), "s", nil)); err != nil {
			t.Error(err)
		}
		if f := w.fold("s"); string(f.State) != `{"a":{"b":1}}` {
			t.Errorf("the state: %s", f.State)
		}
		x := w.claim(e, "s")
		before := len(w.records("s"))
		if _, err := e.Append(w.t.Context(), "s", x.Epoch, 0, []chunk.Chunk{words("a")[0], add("/a/c"), add("/x/y")}); !errors.Is(err, chunk.ErrInvalidChunk) {
			t.Errorf("over HTTP: %v", err)
		}
		if got := len(w.records("s")); got != before {
			t.Errorf("%d records of the refused append", got-before)
		}
		w.produce(e, x, 0, add("/x"), &chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "test", Path: "/x", Value: json.RawMessage(`1`)}}})
		w.produce(e, x, 2, ending(`{"type":"end"}`)...)
		if f := w.fold("s"); string(f.State) != `{"a":{"b":1},"x":1}` {
			t.Errorf("the state: %s", f.State)
		}
	})
}

// Over HTTP, too, an outcome gets its tool's name; an explicit failure stays one.
func TestExternalOutcomes(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		x := w.claim(e, "s")
		var chunks []chunk.Chunk
		for _, data := range []string{`{"type":"tool_start","toolCallId":"a","toolName":"look","arguments":{}}`, `{"type":"tool_end","toolCallId":"a","result":7}`,
			`{"type":"tool_start","toolCallId":"b","toolName":"take","arguments":{}}`} {
			c, err := stream.ParseProducerChunk([]byte(data))
			if err != nil {
				t.Fatal(err)
			}
			chunks = append(chunks, c)
		}
		w.produce(e, x, 0, chunks...)
		c, err := stream.ParseProducerChunk([]byte(`{"type":"tool_end","toolCallId":"b","result":null,"success":false}`))
		if err != nil {
			t.Fatal(err)
		}
		w.produce(e, x, 3, c)
		f := w.fold("s")
		a, b := f.Call("a"), f.Call("b")
		if a.State != chunk.ToolCompleted || string(a.Output) != "7" || b.State != chunk.ToolFailed {
			t.Errorf("%s %s", mustJSON(a), mustJSON(b))
		}
		for _, r := range w.records("s") {
			if end, ok := mustDecode(r).(*chunk.ToolEnd); ok && end.ToolName != map[string]string{"a": "look", "b": "take"}[end.ToolCallID] {
				t.Errorf("%s has the name %q", end.ToolCallID, end.ToolName)
			}
		}
	})
}

// A failed stream has its error before its end, classified as its producer did. Writers
// cannot announce the end of a run.
func TestFailuresAreClassified(t *testing.T) {
	inWorld(t, func(w *world) {
		m, e := stream.NewManager(w.logs, nil), stream.NewExternal(w.logs, nil)
		out, err := m.CreateWriter(w.t.Context(), "s", "", "writer")
		if err == nil {
			err = errors.Join(out.Write(w.t.Context(), &chunk.ErrorChunk{Error: "careful", Recoverable: true, Fatal: true}), m.FailStream(w.t.Context(), "s", "boom"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, want := kinds(w.records("s")), "run_started step_started error assistant_message step_committed error run_finished"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		x := w.claim(e, "x")
		c, err := stream.ParseProducerChunk([]byte(`{"type":"error","error":"careful","recoverable":true,"fatal":true}`))
		if err != nil {
			t.Fatal(err)
		}
		w.produce(e, x, 0, c)
		w.produce(e, x, 1, ending(`{"type":"fail","error":"busy","code":"provider_overloaded","recoverable":true}`)...)
		if got, want := kinds(w.records("x")), "run_started step_started error step_committed error run_finished"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		for session, want := range map[string]chunk.ErrorChunk{"s": {Error: "boom"}, "x": {Error: "busy", Code: "provider_overloaded", Recoverable: true}} {
			records := w.records(session)
			if first := mustDecode(records[2]).(*chunk.ErrorChunk); first.Fatal {
				t.Errorf("%s: a producer's own error is fatal", session)
			}
			got := mustDecode(records[len(records)-2]).(*chunk.ErrorChunk)
			if base := got.Base; got.Error != want.Error || got.Code != want.Code || got.Recoverable != want.Recoverable || !got.Fatal || base.Step != 1 || base.AgentType == "" {
				t.Errorf("%s: %s", session, mustJSON(got))
			}
			if f := w.fold(session); f.Error.Error != want.Error || f.Error.Code != want.Code {
				t.Errorf("%s: %+v", session, f.Error)
			}
		}
	})
}

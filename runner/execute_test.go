package runner_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
	"github.com/spool-run/spool/tool"
)

func executor() *agent.Agent {
	return &agent.Agent{Name: "demo", Tools: []tool.Tool{tool.Client[struct{}]("locate", "")}, Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
		"slow": sayFor(3, time.Second),
		"where": scripted.Steps(
			scripted.Say(scripted.Calls(scripted.ToolCall{ID: "c1", Name: "locate", Arguments: `{}`})),
			scripted.Say(scripted.Text("Found."))),
	}})}
}

// execute begins a turn that must be accepted.
func (w *world) execute(in runner.Input) *runner.Handle {
	w.t.Helper()
	h, err := runner.Execute(w.t.Context(), w.logs, in)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func on(session, text string) runner.Input {
	in := runner.Text(text)
	in.Session = session
	return in
}

// TestExecute: a handle tells its own turn, however many there are, and a reader
// may begin anywhere.
func TestExecute(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := w.t.Context()
		first := w.execute(runner.Text("slow")) // nobody runs it yet
		w.start(executor(), nil)
		r, err := first.Result(ctx)
		if err != nil || r.Status != chunk.StatusEnded || r.Reason != "completed" || r.Message.Text() != "w0 w1 w2 " || r.RunID == "" {
			w.t.Fatalf("the first turn: %+v, %v", r, err)
		}
		session := first.SessionID()
		at, err := w.log(session).Head(ctx)
		if err != nil {
			w.t.Fatal(err)
		}

		second := on(session, "hello")
		second.CommandID = "again"
		h := w.execute(second)
		text, err := stream.CollectText(h.Stream(ctx, at.Seq))
		if err != nil || text == "" {
			t.Errorf("the second turn's stream: %q, %v", text, err)
		}
		next := at.Seq
		for record, err := range h.Stream(ctx, at.Seq) {
			if next++; err != nil || record.Seq != next {
				w.t.Fatalf("record %d, %v; want %d", record.Seq, err, next)
			}
		}
		if r, err = h.Result(ctx); err != nil || r.Message.Text() != text {
			t.Errorf("the second turn: %+v, %v", r, err)
		}
		if whole, err := stream.CollectText(h.Stream(ctx, 0)); err != nil || whole != "w0 w1 w2 "+text {
			t.Errorf("the whole stream: %q, %v", whole, err)
		}
		if r, err = first.Result(ctx); err != nil || r.Message.Text() != "w0 w1 w2 " {
			t.Errorf("the first turn, later: %+v, %v", r, err)
		}

		// The same again is the same turn.
		before := len(w.settled(session))
		if r, err = w.execute(second).Result(ctx); err != nil || r.Message.Text() != text || len(w.settled(session)) != before {
			t.Errorf("repeated: %+v, %v; %d records more", r, err, len(w.settled(session))-before)
		}
	})
}

func TestExecuteWhileBusy(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.execute(on("s", "slow"))
		if _, err := runner.Execute(w.t.Context(), w.logs, on("s", "hello")); !errors.Is(err, spool.ErrBusy) {
			t.Errorf("a second message: %v", err)
		}
		queued := on("s", "hello")
		queued.WhenBusy = chunk.BusyQueue
		later := w.execute(queued)
		// What replaces the history waits for nobody: it would replace the answer, too.
		queued.State = json.RawMessage(`{}`)
		if _, err := runner.Execute(w.t.Context(), w.logs, queued); !errors.Is(err, spool.ErrBusy) {
			t.Errorf("a queued replacement: %v", err)
		}
		w.start(executor(), nil)
		a, err := h.Result(w.t.Context())
		if err != nil || a.Message.Text() != "w0 w1 w2 " {
			t.Errorf("the first: %+v, %v", a, err)
		}
		b, err := later.Result(w.t.Context())
		if err != nil || b.Message.ID == a.Message.ID || b.Message.Text() == "" {
			t.Errorf("the queued one: %+v, %v", b, err)
		}
	})
}

func TestExecuteEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(executor(), nil)
		h := w.execute(on("failing", "fail"))
		r, err := h.Result(w.t.Context())
		var failed *chunk.RunError
		if !errors.As(err, &failed) || failed.Code == "" || failed.Message == "" || failed.RunID != r.RunID || r.Status != chunk.StatusFailed {
			t.Errorf("a failed turn: %+v, %v", r, err)
		}

		h = w.execute(on("waiting", "where am I?"))
		if r, err = h.Result(w.t.Context()); err != nil || r.Status != chunk.StatusPaused || r.Reason != chunk.SuspendedClientTool {
			w.t.Fatalf("a turn that waits: %+v, %v", r, err)
		}
		w.command("waiting", &chunk.ToolResultSubmitted{CommandID: "r1", ToolCallID: "c1", Result: json.RawMessage(`"here"`)})
		if r, err = h.Result(w.t.Context()); err != nil || r.Status != chunk.StatusEnded || r.Message.Text() != "Found." {
			t.Errorf("after the answer: %+v, %v", r, err)
		}
	})
}

// TestExecuteWithOutput: a structured answer is the result, and what was given is
// the history and the state.
func TestExecuteWithOutput(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(&agent.Agent{Name: "judge", Output: agent.OutputOf[struct {
			Sound bool `json:"sound"`
		}](), Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"judge": scripted.Steps(scripted.Say(scripted.Text(`{"sound":true}`)))}})}, nil)
		in := on("s", "judge")
		in.State = json.RawMessage(`{"n":1}`)
		in.Messages = []chunk.Message{
			{Role: chunk.RoleSystem, Parts: []chunk.Part{{Type: chunk.PartText, Text: "left out"}}},
			{Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "before"}}},
		}
		r, err := w.execute(in).Result(w.t.Context())
		if err != nil || string(r.Output) != `{"sound":true}` || string(r.State) != `{"n":1}` || r.Usage.OutputTokens == 0 {
			t.Errorf("%+v, %v", r, err)
		}
		f := w.fold("s")
		if len(f.Messages) != 3 || f.Messages[0].Text() != "before" || f.Messages[1].Text() != "judge" {
			t.Errorf("messages: %s", mustJSON(f.Messages))
		}
	})
}

func TestExecuteRefuses(t *testing.T) {
	inWorld(t, func(w *world) {
		for code, in := range map[string]runner.Input{
			"invalid_id":         on("a/b", "x"),
			"invalid_session_id": on("s.1", "x"),
			"invalid_chunk":      {Message: chunk.Message{Role: chunk.RoleAssistant}},
		} {
			if _, err := runner.Execute(w.t.Context(), w.logs, in); chunk.CodeOf(err) != code {
				t.Errorf("%s: %v", code, err)
			}
		}
	})
}

// A command id stands for one message, and an assistant message keeps its id.
func TestExecuteWithAnIDInUse(t *testing.T) {
	store := memstore.New(nil)
	defer store.Close()
	logs := spool.NewLogs(store, nil)
	defer logs.Close()
	in := runner.Text("hello")
	in.Session, in.CommandID = "s", "c"
	for range 2 {
		if _, err := runner.Execute(t.Context(), logs, in); err != nil {
			t.Fatal(err)
		}
	}
	in.Message = runner.Text("something else").Message
	if _, err := runner.Execute(t.Context(), logs, in); !errors.Is(err, chunk.ErrIDConflict) {
		t.Errorf("another message under the same id: %v", err)
	}
}

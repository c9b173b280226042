package server_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/tool"
)

// wipe is what the agent of these tests does to the world, with leave.
type wipe struct {
	mu   sync.Mutex
	done []string
}

func (w *wipe) list() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.done)
	return strings.Join(w.done, " ")
}

// gated runs an agent whose tools need a human or a client.
func (k *kit) gated() *wipe {
	k.Helper()
	w := &wipe{}
	scene := func(calls ...scripted.ToolCall) scripted.Scene {
		return scripted.Steps(scripted.Say(scripted.Text("may I? "), scripted.Calls(calls...)), scripted.Say(scripted.Text("so be it")))
	}
	a := &agent.Agent{Name: "careful",
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
			"one":    scene(scripted.ToolCall{ID: "c1", Name: "wipe", Arguments: `{"disk":"a"}`}),
			"two":    scene(scripted.ToolCall{ID: "c1", Name: "wipe", Arguments: `{"disk":"a"}`}, scripted.ToolCall{ID: "c2", Name: "wipe", Arguments: `{"disk":"b"}`}),
			"locate": scene(scripted.ToolCall{ID: "c1", Name: "locate", Arguments: `{}`}),
			"hello":  scripted.Steps(scripted.Say(scripted.Text("hello"))),
		}}),
		Tools: []tool.Tool{
			tool.With(tool.New("wipe", "", func(_ tool.Context, in struct {
				Disk string `json:"disk"`
			}) (string, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.done = append(w.done, in.Disk)
				return "wiped " + in.Disk, nil
			}), tool.Options{Approval: true}),
			tool.Client[struct{}]("locate", ""),
		}}
	k.execute(a)
	return w
}

// paused says something that makes the run pause, and returns the calls that
// wait and the id of their message.
func (k *kit) paused(session, text string) (calls []chunk.ToolPart, messageID string) {
	k.Helper()
	list := datas(k.say(session, "u1", text).all())
	if !strings.HasSuffix(list, `{"type":"finish","finishReason":"tool-calls"}`+"\n[DONE]\n") {
		k.Fatalf("the stream of a pause: %s", list)
	}
	snap := k.snapshot(session)
	if snap.Status != chunk.StatusPaused {
		k.Fatalf("status %s", snap.Status)
	}
	err := k.fold(session, func(f *fold.Fold) {
		for _, t := range f.Pending() {
			calls = append(calls, *t)
		}
		messageID = f.LastTurn().MessageID
	})
	if err != nil || len(calls) == 0 {
		k.Fatalf("nothing waits: %v", err)
	}
	return calls, messageID
}

func (k *kit) fold(session string, fn func(*fold.Fold)) error {
	g, err := k.logs.Log(session)
	if err != nil {
		return err
	}
	return g.View(k.Context(), func(f *fold.Fold) error { fn(f); return nil })
}

// answers is what the stock client posts when its user has answered some calls.
// What it says of their names and inputs is a lie.
func answers(messageID string, parts ...map[string]any) string {
	for _, p := range parts {
		p["type"], p["input"] = "tool-harmless", map[string]any{"disk": "everything"}
	}
	return mustJSON(map[string]any{"id": "s", "trigger": "submit-message", "messageId": messageID, "messages": []any{
		map[string]any{"id": messageID, "role": "assistant", "parts": parts},
	}})
}

func decision(t chunk.ToolPart, approved bool, reason string) map[string]any {
	return map[string]any{"toolCallId": t.CallID, "state": "approval-responded",
		"approval": map[string]any{"id": t.Approval.ID, "approved": approved, "reason": reason}}
}

func (k *kit) settled(session string) *fold.Fold {
	k.Helper()
	g, err := k.logs.Log(session)
	if err != nil {
		k.Fatal(err)
	}
	for _, err := range g.Records(k.Context(), spool.ReadOptions{}) {
		if err != nil {
			k.Fatal(err)
		}
	}
	f, err := g.FoldAt(k.Context(), uint64(len(k.log(session))))
	if err != nil {
		k.Fatal(err)
	}
	return f
}

func TestApprovalByChat(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	w := k.gated()
	calls, id := k.paused("s", "one")
	if w.list() != "" {
		t.Fatal("it did not wait")
	}
	body := answers(id, decision(calls[0], true, "go on"))
	first := k.stream("POST", "/api/chat/s", body).all()
	got := datas(first)
	for _, want := range []string{`{"type":"start","messageId":"` + id + `"}`, `{"type":"tool-output-available","toolCallId":"c1","output":"wiped a"`, `"so "`, `{"type":"finish","finishReason":"stop"}`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if w.list() != "a" {
		t.Errorf("done: %s", w.list()) // and not what the client's copy says
	}
	if again := k.stream("POST", "/api/chat/s", body).all(); datas(again) != got {
		t.Errorf("the same POST again:\n%s\n%s", datas(again), got)
	}
	if w.list() != "a" {
		t.Errorf("done: %s", w.list())
	}
	f := k.settled("s")
	if len(f.Messages) != 2 || f.Messages[1].Text() != "may I? so be it" || f.Reason != "completed" || len(f.Turns[0].Runs) != 2 {
		t.Errorf("%s %s", f.Reason, mustJSON(f.Messages))
	}
	k.problem(http.StatusConflict, "nothing_to_continue", "POST", "/api/chat/s", answers(id, decision(chunk.ToolPart{CallID: "c1", Approval: &chunk.Approval{ID: "made-up"}}, true, "")))
}

func TestApprovalByRoute(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	w := k.gated()
	k.problem(http.StatusNotFound, "not_found", "POST", "/api/chat/unknown/approvals/x", `{"approved":true}`)
	calls, _ := k.paused("s", "one")
	url := "/api/chat/s/approvals/" + calls[0].Approval.ID
	k.problem(http.StatusNotFound, "no_such_call", "POST", "/api/chat/s/approvals/made-up", `{"approved":true}`)
	k.problem(http.StatusBadRequest, "malformed_json", "POST", url, `{"approved":"yes"}`)
	k.problem(http.StatusBadRequest, "malformed_json", "POST", url, `{}`)
	k.problem(http.StatusNotFound, "no_such_call", "POST", "/api/chat/s/tools/c1", `{"output":"wiped, trust me"}`)
	before := len(k.log("s"))
	k.status(http.StatusOK, "POST", url, `{"approved":false,"reason":"not that one"}`)
	k.status(http.StatusOK, "POST", url, `{"approved":false,"reason":"not that one"}`)
	k.problem(http.StatusConflict, "already_answered", "POST", url, `{"approved":true}`)
	f := k.settled("s")
	part := f.Messages[1].Parts[2].Tool
	if w.list() != "" || part.State != chunk.ToolDenied || part.Approval.Reason != "not that one" || f.Reason != "completed" {
		t.Errorf("done %q: %s %s", w.list(), f.Reason, mustJSON(part))
	}
	responses := 0
	for _, r := range k.log("s")[before:] {
		if r.Type == chunk.TypeToolApprovalResponse {
			responses++
		}
	}
	if responses != 1 {
		t.Errorf("%d decisions in the log", responses)
	}
}

// Two tabs answer one call each, one by its page and one by a route; and two
// answer the same call at once.
func TestTwoTabsAnswer(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	w := k.gated()
	calls, id := k.paused("s", "two")
	got := datas(k.stream("POST", "/api/chat/s", answers(id, decision(calls[0], true, ""))).all())
	if want := `{"type":"start","messageId":"` + id + `"}` + "\n" + `{"type":"finish","finishReason":"tool-calls"}` + "\n[DONE]\n"; got != want {
		t.Errorf("the first of two answers: %s", got)
	}
	if w.list() != "" || k.snapshot("s").Status != chunk.StatusPaused {
		t.Errorf("it went on with an answer missing: %s", w.list())
	}
	codes := k.atOnce("/api/chat/s/approvals/"+calls[1].Approval.ID, `{"approved":true}`, `{"approved":false}`)
	if !slices.Equal(codes, []int{http.StatusOK, http.StatusConflict}) {
		t.Errorf("two opposite decisions: %v", codes)
	}
	f := k.settled("s")
	want := "a"
	if f.Messages[1].Parts[3].Tool.State == chunk.ToolCompleted {
		want = "a b"
	}
	if w.list() != want || f.Reason != "completed" {
		t.Errorf("done %q, want %q: %s", w.list(), want, mustJSON(f.Messages))
	}
}

func TestClientToolOfARunner(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"chat", "route", "error"} {
		k := newKit(t, nil)
		k.gated()
		calls, id := k.paused("s", "locate")
		part := map[string]any{"toolCallId": calls[0].CallID, "state": "output-available", "output": map[string]int{"lat": 38}}
		switch way {
		case "chat":
			got := datas(k.stream("POST", "/api/chat/s", answers(id, part)).all())
			// What the client said itself it is not told again.
			if strings.Contains(got, "tool-output") || !strings.Contains(got, `"so "`) {
				t.Errorf("continuation: %s", got)
			}
		case "route":
			k.status(http.StatusOK, "POST", "/api/chat/s/tools/c1", `{"output":{"lat":38}}`)
			k.status(http.StatusOK, "POST", "/api/chat/s/tools/c1", `{"output": {"lat": 38}}`)
			k.problem(http.StatusConflict, "already_answered", "POST", "/api/chat/s/tools/c1", `{"output":{"lat":0}}`)
			k.problem(http.StatusNotFound, "no_such_call", "POST", "/api/chat/s/tools/c9", `{"output":1}`)
			k.problem(http.StatusBadRequest, "malformed_json", "POST", "/api/chat/s/tools/c1", `{}`)
		case "error":
			k.status(http.StatusOK, "POST", "/api/chat/s/tools/c1", `{"error":"no permission"}`)
		}
		f := k.settled("s")
		call := f.Messages[1].Parts[2].Tool
		if f.Reason != "completed" || !call.State.Done() || f.Messages[1].Text() != "may I? so be it" {
			t.Errorf("%s: %s %s", way, f.Reason, mustJSON(f.Messages[1]))
		}
		if way == "error" && call.Error != "no permission" || way != "error" && string(call.Output) != `{"lat":38}` {
			t.Errorf("%s: %s", way, mustJSON(call))
		}
	}
}

func TestStopOfAPause(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	w := k.gated()
	calls, id := k.paused("s", "one")
	for range 2 {
		var s chat.Settled
		if err := json.Unmarshal(k.status(http.StatusOK, "POST", "/api/chat/s/stop", ""), &s); err != nil {
			t.Fatal(err)
		}
		if s.Status != chunk.StatusEnded || s.Reason != "stopped" || s.Pending {
			t.Errorf("%+v", s)
		}
	}
	f := k.settled("s")
	if last := f.Messages[1].Parts[len(f.Messages[1].Parts)-1]; last.Name != "run-interrupted" || f.LastTurn().MessageID != id {
		t.Errorf("%s", mustJSON(f.Messages[1]))
	}
	k.problem(http.StatusConflict, "too_late", "POST", "/api/chat/s/approvals/"+calls[0].Approval.ID, `{"approved":true}`)
	if w.list() != "" {
		t.Errorf("done: %s", w.list())
	}
}

// A new message instead of an answer gives up what waits.
func TestMessageInsteadOfAnAnswer(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	w := k.gated()
	calls, _ := k.paused("s", "one")
	if got := textOf(k.say("s", "u2", "hello").all()); got != "hello" {
		t.Errorf("got %q", got)
	}
	f := k.settled("s")
	if len(f.Messages) != 4 || f.Messages[2].ID != "u2" || f.Turns[0].LastRun().Outcome != chunk.OutcomeStopped || f.Reason != "completed" {
		t.Errorf("%s %s", mustJSON(f.Turns), mustJSON(f.Messages))
	}
	if part := f.Messages[1].Parts[2].Tool; !part.State.Done() {
		t.Errorf("left open: %s", mustJSON(part))
	}
	k.problem(http.StatusConflict, "too_late", "POST", "/api/chat/s/approvals/"+calls[0].Approval.ID, `{"approved":true}`)
	if w.list() != "" {
		t.Errorf("done: %s", w.list())
	}
}

// The owner is gone, and nobody will notice before its lease ends: a stop does
// not wait for that.
func TestStopIsForced(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	e := k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.text("half ")
	e.until("half ")
	s, err := chat.Stop(t.Context(), &chat.Deps{Logs: k.logs, Options: chat.Options{ForceStop: time.Millisecond}}, "s", chat.StopOptions{})
	if err != nil || s.Status != chunk.StatusEnded || s.Reason != "stopped" || s.Pending {
		t.Errorf("%+v, %v", s, err)
	}
	if got := datas(e.all()); !strings.Contains(got, "abort") {
		t.Errorf("the reader: %s", got)
	}
	before := len(k.log("s"))
	if err := o.w.Append(t.Context(), &chunk.TextDelta{Delta: "late"}); err == nil {
		err = o.w.Flush(t.Context())
		if !errors.Is(err, spool.ErrSuperseded) {
			t.Errorf("the old owner: %v", err)
		}
	}
	if got := len(k.log("s")); got != before {
		t.Errorf("%d late records", got-before)
	}
}

package server_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
	"github.com/spool-run/spool/wire/aisdk"
)

// busyWorld runs an agent that asks for leave and for a place, and works until
// it is let go.
func (k *kit) busyWorld(calls ...scripted.ToolCall) (letGo func()) {
	k.Helper()
	hold := make(chan struct{})
	a := &agent.Agent{Name: "busy",
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
			"go": scripted.Steps(scripted.Say(scripted.Text("may I? "), scripted.Calls(calls...)), scripted.Say(scripted.Text("so be it"))),
		}}),
		Tools: []tool.Tool{
			tool.With(tool.New("wipe", "", func(tool.Context, struct{}) (string, error) { return "wiped", nil }), tool.Options{Approval: true}),
			tool.Client[struct{}]("locate", ""),
			tool.New("quick", "", func(ctx tool.Context, _ struct{}) (string, error) {
				return "quick", ctx.Emit("weather", map[string]string{"sky": "clear"}, &tool.EmitOptions{ID: "Lisbon"})
			}),
			tool.New("work", "", func(ctx tool.Context, _ struct{}) (string, error) {
				select {
				case <-hold:
					return "worked", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}),
		}}
	k.execute(a)
	return func() { close(hold) }
}

// client folds what a stock client is sent on top of the message that it has.
func client(k *kit, on *aisdk.UIMessage, list []event) *aisdk.Client {
	k.Helper()
	c := &aisdk.Client{}
	if on != nil { // its first start empties the message
		begin := []byte("data: " + mustJSON(map[string]string{"type": "start", "messageId": on.ID}) + "\n\n")
		if err := errors.Join(c.Write(begin), json.Unmarshal([]byte(mustJSON(on)), &c.Message)); err != nil {
			k.Fatal(err)
		}
	}
	for _, e := range list {
		if err := c.Write([]byte("data: " + e.Data + "\n\n")); err != nil {
			k.Fatalf("%s: %v", e.Data, err)
		}
	}
	return c
}

// parts are a message's as a client of ai 6 has them, which is not told what was
// decided.
func parts(v any) string { return strings.ReplaceAll(mustJSON(v), `,"approved":true`, "") }

var leave = []scripted.ToolCall{
	{ID: "c0", Name: "quick", Arguments: `{}`}, {ID: "c1", Name: "wipe", Arguments: `{}`},
	{ID: "c2", Name: "locate", Arguments: `{}`}, {ID: "c3", Name: "work", Arguments: `{}`},
}

// until the quick call is done, all the others being asked for or at work.
func (k *kit) asked(e *events) (seen []event, approval string) {
	k.Helper()
	seen = e.until(`"output":"quick"`)
	err := k.fold("s", func(f *fold.Fold) { approval = f.Call("c1").Approval.ID })
	if err != nil {
		k.Fatal(err)
	}
	return seen, approval
}

// A user who decides while another call of the step runs is not refused, and the
// run goes on without a pause; a watching reader sees one answer.
func TestAnswerByRouteWhileTheRunIsOpen(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	letGo := k.busyWorld(leave...)
	post := k.say("s", "u1", "go")
	seen, approval := k.asked(post)
	k.problem(http.StatusConflict, "not_waiting", "POST", "/api/chat/s/tools/c3", `{"output":"trust me"}`)
	k.problem(http.StatusNotFound, "no_such_call", "POST", "/api/chat/s/tools/c1", `{"output":"trust me"}`)
	k.problem(http.StatusNotFound, "no_such_call", "POST", "/api/chat/s/approvals/made-up", `{"approved":true}`)
	for range 2 {
		k.status(http.StatusOK, "POST", "/api/chat/s/approvals/"+approval, `{"approved":true}`)
		k.status(http.StatusOK, "POST", "/api/chat/s/tools/c2", `{"output":{"lat":38}}`)
	}
	k.problem(http.StatusConflict, "already_answered", "POST", "/api/chat/s/approvals/"+approval, `{"approved":false}`)
	k.problem(http.StatusConflict, "already_answered", "POST", "/api/chat/s/tools/c2", `{"output":{"lat":0}}`)
	letGo()
	seen = append(seen, post.all()...)
	f := k.settled("s")
	if f.Reason != "completed" || len(f.Turns[0].Runs) != 1 || strings.Contains(datas(seen), "tool-calls") {
		t.Errorf("%s, %d runs: %s", f.Reason, len(f.Turns[0].Runs), datas(seen))
	}
	if got, want := parts(client(k, nil, seen).Message.Parts), parts(k.snapshot("s").Messages[1].Parts); got != want {
		t.Errorf("streamed %s\nstored   %s", got, want)
	}
}

// The POST that carries an answer while the run is open gets what follows the
// answer, to the run's end, and so does the same POST again; what the client
// missed of the step's other calls comes first.
func TestAnswerByChatWhileTheRunIsOpen(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	letGo := k.busyWorld(leave...)
	first := k.say("s", "u1", "go")
	seen, approval := k.asked(first)
	var id string
	_ = k.fold("s", func(f *fold.Fold) { id = f.LastTurn().MessageID })
	yes := answers(id, decision(chunk.ToolPart{CallID: "c1", Approval: &chunk.Approval{ID: approval}}, true, ""))
	place := answers(id, map[string]any{"toolCallId": "c2", "state": "output-available", "output": map[string]int{"lat": 38}})
	forged := answers(id, map[string]any{"toolCallId": "c3", "state": "output-available", "output": "trust me"})
	k.problem(http.StatusConflict, "nothing_to_continue", "POST", "/api/chat/s", forged)
	second := k.stream("POST", "/api/chat/s", yes)
	lead := second.until(`"output":"quick"`)
	third := k.stream("POST", "/api/chat/s", place)
	third.until(`"output":"quick"`)
	letGo()
	seen = append(seen, first.all()...)
	rest := append(lead, second.all()...)
	for name, body := range map[string]string{"the decision": yes, "the result": place} {
		again := k.stream("POST", "/api/chat/s", body).all()
		if name == "the decision" && datas(again) != datas(rest) {
			t.Errorf("the same POST again:\n%s\nwas:\n%s", datas(again), datas(rest))
		}
		if last := again[len(again)-1].Data; last != "[DONE]" || strings.Count(datas(again), `"type":"start"`) != 1 {
			t.Errorf("%s: %s", name, datas(again))
		}
	}
	f := k.settled("s")
	if f.Reason != "completed" || len(f.Turns[0].Runs) != 1 {
		t.Fatalf("%s, %d runs", f.Reason, len(f.Turns[0].Runs))
	}
	want := parts(k.snapshot("s").Messages[1].Parts)
	if got := parts(client(k, nil, seen).Message.Parts); got != want {
		t.Errorf("the first stream: %s\nstored: %s", got, want)
	}
	// A client that lost the first stream when it was asked, and has the second
	// one's frames on top of what it had.
	asked := 0
	for i, e := range seen {
		if strings.Contains(e.Data, "tool-approval-request") {
			asked = i + 1
		}
	}
	had := client(k, nil, seen[:asked]).Message
	if got := parts(client(k, &had, rest).Message.Parts); got != want {
		t.Errorf("the second stream: %s\nstored: %s", got, want)
	}
	// It may lose that one too, anywhere.
	ids := 0
	for i, e := range rest {
		if e.ID == "" || i > 0 && rest[i-1].ID == e.ID {
			continue
		}
		ids++
		req, _ := http.NewRequestWithContext(t.Context(), "GET", k.http.URL+"/api/chat/s/stream", nil)
		req.Header.Set("Last-Event-ID", e.ID)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		joined := append([]event{}, rest[:i+1]...)
		if res.StatusCode == http.StatusOK {
			for events := sse.NewReader(res.Body, nil); ; {
				e, err := events.Next()
				if err != nil {
					break
				}
				joined = append(joined, event{Data: string(e.Data)})
			}
		}
		_ = res.Body.Close()
		if got := parts(client(k, &had, joined).Message.Parts); got != want {
			t.Errorf("cut after %s: %s\nstored: %s", e.ID, got, want)
		}
	}
	if ids < 5 {
		t.Errorf("%d ids", ids)
	}
}

// Two calls ask, one is answered early: the run pauses for the other alone, and
// the POST of the early answer ends with the pause.
func TestEarlyAnswerOfTwo(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	letGo := k.busyWorld(leave...)
	first := k.say("s", "u1", "go")
	_, approval := k.asked(first)
	var id string
	_ = k.fold("s", func(f *fold.Fold) { id = f.LastTurn().MessageID })
	yes := decision(chunk.ToolPart{CallID: "c1", Approval: &chunk.Approval{ID: approval}}, true, "")
	second := k.stream("POST", "/api/chat/s", answers(id, yes))
	second.until(`"output":"quick"`)
	letGo()
	const pause = `{"type":"finish","finishReason":"tool-calls"}` + "\n[DONE]\n"
	if got := datas(second.all()); !strings.HasSuffix(got, pause) {
		t.Errorf("%s", got)
	}
	first.all()
	if again := datas(k.stream("POST", "/api/chat/s", answers(id, yes)).all()); !strings.HasSuffix(again, pause) {
		t.Errorf("again: %s", again)
	}
	var waits []string
	_ = k.fold("s", func(f *fold.Fold) {
		for _, c := range f.Pending() {
			waits = append(waits, c.CallID)
		}
	})
	if len(waits) != 1 || waits[0] != "c2" {
		t.Errorf("it waits for %v", waits)
	}
	got := datas(k.stream("POST", "/api/chat/s", answers(id, yes, map[string]any{"toolCallId": "c2", "state": "output-available", "output": 1})).all())
	if !strings.Contains(got, `"so "`) || !strings.Contains(got, `"output":"wiped"`) {
		t.Errorf("%s", got)
	}
	if f := k.settled("s"); f.Reason != "completed" || len(f.Turns[0].Runs) != 2 {
		t.Errorf("%s, %d runs", f.Reason, len(f.Turns[0].Runs))
	}
}

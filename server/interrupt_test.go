package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/server/chat"
)

func TestInterruptAndContinue(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	g, post, s := k.interrupted("s")
	if s.Status != chunk.StatusPaused || s.Reason != "interrupted" || s.Pending || s.RunID == "" {
		t.Errorf("%+v", s)
	}
	if got := datas(post); textOf(post) != "one " || !strings.Contains(got, `{"type":"data-run-interrupted","data":{"reason":"interrupted","runId":"`+s.RunID+`"}}`) ||
		!strings.HasSuffix(got, `{"type":"finish","finishReason":"other"}`+"\n[DONE]\n") {
		t.Errorf("the POST's stream: %s", got)
	}
	native := datas(k.stream("GET", "/stream/s", "").all())
	if !strings.HasSuffix(native, `{"type":"end","status":"paused","reason":"interrupted"}`+"\n") {
		t.Errorf("native: %s", native[max(0, len(native)-200):])
	}
	snap := k.snapshot("s")
	if snap.Status != chunk.StatusPaused || len(snap.Messages) != 2 || *snap.CheckpointID == "" {
		t.Errorf("snapshot: %s", mustJSON(snap))
	}
	if again := k.command("/api/chat/s/interrupt", ""); again != s {
		t.Errorf("again: %+v, was %+v", again, s)
	}
	at := fmt.Sprint(snap.StreamSequence)
	k.status(http.StatusNoContent, "GET", "/api/chat/s", "", "X-Resume-From-Sequence", at)

	on := k.command("/api/chat/s/resume", "")
	if on.Status != chunk.StatusActive || on.RunID == "" || on.RunID == s.RunID || on.Pending {
		t.Errorf("%+v", on)
	}
	if busy := k.problem(http.StatusConflict, "busy", "POST", "/api/chat/s/resume", `{"mode":"with_message","message":"hello"}`); busy.RunID != on.RunID {
		t.Errorf("%+v", busy)
	}
	page := k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", at)
	rest := k.stream("GET", "/api/chat/s", "", "Last-Event-ID", post[len(post)-1].ID)
	<-g.enter
	if again := k.command("/api/chat/s/resume", `{"mode":"continue"}`); again.RunID != on.RunID || again.Status != chunk.StatusActive {
		t.Errorf("again while it runs: %+v", again)
	}
	g.pass <- struct{}{}
	if got := textOf(page.all()); got != "one two there" {
		t.Errorf("page load: %q", got)
	}
	if list := rest.all(); textOf(list) != "two there" || !strings.Contains(datas(list), `"data-run-resumed"`) {
		t.Errorf("cursor: %s", datas(list))
	}
	again := k.command("/api/chat/s/resume", `{"runId":"`+s.RunID+`"}`)
	if again.RunID != on.RunID || again.Status != chunk.StatusEnded || again.Reason != "completed" {
		t.Errorf("again when it is over: %+v", again)
	}

	// But for the mark, the message is that of a run that nobody has disturbed.
	k.stream("POST", "/api/chat/calm", userBody("calm", "u1", "walk"))
	g.open(2)
	k.settled("calm")
	parts := func(session string) (list []string) {
		for _, p := range k.snapshot(session).Messages[1].Parts {
			if p.Type != "data-run-interrupted" {
				list = append(list, p.Type+" "+p.Text+" "+p.ToolCallID+string(p.State))
			}
		}
		return list
	}
	if got, want := mustJSON(parts("s")), mustJSON(parts("calm")); got != want {
		t.Errorf("the message is %s, undisturbed %s", got, want)
	}
	if got := string(k.snapshot("s").State); got != `{"steps":2}` {
		t.Errorf("state %s", got)
	}
}

func TestInterruptWithNothingRunning(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.walking()
	k.problem(http.StatusNotFound, "not_found", "POST", "/api/chat/s/interrupt", "")
	k.say("s", "u1", "hello").all()
	before := len(k.log("s"))
	for range 2 {
		if s := k.command("/api/chat/s/interrupt", ""); s.Status != chunk.StatusEnded || s.Reason != "completed" || s.Pending {
			t.Errorf("%+v", s)
		}
	}
	k.say("s", "u2", "wipe").all()
	if s := k.command("/api/chat/s/interrupt", ""); s.Status != chunk.StatusPaused || s.Reason != "awaiting_approval" {
		t.Errorf("a run that waits: %+v", s)
	}
	for _, r := range k.log("s")[before:] {
		if r.Type == chunk.TypeInterruptRequested {
			t.Error("an interrupt of nothing was stored")
		}
	}
	p := k.problem(http.StatusConflict, "nothing_to_resume", "POST", "/api/chat/s/resume", "")
	if !strings.Contains(p.Hint, "/approvals/") {
		t.Errorf("hint %q", p.Hint)
	}
}

// A producer's run has no steps that anybody here knows.
func TestInterruptOfAProducer(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.status(http.StatusOK, "POST", "/stream/s?claim", "")
	k.problem(http.StatusConflict, "not_interruptible", "POST", "/api/chat/s/interrupt", "")
}

func TestMessageOnAnInterruptedSession(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	_, _, _ = k.interrupted("s")
	if got := textOf(k.say("s", "u2", "hello").all()); got != "hello" {
		t.Errorf("got %q", got)
	}
	f := k.settled("s")
	if len(f.Messages) != 4 || f.Reason != "completed" || f.Turns[0].LastRun().Suspended != "interrupted" {
		t.Errorf("%s", mustJSON(f.Turns))
	}
	k.problem(http.StatusConflict, "nothing_to_resume", "POST", "/api/chat/s/resume", "")
	for _, body := range []string{`{"mode":"with_message","message":{"id":"u3","role":"user","parts":[{"type":"text","text":"hello"}]}}`, `{"mode":"with_message","message":"hello"}`} {
		first := k.command("/api/chat/s/resume", body)
		k.settled("s")
		again := k.command("/api/chat/s/resume", body)
		if first.RunID == "" || again.RunID != first.RunID || again.Status != chunk.StatusEnded {
			t.Errorf("%s: %+v, again %+v", body, first, again)
		}
	}
	if f := k.settled("s"); len(f.Messages) != 8 || f.LastTurn().LastRun().Mode != chunk.ModeWithMessage {
		t.Errorf("%d messages, %s", len(f.Messages), mustJSON(f.LastTurn()))
	}
}

func TestSteerOverHTTP(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	g := k.walking()
	first := k.say("s", "u1", "walk")
	<-g.enter
	second := k.stream("POST", "/api/chat/s", strings.Replace(userBody("s", "u2", "hello"), "{", `{"whenBusy":"steer",`, 1))
	k.until("s", func(r chunk.Record) bool {
		c, err := chunk.Decode(r.Data)
		return err == nil && chunk.CommandID(c) == "u2"
	})
	g.pass <- struct{}{}
	list := first.all()
	if textOf(list) != "one " || !strings.HasSuffix(datas(list), `{"type":"finish","finishReason":"other"}`+"\n[DONE]\n") || strings.Contains(datas(list), "run-interrupted") {
		t.Errorf("steered: %s", datas(list))
	}
	if got := second.all(); textOf(got) != "hello" {
		t.Errorf("the turn after: %s", datas(got))
	}
	f := k.settled("s")
	if len(f.Turns) != 2 || f.Turns[0].LastRun().Outcome != chunk.OutcomeSteered || f.Turns[0].LastRun().Steps != 1 {
		t.Errorf("%s", mustJSON(f.Turns))
	}
	if got := textOf(k.stream("GET", "/api/chat/s", "").all()); got != "hello" {
		t.Errorf("replay: %q", got)
	}
}

// TestInterruptOfAQuestion: a run that waits for somebody is paused already,
// whatever is queued behind it.
func TestInterruptOfAQuestion(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	post := k.say("s", "u1", "where am I?")
	o := k.own("s")
	o.start("u1")
	queued := k.stream("POST", "/api/chat/s", `{"whenBusy":"queue",`+userBody("s", "u2", "more")[1:])
	o.ask("c1")
	post.all()
	var s chat.Settled
	if err := json.Unmarshal(k.status(http.StatusOK, "POST", "/api/chat/s/interrupt", ""), &s); err != nil {
		t.Fatal(err)
	}
	if s.Pending || s.Status != chunk.StatusPaused || s.Reason != "awaiting_client_tool" {
		t.Errorf("interrupted: %s", mustJSON(s))
	}
	_ = queued.res.Body.Close()
	g, err := k.logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.View(t.Context(), func(f *fold.Fold) error {
		if f.Interrupt != nil {
			t.Error("the run that goes on after the answer will be interrupted")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

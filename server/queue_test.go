package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire"
)

// TestQueuedBehindARun: a message that waits behind an open run takes nothing
// from that run's readers, while it waits and when its own turn is over.
func TestQueuedBehindARun(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	first := k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.text("one ", "two ")
	head := first.until("two ")
	queued := k.stream("POST", "/api/chat/s", strings.Replace(userBody("s", "u2", "more"), "{", `{"whenBusy":"queue",`, 1))
	n := fmt.Sprint(k.snapshot("s").StreamSequence)
	if m := k.snapshot("s").Messages; len(m) != 1 {
		t.Errorf("snapshot: %s", mustJSON(m))
	}
	page := k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", n)
	back := k.stream("GET", "/api/chat/s", "", "Last-Event-ID", head[len(head)-1].ID)
	o.text("three")
	o.finish()
	if got := textOf(page.all()); got != "one two three" {
		t.Errorf("page load while it waits: %q", got)
	}
	if got := textOf(back.all()); got != "three" {
		t.Errorf("cursor while it waits: %q", got)
	}
	list := append(head, first.all()...)
	check := func(when string) {
		t.Helper()
		for i, e := range list {
			if e.ID == "" || i > 0 && list[i-1].ID == e.ID {
				continue
			}
			if i == len(list)-1 {
				k.status(http.StatusNoContent, "GET", "/api/chat/s", "", "Last-Event-ID", e.ID)
				continue
			}
			rest := k.stream("GET", "/api/chat/s", "", "Last-Event-ID", e.ID).all()
			if datas(rest) != datas(list[i+1:]) {
				t.Errorf("%s, after %s:\n%s\nwant:\n%s", when, e.ID, datas(rest), datas(list[i+1:]))
			}
		}
	}
	check("before its run")
	early := k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", n)
	o = k.own("s")
	o.start("u2")
	o.text("other")
	check("during its run")
	late := k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", n)
	o.finish()
	if got := textOf(queued.all()); got != "other" {
		t.Errorf("queued: %q", got)
	}
	check("after its run")
	for when, page := range map[string]*events{"before": early, "during": late, "after": k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", n)} {
		if got := textOf(page.all()); got != "other" {
			t.Errorf("page load %s its run: %q", when, got)
		}
	}
}

// TestPageLoadOnAnAnsweredPause: the answer is there and its run is not. The
// turn is live: not in the snapshot, but on the stream, and never in both.
func TestPageLoadOnAnAnsweredPause(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	post := k.say("s", "u1", "where am I?")
	o := k.own("s")
	o.start("u1")
	o.text("Let me see. ")
	o.ask("c1")
	post.all()
	if s := k.snapshot("s"); s.Status != "paused" || len(s.Messages) != 2 {
		t.Errorf("paused: %s", mustJSON(s))
	}
	next := k.stream("POST", "/api/chat/s", mustJSON(map[string]any{"id": "s", "messages": []any{
		map[string]any{"id": "answer-u1", "role": "assistant", "parts": []any{
			map[string]any{"type": "dynamic-tool", "toolName": "locate", "toolCallId": "c1", "state": "output-available", "input": map[string]any{}, "output": "here"},
		}},
	}}))
	s := k.snapshot("s")
	if s.Status != "active" || len(s.Messages) != 1 {
		t.Errorf("answered: %s", mustJSON(s))
	}
	page := k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", fmt.Sprint(s.StreamSequence))
	o = k.own("s")
	o.start(chat.AnswerID(wire.Answer{CallID: "c1"}), "u1")
	o.text("Here.")
	o.finish()
	next.all()
	for _, r := range []*events{page, k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", fmt.Sprint(s.StreamSequence))} {
		if got := textOf(r.all()); got != "Let me see. Here." {
			t.Errorf("page: %q", got)
		}
	}
}

// TestAnswerFromAHalfWrittenMessage: without content replay, a page that was loaded in
// mid-answer has the message under another id. The stream of its answer continues that
// message, and does not begin one beside it.
func TestAnswerFromAHalfWrittenMessage(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{NoContentReplay: true})
	post := k.say("s", "u1", "where am I?")
	o := k.own("s")
	o.start("u1")
	o.text("Let me see. ")
	id := k.snapshot("s").Messages[1].ID
	o.ask("c1")
	post.all()
	body := mustJSON(map[string]any{"id": "s", "messages": []any{
		map[string]any{"id": id, "role": "assistant", "parts": []any{
			map[string]any{"type": "dynamic-tool", "toolName": "locate", "toolCallId": "c1", "state": "output-available", "input": map[string]any{}, "output": "here"},
		}},
	}})
	next := k.stream("POST", "/api/chat/s", body)
	whole := k.stream("POST", "/api/chat/s", strings.Replace(body, id, "answer-u1", 1))
	o = k.own("s")
	o.start(chat.AnswerID(wire.Answer{CallID: "c1"}), "u1")
	o.text("Here.")
	o.finish()
	if list := next.all(); id != "answer-u1-partial" || textOf(list) != "Here." || strings.Contains(datas(list), `"type":"start"`) {
		t.Errorf("%s: %s", id, datas(list))
	}
	if list := whole.all(); textOf(list) != "Here." || list[0].Data != `{"type":"start","messageId":"answer-u1"}` {
		t.Errorf("by the message's id: %s", datas(list))
	}
}

// TestQueuedBehindAPause: while the user must answer first, a page shows the
// question, and does not wait for the message that is queued behind it.
func TestQueuedBehindAPause(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	post := k.say("s", "u1", "where am I?")
	o := k.own("s")
	o.start("u1")
	o.text("Let me see. ")
	k.stream("POST", "/api/chat/s", strings.Replace(userBody("s", "u2", "more"), "{", `{"whenBusy":"queue",`, 1))
	o.ask("c1")
	post.all()
	s := k.snapshot("s")
	if s.Status != "paused" || s.Reason != "awaiting_client_tool" || len(s.Messages) != 2 {
		t.Errorf("snapshot: %s", mustJSON(s))
	}
	k.status(http.StatusNoContent, "GET", "/api/chat/s", "", "X-Resume-From-Sequence", fmt.Sprint(s.StreamSequence))
	replay := k.stream("GET", "/api/chat/s", "").all()
	if textOf(replay) != "Let me see. " || !strings.Contains(datas(replay), `"finishReason":"tool-calls"`) {
		t.Errorf("replay: %s", datas(replay))
	}
}

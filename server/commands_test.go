package server_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/wire"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
)

func TestBusy(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	first := k.say("s", "u1", "hi")
	k.problem(http.StatusConflict, "busy", "POST", "/api/chat/s", userBody("s", "u2", "more"))
	o := k.own("s")
	o.start("u1")
	p := k.problem(http.StatusConflict, "busy", "POST", "/api/chat/s", userBody("s", "u2", "more"))
	if p.RunID != "run-u1" || p.Attach != "./s/stream" {
		t.Errorf("problem: %+v", p)
	}
	// A queued message gets its own run's frames, once that has begun.
	queued := k.stream("POST", "/api/chat/s", strings.Replace(userBody("s", "u3", "queued"), `{"id"`, `{"whenBusy":"queue","id"`, 1))
	o.text("one")
	o.finish()
	if got := textOf(first.all()); got != "one" {
		t.Errorf("first: %q", got)
	}
	o = k.own("s")
	o.start("u3")
	o.text("two")
	o.finish()
	if got := queued.all(); textOf(got) != "two" || strings.Contains(datas(got), "answer-u1") {
		t.Errorf("queued: %s", datas(got))
	}
	// The refused message left nothing behind.
	if snap := k.snapshot("s"); len(snap.Messages) != 4 {
		t.Errorf("messages: %+v", snap.Messages)
	}
}

func (k *kit) log(session string) []chunk.Record {
	k.Helper()
	var recs []chunk.Record
	for after := uint64(0); ; after = recs[len(recs)-1].Seq {
		page, _, err := k.store.Read(k.Context(), session, after, 1000)
		if err != nil {
			k.Fatal(err)
		}
		if len(page) == 0 {
			return recs
		}
		recs = append(recs, page...)
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "u1", "first")
	k.turn("s", "u2", "second")
	body := func(text string) string {
		return strings.Replace(userBody("s", "u1", text), `{"id"`, `{"messageId":"u1","id"`, 1)
	}
	play := func(text, answer string) {
		t.Helper()
		e := k.stream("POST", "/api/chat/s", body(text))
		repeat := k.stream("POST", "/api/chat/s", body(text))
		o := k.own("s")
		var command string
		if err := o.g.View(t.Context(), func(f *fold.Fold) error { command = f.Waiting[0].ID; return nil }); err != nil {
			t.Fatal(err)
		}
		o.start(command)
		o.text(answer)
		o.finish()
		a, b := e.all(), repeat.all()
		if textOf(a) != answer || datas(a) != datas(b) {
			t.Errorf("edit to %q: %s\nrepeat: %s", text, datas(a), datas(b))
		}
		snap := k.snapshot("s")
		if len(snap.Messages) != 2 || snap.Messages[0].ID != "u1" || snap.Messages[0].Parts[0].Text != text {
			t.Errorf("after the edit to %q: %s", text, mustJSON(snap.Messages))
		}
	}
	before := len(k.log("s"))
	play("A", "about A")
	recs := k.log("s")[before:]
	if recs[0].Type != chunk.TypeHistoryRewound || recs[1].Type != chunk.TypeUserMessage {
		t.Errorf("the edit is %s, %s", recs[0].Type, recs[1].Type)
	}
	// Back and forth is two more edits, not repeats.
	play("B", "about B")
	play("A", "about A again")
}

func TestRegenerate(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "u1", "first")
	regen := func(messageID string) string {
		return mustJSON(map[string]any{"id": "s", "trigger": "regenerate-message", "messageId": messageID, "messages": []any{}})
	}
	e := k.stream("POST", "/api/chat/s", regen("answer-u1"))
	repeat := k.stream("POST", "/api/chat/s", regen("answer-u1"))
	o := k.own("s")
	var command string
	if err := o.g.View(t.Context(), func(f *fold.Fold) error { command = f.Waiting[0].ID; return nil }); err != nil {
		t.Fatal(err)
	}
	o.start(command)
	o.text("better")
	o.finish()
	a, b := e.all(), repeat.all()
	if textOf(a) != "better" || datas(a) != datas(b) {
		t.Errorf("regenerate: %s\nrepeat: %s", datas(a), datas(b))
	}
	if got := k.stream("POST", "/api/chat/s", regen("answer-u1")).all(); datas(got) != datas(a) {
		t.Errorf("late repeat: %s", datas(got))
	}
	snap := k.snapshot("s")
	if len(snap.Messages) != 2 || snap.Messages[1].ID == "answer-u1" {
		t.Errorf("messages: %s", mustJSON(snap.Messages))
	}
	k.problem(http.StatusNotFound, "no_such_message", "POST", "/api/chat/empty", regen("x"))
}

func TestStop(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(k *kit) { // an owner that takes its time is superseded
		k.problem(http.StatusNotFound, "not_found", "POST", "/api/chat/unknown/stop", "")
		e := k.say("s", "u1", "hi")
		o := k.own("s")
		o.start("u1")
		o.text("half ")
		answered := k.later("/api/chat/s/stop", `{"reason":"enough"}`)
		k.until("s", ofType(chunk.TypeStopRequested))
		o.end(chunk.OutcomeStopped, "") // the owner obeys
		settled := <-answered
		if settled.Status != chunk.StatusEnded || settled.Reason != "stopped" || settled.RunID != "run-u1" || settled.Pending {
			t.Errorf("settled: %+v", settled)
		}
		if got := e.all(); textOf(got) != "half " || !strings.Contains(datas(got), `"type":"abort"`) {
			t.Errorf("stream: %s", datas(got))
		}
		// Again: nothing runs, which is what was asked for.
		if again := k.command("/api/chat/s/stop", ""); again.Reason != "stopped" {
			t.Errorf("again: %+v", again)
		}
	})
}

// TestClientTool: a continuation POST gets the same message's next segment,
// without its own output; a repeat the same; one that answers nothing a 409.
func TestClientTool(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	e := k.say("s", "u1", "where am I?")
	o := k.own("s")
	o.start("u1")
	base := []chunk.Chunk{
		&chunk.ToolArgStreamStart{ToolCallID: "c1", ToolName: "locate"},
		&chunk.ToolArgStreamEnd{ToolCallID: "c1", ToolName: "locate", Arguments: json.RawMessage(`{}`)},
	}
	o.commit(spool.Row{}, nil, base...)
	var close []chunk.Chunk
	if err := o.g.View(t.Context(), func(f *fold.Fold) error { close = f.Owed().CloseModelPhase("tool-calls", nil); return nil }); err != nil {
		t.Fatal(err)
	}
	o.commit(spool.Row{}, nil, append(close, &chunk.ToolStart{ToolCallID: "c1", ToolName: "locate", Arguments: json.RawMessage(`{}`)})...)
	o.commit(spool.Row{Status: chunk.StatusPaused}, nil, &chunk.RunSuspended{Kind: "awaiting_client_tool", ToolCallIDs: []string{"c1"}, StepID: o.stepID()})
	o.release()
	first := e.all()
	if !strings.Contains(datas(first), `"finishReason":"tool-calls"`) {
		t.Fatalf("first segment: %s", datas(first))
	}
	body := func(state, call string) string {
		return mustJSON(map[string]any{"id": "s", "trigger": "submit-message", "messageId": "answer-u1", "messages": []any{
			map[string]any{"id": "u1", "role": "user", "parts": []any{}},
			map[string]any{"id": "answer-u1", "role": "assistant", "parts": []any{
				map[string]any{"type": "dynamic-tool", "toolName": "locate", "toolCallId": call, "state": state, "input": map[string]any{}, "output": "here"},
			}},
		}})
	}
	k.problem(http.StatusConflict, "nothing_to_continue", "POST", "/api/chat/s", body("output-available", "other"))
	k.problem(http.StatusConflict, "nothing_to_continue", "POST", "/api/chat/s", body("input-available", "c1"))
	next := k.stream("POST", "/api/chat/s", body("output-available", "c1"))
	repeat := k.stream("POST", "/api/chat/s", body("output-available", "c1"))
	replay := k.stream("GET", "/api/chat/s/stream", "")
	o = k.own("s")
	answer := chat.AnswerID(wire.Answer{CallID: "c1"})
	o.start(answer, "u1")
	o.text("You are here")
	o.finish()
	a, b := next.all(), repeat.all()
	if datas(a) != datas(b) || textOf(a) != "You are here" {
		t.Errorf("segment: %s\nrepeat: %s", datas(a), datas(b))
	}
	if a[0].Data != `{"type":"start","messageId":"answer-u1"}` || strings.Contains(datas(a), "tool-output-available") {
		t.Errorf("segment: %s", datas(a))
	}
	whole := replay.all()
	if !strings.Contains(datas(whole), `"tool-output-available"`) || textOf(whole) != "You are here" {
		t.Errorf("replay: %s", datas(whole))
	}
	if snap := k.snapshot("s"); len(snap.Messages) != 2 || snap.Messages[1].ID != "answer-u1" {
		t.Errorf("messages: %s", mustJSON(snap.Messages))
	}
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	body := mustJSON(map[string]any{"message": "go on", "commandId": "c1", "state": map[string]any{"n": 1}, "messages": []any{
		map[string]any{"role": "system", "content": "ignored"},
		map[string]any{"role": "user", "content": "I am Alice"},
		map[string]any{"role": "assistant", "content": "Hello Alice"},
	}})
	k := newKit(t, nil)
	k.problem(http.StatusForbidden, "override_not_allowed", "POST", "/api/chat/s", body)

	k = newKit(t, &server.Options{Chat: chat.Options{AllowOverrides: true}})
	k.turn("s", "u1", "to be replaced")
	e := k.stream("POST", "/api/chat/s", body)
	o := k.own("s")
	o.start("c1")
	o.text("ok")
	o.finish()
	e.all()
	snap := k.snapshot("s")
	var got []string
	for _, m := range snap.Messages {
		got = append(got, m.Role+": "+m.Parts[0].Text)
	}
	want := `["user: I am Alice","assistant: Hello Alice","user: go on","assistant: "]`
	if s := strings.TrimSpace(mustJSON(got)); s != want || string(snap.State) != `{"n":1}` {
		t.Errorf("messages %s, state %s", s, snap.State)
	}

	// Nothing is replaced under a run, and then nothing is said, either.
	e = k.say("s", "u2", "more")
	o = k.own("s")
	o.start("u2")
	replacing := strings.NewReplacer(`"c1"`, `"c2"`, `{"n":1}`, `{"n":2}`).Replace(body)
	for _, when := range []string{"reject", "queue", "interrupt", "steer"} {
		k.problem(http.StatusConflict, "busy", "POST", "/api/chat/s", strings.Replace(replacing, `{"`, `{"whenBusy":"`+when+`","`, 1))
	}
	o.text("ok")
	o.finish()
	e.all()
	if snap := k.snapshot("s"); len(snap.Messages) != 6 || string(snap.State) != `{"n":1}` {
		t.Errorf("after what was refused: %s, state %s", mustJSON(snap.Messages), snap.State)
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/unknown/snapshot", "")
	e := k.say("s", "u1", "a question")
	if s := k.snapshot("s"); s.Status != chunk.StatusActive || len(s.Messages) != 1 || s.StreamSequence != 1 || s.StartSequence != 0 || s.Title != "a question" {
		t.Errorf("waiting: %s", mustJSON(s))
	}
	o := k.own("s")
	o.start("u1")
	o.text("half")
	if s := k.snapshot("s"); s.Status != chunk.StatusActive || len(s.Messages) != 1 || s.ExistingMessageID != "answer-u1" {
		t.Errorf("live: %s", mustJSON(s))
	}
	partial := k.beside(&server.Options{NoContentReplay: true})
	held := partial.snapshot("s")
	if len(held.Messages) != 2 || held.Messages[1].ID != "answer-u1-partial" {
		t.Errorf("live, without content replay: %s", mustJSON(held))
	}
	on := partial.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", strconv.FormatUint(held.StreamSequence, 10))
	o.text(" done")
	o.finish()
	e.all()
	// The open part begins again, so that a client can continue it; the message does not.
	rest := on.all()
	if textOf(rest) != " done" || rest[0].Data != `{"type":"text-start","id":"block-1"}` || rest[0].ID != strconv.FormatUint(held.StreamSequence, 10) ||
		strings.Contains(datas(rest), `"start"`) {
		t.Errorf("live, without content replay, the stream: %s", datas(rest))
	}
	for i, ev := range rest[:len(rest)-1] {
		if i > 0 && ev.ID == rest[i-1].ID {
			continue // only the event that brings an id counts
		}
		if back := partial.stream("GET", "/api/chat/s", "", "Last-Event-ID", ev.ID).all(); datas(back) != datas(rest[i+1:]) {
			t.Errorf("cut after %s: %s", ev.ID, datas(back))
		}
	}
	s := k.snapshot("s")
	if s.Status != chunk.StatusEnded || len(s.Messages) != 2 || s.Messages[1].ID != "answer-u1" || s.CheckpointID == nil || *s.CheckpointID != "cp-run-u1" || s.Incarnation != 1 {
		t.Errorf("settled: %s", mustJSON(s))
	}
	partial.status(http.StatusNoContent, "GET", "/api/chat/s", "", "X-Resume-From-Sequence", strconv.FormatUint(s.StreamSequence, 10))
	k.turn("s", "u2", "more")
	// A turn that came later is not in the snapshot.
	if got := partial.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", strconv.FormatUint(s.StreamSequence, 10)).all(); textOf(got) != "more" || !strings.Contains(got[0].Data, `"messageId":"answer-u2"`) {
		t.Errorf("a later turn, without content replay: %s", datas(got))
	}
	var old frontend.Snapshot
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/api/chat/s/snapshot?checkpoint=cp-run-u1", ""), &old); err != nil || old.StreamSequence != s.Checkpoint.StreamSequence {
		t.Errorf("at the checkpoint: %s, %v", mustJSON(old), err)
	}
	// It says what it is: whole, and nothing to attach to.
	if old.Status != chunk.StatusEnded || old.Reason != frontend.ReasonCheckpoint || *old.CheckpointID != "cp-run-u1" ||
		len(old.Messages) != 2 || mustJSON(old.Messages) != mustJSON(s.Messages) {
		t.Errorf("at the checkpoint: %s", mustJSON(old))
	}
	var alias frontend.Snapshot
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/api/chat/s/snapshot?checkpointId=cp-run-u1", ""), &alias); err != nil ||
		alias.StreamSequence != old.StreamSequence || mustJSON(alias.Messages) != mustJSON(old.Messages) {
		t.Errorf("by the other name: %s, %v", mustJSON(alias), err)
	}
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/s/snapshot?checkpointId=none", "")
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/s/snapshot?checkpoint=none", "")
	if data := k.status(http.StatusOK, "GET", "/api/chat/s/checkpoints", ""); strings.Count(string(data), `"id":`) != 2 {
		t.Errorf("checkpoints: %s", data)
	}
	for path, want := range map[string]string{
		"/api/chat/s/messages?offset=1&limit=2": `"hasMore":true,"total":4`,
		"/api/messages/s?offset=3":              `"hasMore":false,"total":4`,
	} {
		if data := k.status(http.StatusOK, "GET", path, ""); !strings.Contains(string(data), want) {
			t.Errorf("%s: %s", path, data)
		}
	}
}

func TestSessionsAndDelete(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("a", "u1", "x")
	k.turn("b", "u1", "y")
	var list struct {
		Sessions []struct {
			Session, Status, Title string
			StreamSequence         uint64
		}
	}
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/sessions?status=ended", ""), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Sessions) != 2 || list.Sessions[0].Title != "question u1" || list.Sessions[0].StreamSequence == 0 {
		t.Errorf("sessions: %+v", list)
	}
	k.status(http.StatusNoContent, "DELETE", "/api/chat/a", "")
	k.problem(http.StatusNotFound, "not_found", "DELETE", "/api/chat/a", "")
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/a/snapshot", "")
	k.status(http.StatusNoContent, "GET", "/api/chat/a/stream", "")
	// The same id begins again, in the next incarnation.
	e := k.say("a", "u1", "hi")
	if got := e.res.Header.Get("X-Stream-Incarnation"); got != "2" {
		t.Errorf("incarnation %s", got)
	}
	o := k.own("a")
	o.start("u1")
	o.text("new")
	o.finish()
	for _, ev := range e.all() {
		if ev.ID != "" && !strings.HasSuffix(ev.ID, ".2") {
			t.Errorf("id %s lacks the incarnation", ev.ID)
		}
	}
	k.problem(http.StatusConflict, "cursor_ahead", "GET", "/api/chat/a/stream", "", "Last-Event-ID", "2")
	if got := textOf(k.stream("GET", "/api/chat/a/stream", "", "Last-Event-ID", "2.2").all()); got != "new" {
		t.Errorf("cursor of the new incarnation: %q", got)
	}
}

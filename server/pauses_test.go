package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/wire"
)

// ask pauses the run at a call that the client is to answer.
func (o *owner) ask(call string) {
	o.k.Helper()
	o.commit(spool.Row{}, nil,
		&chunk.ToolArgStreamStart{ToolCallID: call, ToolName: "locate"},
		&chunk.ToolArgStreamEnd{ToolCallID: call, ToolName: "locate", Arguments: json.RawMessage(`{}`)})
	var words []chunk.Chunk
	if err := o.g.View(o.k.Context(), func(f *fold.Fold) error { words = f.Owed().CloseModelPhase("tool-calls", nil); return nil }); err != nil {
		o.k.Fatal(err)
	}
	o.commit(spool.Row{}, nil, append(words, &chunk.ToolStart{ToolCallID: call, ToolName: "locate", Arguments: json.RawMessage(`{}`)})...)
	o.commit(spool.Row{Status: chunk.StatusPaused}, nil, &chunk.RunSuspended{Kind: "awaiting_client_tool", ToolCallIDs: []string{call}, StepID: o.stepID()})
	o.release()
}

// TestCutAcrossPause: a turn went through a pause and is over. A reader that saw it up
// to any event gets all of the rest, and not only what came before the pause.
func TestCutAcrossPause(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	post := k.say("s", "u1", "where am I?")
	o := k.own("s")
	replay := k.stream("GET", "/api/chat/s/stream", "")
	o.start("u1")
	o.text("Let me ", "see. ")
	middle := k.stream("GET", "/api/chat/s/stream", "")
	head := middle.until("see. ")
	o.ask("c1")
	first, replayed, attached := post.all(), replay.all(), append(head, middle.all()...)
	body := mustJSON(map[string]any{"id": "s", "messages": []any{
		map[string]any{"id": "answer-u1", "role": "assistant", "parts": []any{
			map[string]any{"type": "dynamic-tool", "toolName": "locate", "toolCallId": "c1", "state": "output-available", "input": map[string]any{}, "output": "here"},
		}},
	}})
	next := k.stream("POST", "/api/chat/s", body)
	o = k.own("s")
	o.start(chat.AnswerID(wire.Answer{CallID: "c1"}), "u1")
	o.text("You are ", "here.")
	o.finish()
	second := next.all()
	// The same POSTs again get the same segments, now that all is over.
	if again := k.say("s", "u1", "where am I?").all(); datas(again) != datas(first) {
		t.Errorf("the first POST again: %s\nwas: %s", datas(again), datas(first))
	}
	if again := k.stream("POST", "/api/chat/s", body).all(); datas(again) != datas(second) {
		t.Errorf("the answer again: %s\nwas: %s", datas(again), datas(second))
	}

	// All three were told of the pause, and are told the rest when they come back.
	const want = "Let me see. You are here."
	for name, list := range map[string][]event{"post": first, "replay": replayed, "attached": attached} {
		for i, e := range list {
			// An id holds until the next one; only the event that brings it counts.
			if e.ID == "" || i > 0 && list[i-1].ID == e.ID {
				continue
			}
			rest := k.stream("GET", "/api/chat/s/stream", "", "Last-Event-ID", e.ID).all()
			if got := textOf(list[:i+1]) + textOf(rest); got != want {
				t.Errorf("%s, cut after %s: %q", name, e.ID, got)
			}
			if n := strings.Count(datas(rest), "[DONE]"); n != 1 || rest[len(rest)-1].Data != "[DONE]" {
				t.Errorf("%s, cut after %s: %d ends", name, e.ID, n)
			}
		}
	}
}

// TestStoreClockAhead: a command is due by the store's clock. A server whose own
// is behind must not think that nothing comes.
func TestStoreClockAhead(t *testing.T) {
	t.Parallel()
	k := newKitOn(t, memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(time.Minute) }}), nil)
	post := k.say("s", "u1", "hi")
	readers := map[string]*events{
		"post":   post,
		"replay": k.stream("GET", "/api/chat/s/stream", ""),
		"native": k.stream("GET", "/stream/s", ""),
	}
	o := k.own("s")
	o.start("u1")
	o.text("hello")
	o.finish()
	for name, r := range readers {
		if got := datas(r.all()); !strings.Contains(got, `"hello"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

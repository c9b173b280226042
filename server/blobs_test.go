package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// TestLargeValues: a value beside the log is itself on the AI SDK wire, in
// snapshots and histories, live and replayed, also when it comes from kept
// records; the native wire shows a reference that can be fetched.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	value := func(fill string) json.RawMessage {
		return json.RawMessage(`{"rows":"` + strings.Repeat(fill, 100<<10) + `"}`)
	}
	input, output, data, state := value("i"), value("o"), value("d"), value("s")
	post := k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.commit(spool.Row{}, nil,
		&spool.ToolArgStreamStart{ToolCallID: "c1", ToolName: "dump"},
		&spool.ToolArgStreamDelta{ToolCallID: "c1", Delta: string(input)},
		&spool.ToolArgStreamEnd{ToolCallID: "c1", ToolName: "dump"})
	var words []spool.Chunk
	if err := o.g.View(t.Context(), func(f *spool.Fold) error { words = f.CloseModelPhase("tool-calls", nil); return nil }); err != nil {
		t.Fatal(err)
	}
	o.commit(spool.Row{}, nil, append(words,
		&spool.ToolStart{ToolCallID: "c1", ToolName: "dump", Arguments: input},
		&spool.Custom{EventName: "table", ID: "1", Data: data},
		&spool.Progress{ID: "p", Data: state},
		&spool.ToolEnd{ToolCallID: "c1", ToolName: "dump", Result: output, Success: true})...)
	o.finish()

	holds := func(name, got string, escaped bool) {
		t.Helper()
		if strings.Contains(got, "$blob") {
			t.Errorf("%s shows a reference", name)
		}
		for _, want := range []json.RawMessage{input, output, data, state} {
			text := string(want)
			if escaped && string(want) == string(input) {
				text = strings.Repeat("i", 100<<10) // as the text of argument deltas
			}
			if !strings.Contains(got, text) {
				t.Errorf("%s lacks %.12s", name, want)
			}
		}
	}
	list := post.all()
	holds("stream", datas(list), false)
	holds("replay", datas(k.stream("GET", "/api/chat/s/stream", "").all()), true)
	holds("snapshot", string(k.status(http.StatusOK, "GET", "/api/chat/s/snapshot", "")), false)
	holds("messages", string(k.status(http.StatusOK, "GET", "/api/chat/s/messages", "")), false)
	for _, e := range k.stream("GET", "/stream/s", "").all() {
		var end struct {
			Type   string
			Result json.RawMessage
		}
		if json.Unmarshal([]byte(e.Data), &end) != nil || end.Type != "tool_end" {
			continue
		}
		hash, _, ok := spool.ParseBlobRef(end.Result)
		if !ok {
			t.Fatalf("native: %.100s", end.Result)
		}
		if got := k.status(http.StatusOK, "GET", "/api/chat/s/blobs/"+hash, ""); string(got) != string(output) {
			t.Errorf("the blob has %d bytes", len(got))
		}
	}
	if err := k.store.Trim(t.Context(), "s", k.snapshot("s").StreamSequence, 0); err != nil {
		t.Fatal(err)
	}
	fresh := k.anew()
	holds("replay from kept records", datas(fresh.stream("GET", "/api/chat/s/stream", "").all()), true)
	holds("snapshot from kept records", string(fresh.status(http.StatusOK, "GET", "/api/chat/s/snapshot", "")), false)
}

package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/blobref"
	"github.com/spool-run/spool/store/memstore"
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
		&chunk.ToolArgStreamStart{ToolCallID: "c1", ToolName: "dump"},
		&chunk.ToolArgStreamDelta{ToolCallID: "c1", Delta: string(input)},
		&chunk.ToolArgStreamEnd{ToolCallID: "c1", ToolName: "dump"})
	var words []chunk.Chunk
	if err := o.g.View(t.Context(), func(f *fold.Fold) error { words = f.Owed().CloseModelPhase("tool-calls", nil); return nil }); err != nil {
		t.Fatal(err)
	}
	o.commit(spool.Row{}, nil, append(words,
		&chunk.ToolStart{ToolCallID: "c1", ToolName: "dump", Arguments: input},
		&chunk.Custom{EventName: "table", ID: "1", Data: data},
		&chunk.Progress{ID: "p", Data: state},
		&chunk.ToolEnd{ToolCallID: "c1", ToolName: "dump", Result: output, Success: true})...)
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
		hash, _, ok := blobref.Parse(end.Result)
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
	fresh := k.restarted()
	holds("replay from kept records", datas(fresh.stream("GET", "/api/chat/s/stream", "").all()), true)
	holds("snapshot from kept records", string(fresh.status(http.StatusOK, "GET", "/api/chat/s/snapshot", "")), false)
}

// flaky is a store whose blobs cannot be had now and then.
type flaky struct {
	*memstore.Store
	down  atomic.Bool
	asked atomic.Int64 // how often while it was down
}

func (f *flaky) GetBlob(ctx context.Context, session, hash string) ([]byte, error) {
	if f.down.Load() {
		f.asked.Add(1)
		return nil, errors.New("the disk is busy")
	}
	return f.Store.GetBlob(ctx, session, hash)
}

// TestLargeValueOutOfReach: what cannot be had for the moment is not shown as
// something else. Readers that are attached wait for it, and requests fail.
func TestLargeValueOutOfReach(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	store := &flaky{Store: k.store}
	logs := spool.NewLogs(store, nil)
	t.Cleanup(func() { _ = logs.Close() })
	b := k.over(logs, nil)
	post := b.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.text("a table: ")
	head := post.until("a table: ")
	store.down.Store(true)
	o.commit(spool.Row{}, nil, &chunk.Custom{EventName: "table", Data: json.RawMessage(`"` + strings.Repeat("d", 100<<10) + `"`)})
	o.finish()
	b.status(http.StatusServiceUnavailable, "GET", "/api/chat/s/snapshot", "")
	b.status(http.StatusServiceUnavailable, "GET", "/api/chat/s/messages", "")
	replay := make(chan string)
	go func() { replay <- datas(b.stream("GET", "/api/chat/s/stream", "").all()) }()
	store.asked.Store(0)
	for store.asked.Load() < 2 { // somebody asks again and again
		time.Sleep(time.Millisecond)
	}
	store.down.Store(false)
	back := b.stream("GET", "/api/chat/s/stream", "", "Last-Event-ID", head[len(head)-1].ID)
	for name, got := range map[string]string{"live": datas(post.all()), "replay": <-replay, "back again": datas(back.all())} {
		if !strings.Contains(got, "ddd") || strings.Contains(got, "$blob") {
			t.Errorf("%s: %.300s", name, got)
		}
	}
}

// What people paste and attach may be as large as a chat body.
func TestLargeUserMessage(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	text := strings.Repeat("pasted \"text\"\n", 100<<10)
	image := "data:image/png;base64," + strings.Repeat("QUJD", 1<<20)
	answer := "data:image/png;base64," + strings.Repeat("REVG", 200<<10)
	body := mustJSON(map[string]any{"id": "s", "message": map[string]any{"id": "u1", "role": "user", "parts": []any{
		map[string]string{"type": "text", "text": text},
		map[string]string{"type": "file", "mediaType": "image/png", "url": image},
	}}})
	post := k.stream("POST", "/api/chat/s", body)
	o := k.own("s")
	o.start("u1")
	o.commit(spool.Row{}, nil, &chunk.File{URL: answer, MediaType: "image/png"})
	o.finish()
	if !strings.Contains(datas(post.all()), answer) {
		t.Error("the stream lacks the answer's file")
	}
	for _, path := range []string{"/api/chat/s/snapshot", "/api/chat/s/messages"} {
		var got struct {
			Messages []struct {
				Role  string
				Parts []struct{ Type, Text, URL string }
			}
		}
		if err := json.Unmarshal(k.status(http.StatusOK, "GET", path, ""), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Messages) != 2 || len(got.Messages[0].Parts) != 2 {
			t.Fatalf("%s: %d messages", path, len(got.Messages))
		}
		if parts := got.Messages[0].Parts; parts[0].Text != text || parts[1].URL != image {
			t.Errorf("%s: %d bytes of text, %d of the image", path, len(parts[0].Text), len(parts[1].URL))
		}
		last := got.Messages[1].Parts
		if file := last[len(last)-1]; file.URL != answer {
			t.Errorf("%s: the answer's file: %.60q", path, file.URL)
		}
	}
}

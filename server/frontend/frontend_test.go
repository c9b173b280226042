package frontend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
	"github.com/spool-run/spool/wire/aisdk"
)

// newFrontend is a facade over a store whose sessions a runner serves.
func newFrontend(t *testing.T) *frontend.Handler { return newFrontendAs(t, aisdk.Options{}) }

func newFrontendAs(t *testing.T, as aisdk.Options) *frontend.Handler {
	t.Helper()
	store := memstore.New(nil)
	logs := spool.NewLogs(store, nil)
	r, err := runner.New(logs, []*agent.Agent{{Name: "test", Model: scripted.New(nil)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = logs.Close()
		_ = store.Close()
	})
	f, err := frontend.New(frontend.Options{Logs: logs, Runner: r, AISDK: as})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func post(t *testing.T, f *frontend.Handler, body any) (session, source string) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.HandleRequest(t.Context(), frontend.Request{Method: "POST", Body: data})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil || res.Status != http.StatusOK {
		t.Fatalf("status %d, %v: %s", res.Status, err, all)
	}
	if !strings.HasSuffix(string(all), "data: [DONE]\n\n") {
		t.Fatalf("the stream ends with %q", all)
	}
	return res.Headers[frontend.HeaderSession], string(all)
}

type obj = map[string]any

// TestOverrideTable: where messages and state come from, by what the body holds.
func TestOverrideTable(t *testing.T) {
	t.Parallel()
	history := []any{obj{"role": "system", "content": "dropped"}, obj{"role": "user", "content": "I am Alice"}, obj{"role": "assistant", "content": "Hello"}}
	const fresh, session, input = "fresh", "session", "input"
	for _, tt := range []struct {
		name                      string
		withSession, withM, withS bool
		messages, state           string
	}{
		{"message", false, false, false, fresh, fresh},
		{"message, sessionId", true, false, false, session, session},
		{"message, messages", false, true, false, input, fresh},
		{"message, state", false, false, true, fresh, input},
		{"message, sessionId, messages", true, true, false, input, session},
		{"message, sessionId, state", true, false, true, session, input},
		{"all four", true, true, true, input, input},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFrontend(t)
			body := obj{"message": "hello"}
			if tt.withSession {
				body["sessionId"] = "s"
				post(t, f, obj{"sessionId": "s", "message": "hello earlier", "state": obj{"from": session}})
			}
			if tt.withM {
				body["messages"] = history
			}
			if tt.withS {
				body["state"] = obj{"from": input}
			}
			id, _ := post(t, f, body)
			snap, err := f.GetSnapshot(t.Context(), id, nil)
			if err != nil {
				t.Fatal(err)
			}
			first := snap.Messages[0].Parts[0].Text
			want := map[string]string{fresh: "hello", session: "hello earlier", input: "I am Alice"}[tt.messages]
			count := map[string]int{fresh: 2, session: 4, input: 4}[tt.messages]
			if first != want || len(snap.Messages) != count {
				t.Errorf("%d messages, the first %q; want %d and %q", len(snap.Messages), first, count, want)
			}
			state := map[string]string{fresh: "", session: `{"from":"session"}`, input: `{"from":"input"}`}[tt.state]
			if string(snap.State) != state {
				t.Errorf("state %s, want %s", snap.State, state)
			}
		})
	}
}

func TestFrontend(t *testing.T) {
	t.Parallel()
	f := newFrontend(t)
	session, source := post(t, f, obj{"message": "think about it"})
	if !strings.Contains(source, `"type":"reasoning-start"`) {
		t.Errorf("stream: %s", source)
	}
	res, err := f.HandleRequest(t.Context(), frontend.Request{Method: "GET", StreamID: session})
	if err != nil || res.Status != http.StatusOK {
		t.Fatalf("GET: %+v, %v", res, err)
	}
	rec := httptest.NewRecorder()
	res.Serve(rec)
	if !strings.Contains(rec.Body.String(), "[DONE]") || rec.Header().Get("Content-Type") != "text/event-stream" || rec.Header().Get("X-Vercel-Ai-Ui-Message-Stream") != "v1" {
		t.Errorf("served %v %s", rec.Header(), rec.Body)
	}
	if res, err := f.HandleRequest(t.Context(), frontend.Request{Method: "GET", StreamID: "unknown"}); err != nil || res.Status != http.StatusNoContent {
		t.Errorf("unknown: %+v, %v", res, err)
	}
	page, err := f.GetMessages(t.Context(), session, frontend.MessagesOptions{Limit: 1, GenerateID: func(i int, _ *chunk.Message) string { return "msg-" + string(rune('0'+i)) }})
	if err != nil || len(page.Messages) != 1 || !page.HasMore || page.Messages[0].ID != "msg-0" {
		t.Errorf("messages: %+v, %v", page, err)
	}
	page, err = f.GetMessages(t.Context(), session, frontend.MessagesOptions{OmitReasoning: true})
	if err != nil || len(page.Messages) != 2 {
		t.Fatalf("messages: %+v, %v", page, err)
	}
	for _, p := range page.Messages[1].Parts {
		if p.Type == "reasoning" {
			t.Error("reasoning was not left out")
		}
	}
	if snap, err := f.GetSnapshot(t.Context(), "unknown", nil); snap != nil || err != nil {
		t.Errorf("snapshot of an unknown session: %v, %v", snap, err)
	}
}

// TestTransformerOptions: a program's options hold for what is streamed, replayed
// and loaded.
func TestTransformerOptions(t *testing.T) {
	t.Parallel()
	f := newFrontendAs(t, aisdk.Options{StaticTools: true, NoStepEvents: true,
		ChunkFilter: func(c chunk.Chunk) bool { return !chunk.Is(c, chunk.TypeThinking, chunk.TypeStatePatch) }})
	session, streamed := post(t, f, obj{"message": "tools please"})
	res, err := f.HandleRequest(t.Context(), frontend.Request{Method: "GET", StreamID: session})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	replayed, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.GetAllMessages(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]string{"stream": streamed, "replay": string(replayed), "history": string(loaded)} {
		for _, gone := range []string{"reasoning", "start-step", "step-start", `"dynamic`, "state-patch"} {
			if strings.Contains(s, gone) {
				t.Errorf("%s is in the %s: %s", gone, name, s)
			}
		}
		if !strings.Contains(s, `"toolCallId"`) {
			t.Errorf("no call is in the %s: %s", name, s)
		}
	}
	if !strings.Contains(string(loaded), `{"type":"tool-`) {
		t.Errorf("the calls are not static: %s", loaded)
	}
}

func TestFrontendErrors(t *testing.T) {
	t.Parallel()
	if _, err := frontend.New(frontend.Options{}); !errors.Is(err, frontend.ConfigurationError) {
		t.Errorf("without logs: %v", err)
	}
	f := newFrontend(t)
	for _, tt := range []struct {
		r    frontend.Request
		want *frontend.HandlerError
		body string
	}{
		{frontend.Request{Method: "PUT"}, frontend.ValidationError, `"code":"VALIDATION_ERROR"`},
		{frontend.Request{Method: "GET"}, frontend.ValidationError, `"code":"VALIDATION_ERROR"`},
		{frontend.Request{Method: "GET", StreamID: "../x"}, frontend.ValidationError, `"code":"VALIDATION_ERROR"`},
		{frontend.Request{Method: "POST", Body: []byte(`{`)}, frontend.ValidationError, `"code":"VALIDATION_ERROR"`},
		{frontend.Request{Method: "POST", Body: []byte(`{"id":"s"}`)}, frontend.ValidationError, `"code":"VALIDATION_ERROR"`},
	} {
		_, err := f.HandleRequest(t.Context(), tt.r)
		var got *frontend.HandlerError
		if !errors.As(err, &got) || !errors.Is(err, tt.want) || got.StatusCode != 400 {
			t.Errorf("%+v: %v", tt.r, err)
			continue
		}
		if data, _ := json.Marshal(got); !strings.Contains(string(data), tt.body) || !strings.Contains(string(data), `"error":`) {
			t.Errorf("body %s", data)
		}
	}
	for _, e := range []struct {
		err    *frontend.HandlerError
		status int
	}{
		{frontend.ValidationError, 400}, {frontend.StreamNotFoundError, 404}, {frontend.StreamFailedError, 410},
		{frontend.ConfigurationError, 501}, {frontend.ExecutionError, 500}, {frontend.StreamCreationError, 500},
	} {
		if e.err.StatusCode != e.status {
			t.Errorf("%s: %d", e.err.Code, e.err.StatusCode)
		}
	}
	if _, err := f.GetMessages(t.Context(), "unknown", frontend.MessagesOptions{}); !errors.Is(err, frontend.StreamNotFoundError) {
		t.Errorf("messages of an unknown session: %v", err)
	}
}

// TestUserMetadata: what a request says of its message is kept with it.
func TestUserMetadata(t *testing.T) {
	t.Parallel()
	f := newFrontend(t)
	session, _ := post(t, f, obj{"message": "hello", "metadata": obj{"source": "web"}})
	page, err := f.GetMessages(t.Context(), session, frontend.MessagesOptions{})
	if err != nil || string(page.Messages[0].Metadata) != `{"source":"web"}` {
		t.Errorf("%+v, %v", page, err)
	}
}

// openStream opens the stream s. What say is given is written to it.
func openStream(t *testing.T) (logs *spool.Logs, streams *stream.Manager, say func(text string)) {
	t.Helper()
	store := memstore.New(nil)
	logs = spool.NewLogs(store, nil)
	t.Cleanup(func() { _ = logs.Close(); _ = store.Close() })
	streams = stream.NewManager(logs, nil)
	w, err := streams.CreateWriter(t.Context(), "s", "", "writer")
	if err != nil {
		t.Fatal(err)
	}
	return logs, streams, func(text string) {
		t.Helper()
		if err := w.Write(t.Context(), &chunk.TextDelta{Delta: text}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFrontendOfAStream: what somebody writes to a stream is in a snapshot or on
// the stream, as a request asks; and a reader goes on where it was.
func TestFrontendOfAStream(t *testing.T) {
	t.Parallel()
	logs, streams, say := openStream(t)
	say("Hel")
	yes, no := true, false
	for _, replay := range []bool{true, false} {
		f, err := frontend.New(frontend.Options{Logs: logs, NoContentReplay: !replay})
		if err != nil {
			t.Fatal(err)
		}
		for name, tt := range map[string]struct {
			include *bool
			want    bool
		}{"by default": {nil, !replay}, "included": {&yes, true}, "left out": {&no, false}} {
			s, err := f.GetSnapshot(t.Context(), "s", tt.include)
			if err != nil || s.Status != chunk.StatusActive {
				t.Fatalf("%+v, %v", s, err)
			}
			got := len(s.Messages) == 1 && s.Messages[0].ID == s.ExistingMessageID+frontend.PartialSuffix && s.Messages[0].Parts[1].Text == "Hel"
			if got != tt.want || len(s.Messages) > 1 {
				t.Errorf("replay %v, %s: %+v", replay, name, s.Messages)
			}
		}
	}
	f, err := frontend.New(frontend.Options{Logs: logs})
	if err != nil {
		t.Fatal(err)
	}
	at, err := f.GetSnapshot(t.Context(), "s", nil)
	if err != nil {
		t.Fatal(err)
	}
	say("lo")
	if err := streams.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	read := func(r frontend.Request) string {
		t.Helper()
		r.Method, r.StreamID = "GET", "s"
		res, err := f.HandleRequest(t.Context(), r)
		if err != nil || res.Status != http.StatusOK {
			t.Fatalf("%+v: %+v, %v", r, res, err)
		}
		defer res.Body.Close()
		all, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(all)
	}
	position := fmt.Sprint(at.StreamSequence)
	rest := read(frontend.Request{ResumeAt: frontend.ResumeAfter(position)})
	if strings.Contains(rest, "Hel") || strings.Contains(rest, `"start"`) || !strings.Contains(rest, `"delta":"lo"`) || !strings.HasSuffix(rest, "[DONE]\n\n") {
		t.Errorf("from %s: %s", position, rest)
	}
	if byHeader := read(frontend.Request{Header: http.Header{"Last-Event-Id": {position}}}); byHeader != rest {
		t.Errorf("by the header: %s\nby itself: %s", byHeader, rest)
	}
	// A page that has loaded the snapshot lacks the message that was being written.
	for _, header := range []string{"X-Resume-From-Sequence", "X-Resume-At"} {
		page := frontend.ExtractResumePosition(http.Header{http.CanonicalHeaderKey(header): {position}})
		if whole := read(frontend.Request{ResumeAt: page}); !strings.Contains(whole, `"delta":"Hello"`) {
			t.Errorf("%s: %s", header, whole)
		}
	}
	if whole := read(frontend.Request{ResumeAt: frontend.ResumeAfter("no position")}); !strings.Contains(whole, `"delta":"Hello"`) {
		t.Errorf("from nowhere: %s", whole)
	}
}

// TestZeroDeps: a bundle with nothing but logs replays no content: the snapshot holds what
// is written, and the stream continues it.
func TestZeroDeps(t *testing.T) {
	t.Parallel()
	logs, streams, say := openStream(t)
	say("Hel")
	d := &frontend.Deps{Deps: chat.Deps{Logs: logs}}
	snap, err := frontend.BuildSnapshot(t.Context(), d, frontend.SnapshotParams{Session: "s"})
	if err != nil || len(snap.Messages) != 1 || snap.Messages[0].ID != snap.ExistingMessageID+frontend.PartialSuffix {
		t.Fatalf("%+v, %v", snap, err)
	}
	say("lo")
	if err := streams.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	h.Set("X-Resume-From-Sequence", fmt.Sprint(snap.StreamSequence))
	res, err := chat.Handle(t.Context(), &d.Deps, chat.Params{Session: "s", Profile: d.AISDK.Profile(), Position: frontend.ExtractResumePosition(h)})
	if err != nil || res.Stream == nil {
		t.Fatalf("%+v, %v", res, err)
	}
	client := aisdk.Client{Message: snap.Messages[0], Started: true}
	for err = error(nil); err == nil; {
		var data []byte
		if data, err = res.Stream.Next(t.Context()); len(data) > 0 {
			if werr := client.Write(data); werr != nil {
				t.Fatal(werr)
			}
		}
	}
	text := ""
	for _, p := range client.Message.Parts {
		text += p.Text
	}
	if !errors.Is(err, io.EOF) || text != "Hello" || !client.Done || client.Message.ID != snap.Messages[0].ID {
		t.Errorf("%q, %v: %+v", text, err, client.Message)
	}
}

// TestLoadAll: a history of several pages comes whole and in order.
func TestLoadAll(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	logs := spool.NewLogs(store, nil)
	t.Cleanup(func() { _ = logs.Close(); _ = store.Close() })
	g, err := logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	const total, series = 2100, 300
	for n := 0; n < total; n += series {
		messages := make([]chunk.Message, series)
		for i := range messages {
			messages[i] = chunk.Message{ID: fmt.Sprint("m", n+i), Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "hi"}}}
		}
		event := &chunk.HistoryReplaced{CommandID: "h", Messages: &messages, More: n+series < total, Index: n / series}
		if _, err := g.Command(t.Context(), spool.Row{}, event); err != nil {
			t.Fatal(err)
		}
	}
	all, err := frontend.LoadAllUIMessages(t.Context(), &frontend.Deps{Deps: chat.Deps{Logs: logs}}, "s")
	if err != nil || len(all) != total {
		t.Fatalf("%d messages, %v", len(all), err)
	}
	for i, m := range all {
		if m.ID != fmt.Sprint("m", i) {
			t.Fatalf("message %d is %s", i, m.ID)
		}
	}
}

package frontend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
	"github.com/spool-run/spool/tool"
)

// failing is a store whose appends fail.
type failing struct{ *memstore.Store }

func (failing) Append(context.Context, spool.Append) (spool.Appended, error) {
	return spool.Appended{}, spool.ErrClosed
}

func logsOn(t *testing.T, store spool.Store) *spool.Logs {
	t.Helper()
	logs := spool.NewLogs(store, nil)
	t.Cleanup(func() { _ = logs.Close() })
	return logs
}

// running starts a runner.
func running(t *testing.T, logs *spool.Logs, agents []*agent.Agent, o *runner.Options) *runner.Runner {
	t.Helper()
	r, err := runner.New(logs, agents, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

func handler(t *testing.T, o frontend.Options) *frontend.Handler {
	t.Helper()
	f, err := frontend.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A handler that nobody executes runs for says so, and takes no message.
func TestHandlerWithoutARunner(t *testing.T) {
	t.Parallel()
	logs := logsOn(t, memstore.New(nil))
	f := handler(t, frontend.Options{Logs: logs})
	body := frontend.Request{Method: "POST", Body: []byte(`{"message":"hello","sessionId":"s"}`)}
	if _, err := f.HandleRequest(t.Context(), body); !errors.Is(err, frontend.ConfigurationError) || !strings.Contains(err.Error(), "Options.Runner") {
		t.Errorf("without a runner: %v", err)
	}
	if s, err := f.GetSnapshot(t.Context(), "s", nil); s != nil || err != nil {
		t.Errorf("the message was taken: %+v, %v", s, err)
	}
	res, err := handler(t, frontend.Options{Logs: logs, RunsElsewhere: true}).HandleRequest(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	streams := stream.NewManager(logs, nil)
	w, err := streams.CreateWriter(t.Context(), "s", "", "")
	if err == nil {
		err = errors.Join(w.Write(t.Context(), &chunk.TextDelta{Delta: "Here I am."}), streams.EndStream(t.Context(), "s", nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(all), `"delta":"Here I am."`) {
		t.Errorf("answered elsewhere: %s, %v", all, err)
	}
}

// A handler of streams alone streams; histories need a state.
func TestHandlerWithoutAState(t *testing.T) {
	t.Parallel()
	logs := logsOn(t, memstore.New(nil))
	streams := stream.NewManager(logs, nil)
	w, err := streams.CreateWriter(t.Context(), "s", "", "")
	if err == nil {
		err = errors.Join(w.Write(t.Context(), &chunk.TextDelta{Delta: "Hello"}), streams.EndStream(t.Context(), "s", nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	f := handler(t, frontend.Options{Streams: streams})
	res, err := f.HandleRequest(t.Context(), frontend.Request{Method: "GET", StreamID: "s"})
	if err != nil || res.Status != 200 {
		t.Fatalf("%+v, %v", res, err)
	}
	_ = res.Body.Close()
	_, err1 := f.GetMessages(t.Context(), "s", frontend.MessagesOptions{})
	_, err2 := f.GetAllMessages(t.Context(), "s")
	_, err3 := f.GetSnapshot(t.Context(), "s", nil)
	for i, err := range []error{err1, err2, err3} {
		var e *frontend.HandlerError
		if !errors.As(err, &e) || e.Code != "CONFIGURATION_ERROR" || e.StatusCode != 501 {
			t.Errorf("%d: %v", i, err)
		}
	}
	f = handler(t, frontend.Options{Streams: streams, State: stream.NewStateStore(logs)})
	if page, err := f.GetMessages(t.Context(), "s", frontend.MessagesOptions{}); err != nil || len(page.Messages) != 1 {
		t.Errorf("with a state: %+v, %v", page, err)
	}
}

// A handler's metadata and message ids are made once, in the runner, and are the same
// on the stream, its replay and in the snapshot.
func TestHandlerAnnotations(t *testing.T) {
	t.Parallel()
	logs := logsOn(t, memstore.New(nil))
	r := running(t, logs, []*agent.Agent{{Name: "test", Model: scripted.New(nil), FinishMetadata: func(context.Context, agent.RunInfo) any { return map[string]string{"from": "agent"} }}}, nil)
	asked := make(chan string, 100)
	f := handler(t, frontend.Options{Logs: logs, Runner: r,
		StartMetadata:     func(agentID string) any { asked <- agentID; return map[string]any{"requestId": "req-001"} },
		FinishMetadata:    frontend.Static(map[string]string{"service": "chat-api"}),
		GenerateMessageID: func(agentID string) string { return "msg-" + agentID },
	})
	for i, want := range []string{"msg-s", "msg-s-2"} {
		_, streamed := post(t, f, obj{"message": "hello", "sessionId": "s"})
		if !strings.Contains(streamed, `{"type":"start","messageId":"`+want+`","messageMetadata":{"requestId":"req-001"}}`) ||
			!strings.Contains(streamed, `"messageMetadata":{"from":"agent"}}`) {
			t.Errorf("turn %d: %s", i, streamed)
		}
		s, err := f.GetSnapshot(t.Context(), "s", nil)
		if err != nil {
			t.Fatal(err)
		}
		if last := s.Messages[len(s.Messages)-1]; last.ID != want || string(last.Metadata) != `{"from":"agent","requestId":"req-001"}` {
			t.Errorf("turn %d: message %s with %s", i, last.ID, last.Metadata)
		}
	}
	if n := len(asked); n != 2 || <-asked != "s" {
		t.Errorf("the start metadata was made %d times", n)
	}
	if _, err := frontend.New(frontend.Options{Logs: logs, StartMetadata: frontend.Static(1)}); !errors.Is(err, frontend.ConfigurationError) {
		t.Errorf("metadata without a runner: %v", err)
	}
}

// What is wrong with a request has a code of its own.
func TestHandlerCodes(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	logs := logsOn(t, store)
	f := handler(t, frontend.Options{Logs: logs, RunsElsewhere: true})
	streams := stream.NewManager(logs, nil)
	w, err := streams.CreateWriter(t.Context(), "s", "", "")
	if err == nil {
		err = w.Write(t.Context(), &chunk.TextDelta{Delta: "Hello"})
	}
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, err error, sentinel *frontend.HandlerError, body string) {
		t.Helper()
		var got *frontend.HandlerError
		if !errors.As(err, &got) || !errors.Is(err, sentinel) {
			t.Errorf("%s: %v", what, err)
			return
		}
		if data, _ := json.Marshal(got); got.StatusCode != sentinel.StatusCode || !strings.Contains(string(data), body) {
			t.Errorf("%s: %d %s", what, got.StatusCode, data)
		}
	}
	_, err = f.HandleRequest(t.Context(), frontend.Request{Method: "POST", Body: []byte(`{"message":"hello","sessionId":"s"}`)})
	want("busy", err, frontend.BusyError, `"code":"BUSY"`)
	_, err = f.HandleRequest(t.Context(), frontend.Request{Method: "GET", StreamID: "s", ResumeAt: frontend.ResumeAfter("99")})
	want("ahead", err, frontend.CursorAheadError, `"code":"CURSOR_AHEAD"`)
	if err := streams.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	head, err := store.Head(t.Context(), "s")
	if err == nil {
		err = store.Trim(t.Context(), "s", head.Seq, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.HandleRequest(t.Context(), frontend.Request{Method: "GET", StreamID: "s", ResumeAt: frontend.ResumeAfter("2")})
	want("trimmed", err, frontend.CursorTrimmedError, `"code":"CURSOR_TRIMMED"`)

	f = handler(t, frontend.Options{Logs: logsOn(t, failing{memstore.New(nil)}), RunsElsewhere: true})
	_, err = f.HandleRequest(t.Context(), frontend.Request{Method: "POST", Body: []byte(`{"message":"hello","sessionId":"s"}`)})
	want("a store that fails", err, frontend.StreamCreationError, `"code":"STREAM_CREATION_ERROR"`)
}

// Adjacent assistant messages are one message in a snapshot: those of a history that
// the caller owns, and those of turns that were tried again.
func TestSnapshotsMergeMessages(t *testing.T) {
	t.Parallel()
	logs := logsOn(t, memstore.New(nil))
	look := tool.New("look", "", func(tool.Context, struct{}) (int, error) { return 1, nil })
	scenes := map[string]scripted.Scene{"break": scripted.Steps(
		scripted.Say(scripted.Text("Let me look. "), scripted.Calls(scripted.ToolCall{ID: "c", Name: "look", Arguments: "{}"})),
		scripted.Step{Err: &model.Error{Code: model.CodeAuthentication, Message: "no credit"}})}
	test := &agent.Agent{Name: "test", Model: scripted.New(&scripted.Options{Scenes: scenes}), Tools: []tool.Tool{look}}
	f := handler(t, frontend.Options{Logs: logs, Runner: running(t, logs, []*agent.Agent{test}, nil)})
	roles := func(session string) string {
		t.Helper()
		s, err := f.GetSnapshot(t.Context(), session, nil)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, m := range s.Messages {
			list = append(list, fmt.Sprint(m.Role, len(m.Parts)))
		}
		if last := s.Messages[len(s.Messages)-1]; last.ID != s.ExistingMessageID {
			t.Errorf("the message to continue is %s, the last one %s", s.ExistingMessageID, last.ID)
		}
		return strings.Join(list, " ")
	}
	post(t, f, obj{"message": "hello", "sessionId": "s", "messages": []any{obj{"role": "user", "content": "Research AI"},
		obj{"role": "assistant", "content": "Let me see.", "toolCalls": []any{obj{"id": "tc1", "name": "search", "arguments": obj{}}}},
		obj{"role": "tool", "toolCallId": "tc1", "content": "1"}, obj{"role": "assistant", "content": "Found..."}, obj{"role": "assistant", "content": "Summary"}}})
	if got, want := roles("s"), "user1 assistant5 user1 assistant2"; got != want {
		t.Errorf("a history: %s, want %s", got, want)
	}
	post(t, f, obj{"message": "break", "sessionId": "r"})
	d := &chat.Deps{Logs: logs}
	settled, err := chat.Resume(t.Context(), d, "r", chat.ResumeOptions{Mode: chunk.ModeRetry})
	if err != nil {
		t.Fatalf("%+v, %v", settled, err)
	}
	turn, err := f.HandleRequest(t.Context(), frontend.Request{Method: "GET", StreamID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Body.Close()
	if _, err := io.ReadAll(turn.Body); err != nil {
		t.Fatal(err)
	}
	all, err := f.GetAllMessages(t.Context(), "r")
	if got, want := roles("r"), "user1 assistant6"; err != nil || len(all) != 3 || got != want {
		t.Errorf("after a retry: %s, want %s; in the history %d messages, %v", got, want, len(all), err)
	}
}

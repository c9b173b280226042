package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/openai"
)

// keeper is a provider that keeps one background answer.
type keeper struct {
	events [][]byte // each a whole SSE event; number i has sequence number i
	end    string   // how a connection ends early: abort, close, stall

	limit   func(connection int) int // events that a connection gets; < 0: all
	refuse  func(connection int) int // the status that a GET gets instead; 0: none
	ignores bool                     // it forgets about starting_after
	pending int                      // polls that find the answer in progress

	asked, connections, polls, cancelled int
	after                                []string
}

func newKeeper(t *testing.T, name string) *keeper {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(responsesCorpus, name))
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{end: "abort", limit: func(int) int { return -1 }, refuse: func(int) int { return 0 }}
	for e := range bytes.SplitSeq(bytes.TrimSpace(data), []byte("\n\n")) {
		k.events = append(k.events, append(e, "\n\n"...))
	}
	return k
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := 0
	switch {
	case r.Method == "POST" && r.URL.Path == "/v1/responses":
		k.asked++
	case r.Method == "POST" && r.URL.Path == "/v1/responses/resp_1/cancel":
		k.cancelled++
		return
	case r.Method == "GET" && r.URL.Path == "/v1/responses/resp_1" && r.URL.Query().Get("stream") == "true":
		k.after = append(k.after, r.URL.Query().Get("starting_after"))
		if status := k.refuse(k.connections); status != 0 {
			k.connections++
			w.WriteHeader(status)
			io.WriteString(w, `{"error":{"message":"This response can no longer be streamed because it is more than 5 minutes old.","type":"invalid_request_error"}}`)
			return
		}
		if n, err := strconv.Atoi(k.after[len(k.after)-1]); err == nil && !k.ignores {
			from = n + 1
		}
	case r.Method == "GET" && r.URL.Path == "/v1/responses/resp_1":
		k.polls++
		if k.polls <= k.pending {
			io.WriteString(w, `{"id":"resp_1","object":"response","status":"in_progress"}`)
			return
		}
		_, data, _ := bytes.Cut(k.events[len(k.events)-1], []byte("data: "))
		var last struct{ Response json.RawMessage }
		_ = json.Unmarshal(data, &last)
		_, _ = w.Write(last.Response)
		return
	default:
		http.NotFound(w, r)
		return
	}
	n := k.limit(k.connections)
	k.connections++
	for i, e := range k.events[from:] {
		if n >= 0 && i >= n {
			w.(http.Flusher).Flush()
			switch k.end {
			case "stall":
				<-r.Context().Done()
			case "abort":
				panic(http.ErrAbortHandler)
			}
			return
		}
		_, _ = w.Write(e)
	}
}

func noSleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func (k *keeper) model(t *testing.T) *openai.Responses {
	t.Helper()
	s := httptest.NewServer(k)
	t.Cleanup(s.Close)
	return openai.NewResponses(&openai.Options{BaseURL: s.URL + "/v1", APIKey: key, Model: "m", Background: true, Sleep: noSleep})
}

func undisturbed(t *testing.T, name string) modeltest.Answer {
	t.Helper()
	a, bad := modeltest.Fold(modeltest.Collect(newKeeper(t, name).model(t).Stream(t.Context(), question)))
	if bad != nil || a.Error != nil || len(a.Blocks) == 0 {
		t.Fatal(a, bad)
	}
	return a
}

var backgroundStreams = []string{"background.sse", "tools-interleaved.sse", "reasoning-summaries.sse", "web-search.sse", "arguments-only-in-done.sse", "output-lacks-reasoning.sse"}

// Wherever the connection is lost, the message is the undisturbed one, and was
// asked for once.
func TestBackgroundSurvivesLostConnections(t *testing.T) {
	for _, name := range backgroundStreams {
		want := undisturbed(t, name)
		n := len(newKeeper(t, name).events)
		for _, end := range []string{"abort", "close"} {
			for cut := 1; cut < n; cut++ {
				k := newKeeper(t, name)
				k.end = end
				k.limit = func(c int) int {
					if c == 0 {
						return cut
					}
					return -1
				}
				got, bad := modeltest.Fold(modeltest.Collect(k.model(t).Stream(t.Context(), question)))
				if bad != nil || !reflect.DeepEqual(got, want) || k.asked != 1 || !reflect.DeepEqual(k.after, []string{strconv.Itoa(cut - 1)}) {
					t.Errorf("%s, %s after %d: %+v, %v, asked %d, %v\nwant %+v", name, end, cut, got, bad, k.asked, k.after, want)
				}
			}
		}
		// One event a connection, and now and then none, or a busy provider.
		k := newKeeper(t, name)
		k.limit = func(c int) int { return min(1, c%3) + btoi(c == 0) }
		k.refuse = func(c int) int { return 503 * btoi(c%4 == 3) }
		got, bad := modeltest.Fold(modeltest.Collect(k.model(t).Stream(t.Context(), question)))
		if bad != nil || !reflect.DeepEqual(got, want) || k.asked != 1 {
			t.Errorf("%s in pieces: %+v, %v, asked %d", name, got, bad, k.asked)
		}
		// A provider that begins again from the start.
		k = newKeeper(t, name)
		k.ignores = true
		k.limit = func(c int) int { return c + 3 }
		parts, err := modeltest.Collect(k.model(t).Stream(t.Context(), question))
		got, bad = modeltest.Fold(parts, err)
		if slices.Contains(parts, model.Part(model.Restart{})) || bad != nil || !reflect.DeepEqual(got, want) || k.asked != 1 {
			t.Errorf("%s from the start: %+v, %v, asked %d", name, got, bad, k.asked)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Another process resumes from any position that the first one had stored: what
// it yields is exactly what was still to come.
func TestResumeFromEveryPosition(t *testing.T) {
	for _, name := range backgroundStreams {
		k := newKeeper(t, name)
		all, err := modeltest.Collect(k.model(t).Stream(t.Context(), question))
		if err != nil {
			t.Fatal(err)
		}
		positions := 0
		for i, p := range all {
			at, ok := p.(model.Position)
			if !ok {
				continue
			}
			positions++
			for _, lose := range []bool{false, true} {
				k := newKeeper(t, name)
				if lose {
					k.limit = func(c int) int { return 2 }
				}
				got, err := modeltest.Collect(k.model(t).Resume(t.Context(), at.Cursor))
				if err != nil || !reflect.DeepEqual(got, all[i+1:]) || k.asked != 0 {
					t.Errorf("%s at %s: %+v, %v\nwant %+v", name, at.Cursor, got, err, all[i+1:])
				}
			}
		}
		if positions != len(k.events)-1 {
			t.Errorf("%s: %d positions, %d events", name, positions, len(k.events))
		}
	}
}

// After some minutes a provider has only the whole answer.
func TestWindowClosed(t *testing.T) {
	const name = "background.sse"
	want := undisturbed(t, name)
	closed := func(c int) int { return 400 }
	for cut := range 9 {
		k := newKeeper(t, name)
		if cut == 0 { // nothing is known of the answer but its id
			k.refuse = closed
			got, bad := modeltest.Fold(modeltest.Collect(k.model(t).Resume(t.Context(), "resp_1:0")))
			if bad != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("resumed at its beginning: %+v, %v", got, bad)
			}
			continue
		}
		k.limit, k.refuse, k.pending = func(int) int { return cut }, closed, 2
		got, bad := modeltest.Fold(modeltest.Collect(k.model(t).Stream(t.Context(), question)))
		if bad != nil || !reflect.DeepEqual(got, want) || k.asked != 1 || k.polls != 3 {
			t.Errorf("cut at %d: %+v, %v, %d polls", cut, got, bad, k.polls)
		}
		k = newKeeper(t, name)
		k.refuse = closed
		parts, err := modeltest.Collect(k.model(t).Resume(t.Context(), fmt.Sprintf("resp_1:%d", cut)))
		got, bad = modeltest.Fold(parts, err)
		if _, ok := parts[0].(model.Restart); !ok || bad != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("resumed at %d: %+v, %v", cut, parts, bad)
		}
	}
}

func TestBackgroundGivesUp(t *testing.T) {
	k := newKeeper(t, "background.sse")
	k.limit = func(c int) int { return 3 * btoi(c == 0) }
	a, bad := modeltest.Fold(modeltest.Collect(k.model(t).Stream(t.Context(), question)))
	if bad != nil || a.Error == nil || a.Error.Code != model.CodeTruncated || !a.Error.Retryable || k.connections > 10 {
		t.Errorf("%+v, %v, %d connections", a, bad, k.connections)
	}
	// Without an id there is nothing to go on with.
	k = newKeeper(t, "background.sse")
	k.limit = func(int) int { return 0 }
	a, bad = modeltest.Fold(modeltest.Collect(k.model(t).Stream(t.Context(), question)))
	if bad != nil || a.Error == nil || a.Error.Code != model.CodeTruncated || k.connections != 1 {
		t.Errorf("%+v, %v, %d connections", a, bad, k.connections)
	}
	k = newKeeper(t, "background.sse")
	k.refuse = func(int) int { return 401 }
	a, _ = modeltest.Fold(modeltest.Collect(k.model(t).Resume(t.Context(), "resp_1:3")))
	if a.Error == nil || a.Error.Code != model.CodeAuthentication || k.polls != 0 {
		t.Errorf("%+v", a)
	}
	for _, cursor := range []string{"", "resp_1", "resp_1:x", ":1"} {
		_, err := modeltest.Collect(k.model(t).Resume(t.Context(), cursor))
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeGone {
			t.Errorf("%q is taken for a cursor: %v", cursor, err)
		}
	}
}

// The provider's word about an answer that it does not have is told apart from
// what may pass.
func TestBackgroundAnswerIsGone(t *testing.T) {
	var pauses []time.Duration
	provider, err := modeltest.NewBackground(bytes.Join(newKeeper(t, "background.sse").events, nil))
	if err != nil {
		t.Fatal(err)
	}
	connect := func() *openai.Responses {
		return openai.NewResponses(&openai.Options{BaseURL: "http://x.example/v1", Model: "m", Background: true,
			HTTPClient: &http.Client{Transport: busy{provider, &pauses}},
			Sleep:      func(ctx context.Context, d time.Duration) error { pauses = append(pauses, d); return ctx.Err() }})
	}
	provider.Before = func(e modeltest.Event) modeltest.Fate {
		if e.Number == 7 {
			return modeltest.Cut
		}
		return modeltest.Send
	}
	provider.Gone = func(int) bool { return true }
	_, err = modeltest.Collect(connect().Stream(t.Context(), question))
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeTruncated || !e.Retryable {
		t.Errorf("%+v", err)
	}
	_, err = modeltest.Collect(connect().Resume(t.Context(), "resp_0:3"))
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeGone || e.Retryable {
		t.Errorf("%+v", err)
	}
	// A busy provider says when to come back.
	provider.Gone, provider.Before, pauses = nil, nil, []time.Duration{0}
	if _, err = modeltest.Collect(connect().Resume(t.Context(), "resp_0:3")); err != nil || !reflect.DeepEqual(pauses, []time.Duration{0, 7 * time.Second}) {
		t.Errorf("%v, %v", err, pauses)
	}
}

// busy sends away who comes while one pause is on the list.
type busy struct {
	*modeltest.Background
	pauses *[]time.Duration
}

func (b busy) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(*b.pauses) == 1 {
		return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"7"}}, Body: http.NoBody, Request: r}, nil
	}
	return b.Background.RoundTrip(r)
}

func TestCancelAnswer(t *testing.T) {
	k := newKeeper(t, "background.sse")
	m := k.model(t)
	if err := m.CancelAnswer(t.Context(), "resp_1:4"); err != nil || k.cancelled != 1 {
		t.Errorf("%v, cancelled %d times", err, k.cancelled)
	}
	if err := m.CancelAnswer(t.Context(), "resp_2:4"); err != nil { // unknown: nothing works on it
		t.Error(err)
	}
	// A context ends our reading, not the provider's work.
	k = newKeeper(t, "background.sse")
	k.end, k.limit = "stall", func(int) int { return 5 }
	m = k.model(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range m.Stream(ctx, question) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) || k.cancelled != 0 {
		t.Errorf("%v, cancelled %d times", last, k.cancelled)
	}
}

// A provider that falls silent is left and found again.
func TestBackgroundStalls(t *testing.T) {
	want := undisturbed(t, "background.sse")
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, "background.sse")
		k.end, k.limit = "stall", func(c int) int { return 2 }
		m := openai.NewResponses(&openai.Options{BaseURL: "http://x.example/v1", Model: "m", Background: true,
			IdleTimeout: time.Minute, HTTPClient: &http.Client{Transport: inMemory{k}}})
		got, bad := modeltest.Fold(modeltest.Collect(m.Stream(t.Context(), question)))
		if bad != nil || !reflect.DeepEqual(got, want) || k.asked != 1 {
			t.Errorf("%+v, %v, asked %d", got, bad, k.asked)
		}
	})
}

// inMemory answers without a network.
type inMemory struct{ h http.Handler }

func (t inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	go func() {
		t.h.ServeHTTP(pipeWriter{w}, r)
		w.Close()
	}()
	return &http.Response{StatusCode: 200, Body: body, Request: r}, nil
}

type pipeWriter struct{ *io.PipeWriter }

func (pipeWriter) Header() http.Header { return http.Header{} }
func (pipeWriter) WriteHeader(int)     {}
func (pipeWriter) Flush()              {}

func TestResponsesRequest(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	part := func(kind chunk.PartType, text, meta string) chunk.Part {
		return chunk.Part{Type: kind, Text: text, ProviderMetadata: raw(meta)}
	}
	call := func(c chunk.ToolPart) chunk.Part { return chunk.Part{Type: chunk.PartTool, Tool: &c} }
	step := chunk.Part{Type: chunk.PartStep}
	req := &model.Request{
		Instructions: "Be brief.", MaxTokens: 9, Output: raw(`{"type":"object"}`),
		Tools: []model.ToolSpec{{Name: "f", Description: "does f", InputSchema: raw(`{"type":"object"}`)}},
		Messages: []chunk.Message{
			{Role: chunk.RoleUser, Parts: []chunk.Part{part(chunk.PartText, "Look", ""), {Type: chunk.PartFile, URL: "data:image/png;base64,AA==", MediaType: "image/png"}}},
			{Role: chunk.RoleAssistant, Parts: []chunk.Part{step,
				part(chunk.PartReasoning, "Hm", `{"openai":{"item":{"id":"rs_1","type":"reasoning","status":null,"summary":[],"encrypted_content":"E"}}}`),
				part(chunk.PartReasoning, "other", `{"anthropic":{"signature":"S"}}`),
				call(chunk.ToolPart{CallID: "ws_1", Name: "web_search", State: chunk.ToolCompleted, ProviderExecuted: true, Output: raw(`{"id":"ws_1","type":"web_search_call","status":"completed"}`)}),
				call(chunk.ToolPart{CallID: "srvtoolu_1", Name: "web_search", State: chunk.ToolCompleted, ProviderExecuted: true, Output: raw(`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1"}`)}),
				call(chunk.ToolPart{CallID: "a", Name: "f", State: chunk.ToolCompleted, Input: raw(`{"x":1}`), Output: raw(`"ok"`)}),
				step, part(chunk.PartText, "Done", ""),
				step, part(chunk.PartReasoning, "cut", `{"openai":{"item":{"id":"rs_2","type":"reasoning"}}}`)}},
			{Role: chunk.RoleUser, Parts: []chunk.Part{part(chunk.PartText, "Thanks", "")}},
		},
	}
	const rest = `"model":"m","stream":true,"instructions":"Be brief.","max_output_tokens":9,
		"text":{"format":{"type":"json_schema","name":"output","schema":{"type":"object"},"strict":false}},
		"tools":[{"type":"function","name":"f","description":"does f","parameters":{"type":"object"},"strict":false},{"type":"web_search"}],
		"input":[{"role":"user","content":[{"type":"input_text","text":"Look"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"}]},
		  {"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"E"},
		  {"id":"ws_1","type":"web_search_call","status":"completed"},
		  {"type":"function_call","call_id":"a","name":"f","arguments":"{\"x\":1}"},
		  {"type":"function_call_output","call_id":"a","output":"ok"},
		  {"role":"assistant","content":[{"type":"output_text","text":"Done"}]},
		  {"role":"user","content":[{"type":"input_text","text":"Thanks"}]}]`
	for _, tt := range []struct {
		o    openai.Options
		want string
	}{
		{openai.Options{}, `{` + rest + `}`},
		{openai.Options{Background: true}, `{"background":true,"store":true,` + rest + `}`},
		{openai.Options{NoStore: true, Extra: map[string]any{"reasoning": map[string]any{"effort": "low"}}}, `{"store":false,"include":["reasoning.encrypted_content"],"reasoning":{"effort":"low"},` + rest + `}`},
	} {
		var got, want any
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Header.Get("Authorization") != "Bearer "+key {
				t.Error(err, r.Header)
			}
			io.WriteString(w, "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n")
		}))
		tt.o.BaseURL, tt.o.APIKey, tt.o.Model, tt.o.Tools = s.URL, key, "m", []map[string]any{{"type": "web_search"}}
		if _, err := modeltest.Collect(openai.NewResponses(&tt.o).Stream(t.Context(), req)); err != nil {
			t.Error(err)
		}
		s.Close()
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			g, _ := json.Marshal(got)
			t.Errorf("got %s\nwant %s", g, strings.Join(strings.Fields(tt.want), ""))
		}
	}
}

func TestResponsesCorpusOverHTTP(t *testing.T) {
	modeltest.OverHTTP(t, responsesCorpus, ingestResponsesHere, func(url string) model.Model {
		return openai.NewResponses(&openai.Options{BaseURL: url, Model: "m"})
	})
}

// Errors of the API before and in a stream.
func TestResponsesFailures(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(429)
		io.WriteString(w, `{"error":{"message":"Rate limit reached for `+key+`","code":"rate_limit_exceeded"}}`)
	}))
	defer s.Close()
	m := openai.NewResponses(&openai.Options{BaseURL: s.URL, APIKey: key, Model: "m"})
	_, err := modeltest.Collect(m.Stream(t.Context(), question))
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeRateLimited || e.RetryAfter != 3*time.Second || strings.Contains(e.Error(), key) {
		t.Errorf("%+v", err)
	}
}

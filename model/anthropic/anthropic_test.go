package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/anthropic"
	"github.com/spool-run/spool/model/modeltest"
)

const key = "sk-ant-test-0123456789abcdef"

func say(s string) chunk.Part { return chunk.Part{Type: chunk.PartText, Text: s} }

func think(s, metadata string) chunk.Part {
	return chunk.Part{Type: chunk.PartReasoning, Text: s, ProviderMetadata: json.RawMessage(metadata)}
}

func tool(t chunk.ToolPart) chunk.Part { return chunk.Part{Type: chunk.PartTool, Tool: &t} }

func user(parts ...chunk.Part) chunk.Message {
	return chunk.Message{Role: chunk.RoleUser, Parts: parts}
}

func answer(parts ...chunk.Part) chunk.Message {
	return chunk.Message{Role: chunk.RoleAssistant, Parts: parts}
}

var (
	step     = chunk.Part{Type: chunk.PartStep}
	question = &model.Request{Messages: []chunk.Message{user(say("Hi"))}}
)

// serve answers as h does; the options need no address and key.
func serve(t *testing.T, o anthropic.Options, h http.HandlerFunc) *anthropic.Model {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	o.BaseURL, o.APIKey = s.URL+"/v1/", key
	return anthropic.New(&o)
}

func TestStreamCorpusOverHTTP(t *testing.T) {
	modeltest.OverHTTP(t, corpus, ingest, func(url string) model.Model {
		return anthropic.New(&anthropic.Options{BaseURL: url, APIKey: key, Model: "m"})
	})
}

func TestFailures(t *testing.T) {
	for _, tt := range []struct {
		status     int
		retryAfter string
		body       string
		code       string
		retryable  bool
		after      time.Duration
	}{
		{400, "", `{"type":"error","error":{"type":"invalid_request_error","message":"messages: too many"}}`, model.CodeInvalidRequest, false, 0},
		{401, "", `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key ` + key + `"}}`, model.CodeAuthentication, false, 0},
		{403, "", `{"type":"error","error":{"type":"permission_error","message":"no"}}`, model.CodeAuthentication, false, 0},
		{413, "", `{"type":"error","error":{"type":"request_too_large","message":"large"}}`, model.CodeInvalidRequest, false, 0},
		{429, "7", `{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`, model.CodeRateLimited, true, 7 * time.Second},
		{500, "", `{"type":"error","error":{"type":"api_error","message":"oops"}}`, model.CodeUnavailable, true, 0},
		{529, "2", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.CodeOverloaded, true, 2 * time.Second},
	} {
		m := serve(t, anthropic.Options{Model: "m"}, func(w http.ResponseWriter, r *http.Request) {
			if tt.retryAfter != "" {
				w.Header().Set("Retry-After", tt.retryAfter)
			}
			w.WriteHeader(tt.status)
			io.WriteString(w, tt.body)
		})
		_, err := modeltest.Collect(m.Stream(t.Context(), question))
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Code != tt.code || e.Retryable != tt.retryable || e.RetryAfter != tt.after || e.StatusCode != tt.status || strings.Contains(e.Error(), key) {
			t.Errorf("%d: %+v", tt.status, err)
		}
	}
}

func TestConnectionLostAndCancelled(t *testing.T) {
	const half = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Half\"}}\n\n"
	m := serve(t, anthropic.Options{Model: "m"}, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, half)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	a, bad := modeltest.Fold(modeltest.Collect(m.Stream(t.Context(), question)))
	if bad != nil || len(a.Blocks) != 1 || a.Error == nil || a.Error.Code != model.CodeTruncated || !a.Error.Retryable {
		t.Errorf("%+v, %v", a, bad)
	}
	gone := make(chan struct{})
	m = serve(t, anthropic.Options{Model: "m"}, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, half)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range m.Stream(ctx, question) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("%v", last)
	}
	<-gone
}

func TestRequest(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	zero := 0.0
	signed, redacted := `{"anthropic":{"signature":"S1"}}`, `{"anthropic":{"redactedData":"R1"}}`
	search := raw(`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","encrypted_content":"E"}]}`)
	for _, tt := range []struct {
		name    string
		options anthropic.Options
		request model.Request
		want    string
	}{
		{"text", anthropic.Options{}, model.Request{Instructions: "Be brief.", Temperature: &zero, MaxTokens: 9, Messages: []chunk.Message{
			{Role: chunk.RoleSystem, Parts: []chunk.Part{say("Really.")}}, user(say("Hel"), say("lo")), answer(step, say("Hi"), say(" ")), user(), user(say("Go")), user(say("on"))}},
			`{"max_tokens":9,"temperature":0,"system":[{"type":"text","text":"Be brief."},{"type":"text","text":"Really."}],"messages":[
			  {"role":"user","content":[{"type":"text","text":"Hel"},{"type":"text","text":"lo"}]},
			  {"role":"assistant","content":[{"type":"text","text":"Hi"}]},
			  {"role":"user","content":[{"type":"text","text":"Go"},{"type":"text","text":"on"}]}]}`},
		{"thinking and tools", anthropic.Options{ThinkingBudget: 1000}, model.Request{Temperature: &zero,
			Tools: []model.ToolSpec{{Name: "f", Description: "does f", InputSchema: raw(`{"type":"object"}`)}, {Name: "g"}},
			Messages: []chunk.Message{user(say("go")), answer(
				step, think("", redacted), think("Hm", signed), think("other", `{"openai":{}}`), think("none", ``), say("I look."),
				tool(chunk.ToolPart{CallID: "a", Name: "f", State: chunk.ToolCompleted, Input: raw(`{"x":1}`), Output: raw(`"plain"`)}),
				tool(chunk.ToolPart{CallID: "b/2", Name: "g", State: chunk.ToolFailed, Error: "boom"}),
				step, think("", `{"anthropic":{"signature":"S2"}}`),
				tool(chunk.ToolPart{CallID: "c", Name: "g", State: chunk.ToolDenied}),
				tool(chunk.ToolPart{CallID: "d", Name: "g", State: chunk.ToolStreaming, InputText: `{"`}),
				step, say("Done.")), user(say("thanks"))}},
			`{"max_tokens":9192,"thinking":{"type":"enabled","budget_tokens":1000},
			  "tools":[{"name":"f","description":"does f","input_schema":{"type":"object"}},{"name":"g","input_schema":{"type":"object","properties":{}}}],"messages":[
			  {"role":"user","content":[{"type":"text","text":"go"}]},
			  {"role":"assistant","content":[{"type":"redacted_thinking","data":"R1"},{"type":"thinking","thinking":"Hm","signature":"S1"},{"type":"text","text":"I look."},
			    {"type":"tool_use","id":"a","name":"f","input":{"x":1}},{"type":"tool_use","id":"call_ID","name":"g","input":{}}]},
			  {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"plain"},{"type":"tool_result","tool_use_id":"call_ID","content":"Error: boom","is_error":true}]},
			  {"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"S2"},{"type":"tool_use","id":"c","name":"g","input":{}}]},
			  {"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"The user denied this call.","is_error":true}]},
			  {"role":"assistant","content":[{"type":"text","text":"Done."}]},
			  {"role":"user","content":[{"type":"text","text":"thanks"}]}]}`},
		{"server tools", anthropic.Options{Tools: []map[string]any{{"type": "web_search_20250305", "name": "web_search"}}}, model.Request{Messages: []chunk.Message{user(say("go")), answer(
			step, say("I search."),
			tool(chunk.ToolPart{CallID: "srvtoolu_1", Name: "web_search", State: chunk.ToolCompleted, ProviderExecuted: true, Input: raw(`{"query":"go"}`), Output: search}),
			say("Found."),
			tool(chunk.ToolPart{CallID: "ws_1", Name: "web_search", State: chunk.ToolCompleted, ProviderExecuted: true, Output: raw(`{"openai":1}`)}),
			tool(chunk.ToolPart{CallID: "mcptoolu_1", Name: "echo", State: chunk.ToolCompleted, ProviderExecuted: true, Output: raw(`{"type":"mcp_tool_result","tool_use_id":"x","server_name":"s","content":[]}`)}),
			step, tool(chunk.ToolPart{CallID: "srvtoolu_2", Name: "web_search", State: chunk.ToolPending, ProviderExecuted: true, Input: raw(`{"query":"more"}`)}))}},
			`{"max_tokens":8192,"tools":[{"type":"web_search_20250305","name":"web_search"}],"messages":[{"role":"user","content":[{"type":"text","text":"go"}]},
			  {"role":"assistant","content":[{"type":"text","text":"I search."},
			    {"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"go"}},
			    {"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","encrypted_content":"E"}]},
			    {"type":"text","text":"Found."},
			    {"type":"mcp_tool_use","id":"mcptoolu_1","name":"echo","server_name":"s","input":{}},
			    {"type":"mcp_tool_result","tool_use_id":"mcptoolu_1","content":[]},
			    {"type":"server_tool_use","id":"srvtoolu_2","name":"web_search","input":{"query":"more"}}]}]}`},
		{"cache", anthropic.Options{Cache: "1h", MaxTokens: 7}, model.Request{Instructions: "I", Tools: []model.ToolSpec{{Name: "f"}, {Name: "g"}},
			Messages: []chunk.Message{user(say("1")), answer(say("2")), user(say("3")), answer(say("4")), user(say("5"), say("6"))}},
			`{"max_tokens":7,"system":[{"type":"text","text":"I","cache_control":{"type":"ephemeral","ttl":"1h"}}],
			  "tools":[{"name":"f","input_schema":{"type":"object","properties":{}}},{"name":"g","input_schema":{"type":"object","properties":{}},"cache_control":{"type":"ephemeral","ttl":"1h"}}],
			  "messages":[{"role":"user","content":[{"type":"text","text":"1"}]},{"role":"assistant","content":[{"type":"text","text":"2"}]},
			  {"role":"user","content":[{"type":"text","text":"3","cache_control":{"type":"ephemeral","ttl":"1h"}}]},{"role":"assistant","content":[{"type":"text","text":"4"}]},
			  {"role":"user","content":[{"type":"text","text":"5"},{"type":"text","text":"6","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}`},
		{"output", anthropic.Options{}, model.Request{Output: raw(`{"type":"object"}`)},
			`{"max_tokens":8192,"messages":[],"system":[{"type":"text","text":"Your final answer must be nothing but JSON that satisfies this JSON Schema:\n{\"type\":\"object\"}"}]}`},
		{"native output, extra", anthropic.Options{NativeOutput: true, Extra: map[string]any{"top_k": 3}}, model.Request{Output: raw(`{"type":"object"}`)},
			`{"max_tokens":8192,"messages":[],"top_k":3,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}}`},
		{"files", anthropic.Options{}, model.Request{Messages: []chunk.Message{user(
			chunk.Part{Type: chunk.PartFile, URL: "data:image/png;base64,AA==", MediaType: "image/png"},
			chunk.Part{Type: chunk.PartFile, URL: "https://x.example/b.jpg", MediaType: "image/jpeg"},
			chunk.Part{Type: chunk.PartFile, URL: "data:application/pdf;base64,CC==", Filename: "c.pdf"},
			chunk.Part{Type: chunk.PartFile, URL: "data:text/csv,a%2Cb", Filename: "d.csv"},
			chunk.Part{Type: chunk.PartFile, URL: "https://x.example/e.zip", MediaType: "application/zip", Filename: "e.zip"})}},
			`{"max_tokens":8192,"messages":[{"role":"user","content":[
			  {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},
			  {"type":"image","source":{"type":"url","url":"https://x.example/b.jpg"}},
			  {"type":"document","title":"c.pdf","source":{"type":"base64","media_type":"application/pdf","data":"CC=="}},
			  {"type":"document","title":"d.csv","source":{"type":"text","media_type":"text/plain","data":"a,b"}},
			  {"type":"text","text":"[e.zip](https://x.example/e.zip)"}]}]}`},
	} {
		var got map[string]any
		tt.options.Model = "m"
		m := serve(t, tt.options, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "POST" || r.URL.Path != "/v1/messages" || r.Header.Get("X-Api-Key") != key || r.Header.Get("Anthropic-Version") == "" {
				t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
			}
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			io.WriteString(w, "data: {\"type\":\"message_stop\"}\n\n")
		})
		if _, err := modeltest.Collect(m.Stream(t.Context(), &tt.request)); err != nil {
			t.Error(err)
		}
		var want map[string]any
		if err := json.Unmarshal([]byte(strings.ReplaceAll(tt.want, "call_ID", madeID(got))), &want); err != nil {
			t.Fatal(err)
		}
		want["model"], want["stream"] = "m", true
		if !reflect.DeepEqual(got, want) {
			g, _ := json.Marshal(got)
			w, _ := json.Marshal(want)
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, g, w)
		}
	}
}

// madeID finds the id that stands for one that the API would refuse.
func madeID(body map[string]any) string {
	data, _ := json.Marshal(body)
	_, rest, ok := strings.Cut(string(data), `"id":"call_`)
	if !ok {
		return "none"
	}
	id, _, _ := strings.Cut(rest, `"`)
	return "call_" + id
}

func TestModelFromTheEndpoint(t *testing.T) {
	var asked []string
	m := serve(t, anthropic.Options{}, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		io.WriteString(w, `{"data":[{"type":"model","id":"claude-x"},{"id":"claude-y"}]}`)
	})
	for range 2 {
		if id, err := m.ID(t.Context()); err != nil || id != "claude-x" || len(asked) != 1 {
			t.Errorf("%s, %v, %v", id, err, asked)
		}
	}
}

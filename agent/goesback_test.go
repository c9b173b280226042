package agent_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/tool"
)

// What a provider says beside its reasoning and its calls goes back to it as it
// came, out of the log's kept records alone; the next request fails without.
func TestProviderMetadataGoesBack(t *testing.T) {
	chat := func(delta, finish string) string {
		return `data: {"choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}` + "\n\n"
	}
	const call = `"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}`
	called := func(more string) string { return `"tool_calls":[{"index":0,` + call + more + `}]` }
	const result = `{"role":"tool","content":"\"done\"","tool_call_id":"call_1"}`
	for _, tt := range []struct {
		name, path string
		first      string // the stream that asks for the call
		want       string // of the second request's messages or input, the end
	}{
		{"a call's signature", "/chat/completions",
			chat(`{`+called(`,"extra_content":{"google":{"thought_signature":"EjQK+/="}}`)+`}`, `"tool_calls"`),
			`{"role":"assistant","content":null,"tool_calls":[{` + call + `,"extra_content":{"google":{"thought_signature":"EjQK+/="}}}]},` + result + `]`},
		{"a signature behind the arguments", "/chat/completions",
			chat(`{`+called(``)+`}`, `null`) + chat(`{"tool_calls":[{"index":0,"extra_content":{"vertex":{"thought_signature":"V"}}}]}`, `"stop"`),
			`{"role":"assistant","content":null,"tool_calls":[{` + call + `,"extra_content":{"vertex":{"thought_signature":"V"}}}]},` + result + `]`},
		{"reasoning_details", "/chat/completions",
			chat(`{"reasoning":"We","reasoning_details":[{"type":"reasoning.text","text":"We","index":0}]}`, `null`) +
				chat(`{"reasoning_details":[{"type":"reasoning.text","signature":"SIG+/=","index":0}]}`, `null`) +
				chat(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"gAAA","id":"call_1","index":1}]}`, `null`) + chat(`{`+called(``)+`}`, `"tool_calls"`),
			`{"role":"assistant","content":null,"reasoning_details":[{"index":0,"signature":"SIG+/=","text":"We","type":"reasoning.text"},` +
				`{"data":"gAAA","id":"call_1","index":1,"type":"reasoning.encrypted"}],"tool_calls":[{` + call + `}]},` + result + `]`},
		{"reasoning_content", "/chat/completions",
			chat(`{"reasoning_content":"Hm"}`, `null`) + chat(`{"reasoning_content":", so","content":null}`, `null`) + chat(`{`+called(``)+`}`, `"tool_calls"`),
			`{"role":"assistant","content":null,"reasoning_content":"Hm, so","tool_calls":[{` + call + `}]},` + result + `]`},
		{"reasoning_opaque", "/chat/completions",
			chat(`{"reasoning_text":"Hm"}`, `null`) + chat(`{"reasoning_opaque":"OP"}`, `null`) + chat(`{`+called(``)+`}`, `"tool_calls"`),
			`{"role":"assistant","content":null,"reasoning_text":"Hm","reasoning_opaque":"OP","tool_calls":[{` + call + `}]},` + result + `]`},
		{"an id of its own kind", "/chat/completions",
			chat(`{"tool_calls":[{"index":0,"id":"functions.f:0","type":"function","function":{"name":"f","arguments":"{}"}}]}`, `"tool_calls"`),
			`{"role":"assistant","content":null,"tool_calls":[{"id":"functions.f:0","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
				`{"role":"tool","content":"\"done\"","tool_call_id":"functions.f:0"}]`},
		{"encrypted reasoning", "/responses",
			`data: {"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm"}],"encrypted_content":"gAAAA+/=","status":"completed"}}` + "\n\n" +
				`data: {"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{}"}}` + "\n\n" +
				`data: {"type":"response.completed","response":{"id":"resp_1","status":"completed"}}` + "\n\n",
			`{"encrypted_content":"gAAAA+/=","id":"rs_1","summary":[{"text":"Hm","type":"summary_text"}],"type":"reasoning"},` +
				`{"arguments":"{}","call_id":"call_1","name":"f","type":"function_call"},` +
				`{"call_id":"call_1","output":"\"done\"","type":"function_call_output"}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var requests [][]byte
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || r.URL.Path != tt.path {
					t.Errorf("%s, %v", r.URL, err)
				}
				requests = append(requests, body)
				answer := tt.first
				if len(requests) > 1 {
					answer = "data: [DONE]\n\n"
					if tt.path == "/responses" {
						answer = `data: {"type":"response.completed","response":{"id":"resp_2","status":"completed"}}` + "\n\n"
					}
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer s.Close()
			var m model.Model = openai.New(&openai.Options{BaseURL: s.URL, Model: "m"})
			if tt.path == "/responses" {
				m = openai.NewResponses(&openai.Options{BaseURL: s.URL, Model: "m", NoStore: true})
			}
			a := &agent.Agent{Name: "a", Model: m, Tools: []tool.Tool{tool.New("f", "", func(tool.Context, struct{}) (string, error) { return `"done"`, nil })}}
			r, l := begin(t, "go")
			if _, err := a.Step(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			// Another process: it has what is kept.
			l.keptOnly()
			if _, err := run(t.Context(), a, r); err != nil {
				t.Fatal(err)
			}
			if len(requests) != 2 {
				t.Fatalf("%d requests", len(requests))
			}
			var body map[string]json.RawMessage
			if err := json.Unmarshal(requests[1], &body); err != nil {
				t.Fatal(err)
			}
			said := body["messages"]
			if tt.path == "/responses" {
				said = body["input"]
				if string(body["store"]) != "false" || !strings.Contains(string(body["include"]), "reasoning.encrypted_content") {
					t.Errorf("store %s, include %s", body["store"], body["include"])
				}
			}
			if !bytes.HasSuffix(said, []byte(","+tt.want)) {
				t.Errorf("got  %s\nwant …%s", said, tt.want)
			}
		})
	}
}

// keptOnly folds the log again from its kept records.
func (l *memLog) keptOnly() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fold = fold.New(l.fold.Session)
	for i, c := range l.chunks {
		if chunk.ClassOf(c) != chunk.Kept {
			continue
		}
		raw, err := chunk.Append(nil, c)
		if err == nil {
			err = l.fold.Apply(chunk.Record{Seq: uint64(i + 1), Type: c.ChunkType(), Class: chunk.Kept, Data: raw})
		}
		if err != nil {
			l.t.Error(err)
		}
	}
}

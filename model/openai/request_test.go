package openai

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

var step = chunk.Part{Type: chunk.PartStep}

func say(s string) chunk.Part { return chunk.Part{Type: chunk.PartText, Text: s} }

func think(s, metadata string) chunk.Part {
	return chunk.Part{Type: chunk.PartReasoning, Text: s, ProviderMetadata: json.RawMessage(metadata)}
}

func file(url, media, name string) chunk.Part {
	return chunk.Part{Type: chunk.PartFile, URL: url, MediaType: media, Filename: name}
}

func tool(t chunk.ToolPart) chunk.Part { return chunk.Part{Type: chunk.PartTool, Tool: &t} }

func signed(p chunk.Part, metadata string) chunk.Part {
	p.ProviderMetadata = json.RawMessage(metadata)
	return p
}

func user(parts ...chunk.Part) chunk.Message {
	return chunk.Message{Role: chunk.RoleUser, Parts: parts}
}

func answer(parts ...chunk.Part) chunk.Message {
	return chunk.Message{Role: chunk.RoleAssistant, Parts: parts}
}

func called(ids ...string) string {
	var list []string
	for _, id := range ids {
		list = append(list, `{"id":"`+id+`","type":"function","function":{"name":"f","arguments":"{}"}}`)
	}
	return "[" + strings.Join(list, ",") + "]"
}

func TestMessages(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	done := func(id, output string) chunk.Part {
		return tool(chunk.ToolPart{CallID: id, Name: "f", State: chunk.ToolCompleted, Input: raw(`{}`), Output: raw(output)})
	}
	for _, tt := range []struct {
		name    string
		request model.Request
		want    string
	}{
		{"nothing", model.Request{}, `[]`},
		{"text", model.Request{Instructions: "Be brief.", Messages: []chunk.Message{
			{Role: chunk.RoleSystem, Parts: []chunk.Part{say("Really.")}},
			user(say("Hel"), say("lo")), answer(step, say("Hi"), say("!")), user()}},
			`[{"role":"system","content":"Be brief."},{"role":"system","content":"Really."},
			  {"role":"user","content":"Hello"},{"role":"assistant","content":"Hi!"}]`},
		{"steps", model.Request{Messages: []chunk.Message{user(say("go")), answer(
			step, say("I look."), done("a", `"plain"`), done("b", `{"x": 1}`),
			step, done("c", `null`),
			step, say("Done."))}},
			`[{"role":"user","content":"go"},
			  {"role":"assistant","content":"I look.","tool_calls":` + called("a", "b") + `},
			  {"role":"tool","tool_call_id":"a","content":"plain"},{"role":"tool","tool_call_id":"b","content":"{\"x\": 1}"},
			  {"role":"assistant","content":null,"tool_calls":` + called("c") + `},{"role":"tool","tool_call_id":"c","content":"null"},
			  {"role":"assistant","content":"Done."}]`},
		{"no boundaries", model.Request{Messages: []chunk.Message{answer(say("A"), done("a", `1`), say("B"), done("b", `2`))}},
			`[{"role":"assistant","content":"A","tool_calls":` + called("a") + `},{"role":"tool","tool_call_id":"a","content":"1"},
			  {"role":"assistant","content":"B","tool_calls":` + called("b") + `},{"role":"tool","tool_call_id":"b","content":"2"}]`},
		{"outcomes", model.Request{Messages: []chunk.Message{answer(
			tool(chunk.ToolPart{CallID: "a", Name: "f", State: chunk.ToolFailed, Error: "boom"}),
			tool(chunk.ToolPart{CallID: "b", Name: "f", State: chunk.ToolDenied}),
			tool(chunk.ToolPart{CallID: "c", Name: "f", State: chunk.ToolDenied, Approval: &chunk.Approval{Reason: "too dear"}}),
			tool(chunk.ToolPart{CallID: "d", Name: "f", State: chunk.ToolExecuting}),
			tool(chunk.ToolPart{CallID: "e", Name: "f", State: chunk.ToolStreaming, InputText: `{"x`}),
			tool(chunk.ToolPart{CallID: "f", Name: "f", State: chunk.ToolCompleted, ProviderExecuted: true}),
			tool(chunk.ToolPart{CallID: "g", Name: "f", State: chunk.ToolCompleted}))}},
			`[{"role":"assistant","content":null,"tool_calls":` + called("a", "b", "c", "d", "g") + `},
			  {"role":"tool","tool_call_id":"a","content":"Error: boom"},
			  {"role":"tool","tool_call_id":"b","content":"The user denied this call."},
			  {"role":"tool","tool_call_id":"c","content":"The user denied this call: too dear"},
			  {"role":"tool","tool_call_id":"d","content":"This call has no result."},
			  {"role":"tool","tool_call_id":"g","content":"null"}]`},
		{"arguments", model.Request{Messages: []chunk.Message{answer(
			tool(chunk.ToolPart{CallID: "a", Name: "f", State: chunk.ToolCompleted, Input: raw("{ \"x\": [1, 2] }"), Output: raw(`""`)}),
			tool(chunk.ToolPart{CallID: "b", Name: "f", State: chunk.ToolFailed, InputText: `{"x":`, InputInvalid: true, Error: "bad"}))}},
			`[{"role":"assistant","content":null,"tool_calls":[
			    {"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":[1,2]}"}},
			    {"id":"b","type":"function","function":{"name":"f","arguments":"{\"invalid_arguments\":\"{\\\"x\\\":\"}"}}]},
			  {"role":"tool","tool_call_id":"a","content":""},{"role":"tool","tool_call_id":"b","content":"Error: bad"}]`},
		{"ids", model.Request{Messages: []chunk.Message{answer(done("s.1/call 0", `1`))}},
			`[{"role":"assistant","content":null,"tool_calls":` + called("call_0aecf0e521bc5bd1404b7c7e") + `},
			  {"role":"tool","tool_call_id":"call_0aecf0e521bc5bd1404b7c7e","content":"1"}]`},
		{"files", model.Request{Messages: []chunk.Message{user(say("Look"),
			file("data:image/png;base64,AA==", "image/png", "a.png"),
			file("https://x.example/b.jpg", "image/jpeg", ""),
			file("data:audio/mpeg;base64,BB==", "audio/mpeg", ""),
			file("data:application/pdf;base64,CC==", "", "c.pdf"),
			file("data:text/plain;base64,aGk=", "text/plain", "d.txt"),
			file("data:text/csv,a%2Cb", "", "e.csv"),
			file("https://x.example/f.zip", "application/zip", "f.zip"))}},
			`[{"role":"user","content":[{"type":"text","text":"Look"},
			  {"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},
			  {"type":"image_url","image_url":{"url":"https://x.example/b.jpg"}},
			  {"type":"input_audio","input_audio":{"data":"BB==","format":"mp3"}},
			  {"type":"file","file":{"filename":"c.pdf","file_data":"data:application/pdf;base64,CC=="}},
			  {"type":"text","text":"d.txt:\nhi"},{"type":"text","text":"e.csv:\na,b"},
			  {"type":"text","text":"[f.zip](https://x.example/f.zip)"}]}]`},
		{"reasoning", model.Request{Messages: []chunk.Message{
			user(say("one")),
			answer(step, think("old", `{"openai":{"field":"reasoning_content"}}`), done("a", `1`)),
			user(say("two")),
			answer(step, think("new", `{"openai":{"field":"reasoning_content"}}`), done("b", `2`),
				step, think("x", `{"openai":{"reasoning_details":[{"type":"t","text":"x"}]}}`), think("", `{"openai":{"reasoning_details":[{"type":"e"}]}}`), think("other", `{"anthropic":{"signature":"s"}}`), say("S"),
				step, think("last", `{"openai":{"field":"reasoning_content"}}`), say("T"))}},
			`[{"role":"user","content":"one"},
			  {"role":"assistant","content":null,"reasoning_content":"old","tool_calls":` + called("a") + `},{"role":"tool","tool_call_id":"a","content":"1"},
			  {"role":"user","content":"two"},
			  {"role":"assistant","content":null,"reasoning_content":"new","tool_calls":` + called("b") + `},{"role":"tool","tool_call_id":"b","content":"2"},
			  {"role":"assistant","content":"S","reasoning_content":"","reasoning_details":[{"type":"t","text":"x"},{"type":"e"}]},
			  {"role":"assistant","content":"T","reasoning_content":"last"}]`},
		{"reasoning of a turn without calls", model.Request{Messages: []chunk.Message{
			user(say("one")), answer(step, think("why", `{"openai":{"field":"reasoning_content"}}`), say("S")), user(say("two"))}},
			`[{"role":"user","content":"one"},{"role":"assistant","content":"S"},{"role":"user","content":"two"}]`},
		{"signatures", model.Request{Messages: []chunk.Message{answer(
			step, think("why", `{"openai":{"from":"here","field":"reasoning_text","reasoning_opaque":"OP"}}`),
			signed(done("a", `1`), `{"openai":{"from":"here","extra_content":{"google":{"thought_signature":"S=="}}}}`),
			signed(done("b", `2`), `{"openai":{"id":"functions.f:1","provider_specific_fields":{"thought_signature":"P"},"thought_signature":"T","thoughtSignature":"C"}}`))}},
			`[{"role":"assistant","content":null,"reasoning_text":"why","reasoning_opaque":"OP","tool_calls":[
			    {"id":"a","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"S=="}}},
			    {"id":"functions.f:1","type":"function","function":{"name":"f","arguments":"{}"},"provider_specific_fields":{"thought_signature":"P"},"thought_signature":"T","thoughtSignature":"C"}]},
			  {"role":"tool","tool_call_id":"a","content":"1"},{"role":"tool","tool_call_id":"functions.f:1","content":"2"}]`},
		{"another endpoint's", model.Request{Messages: []chunk.Message{answer(
			step, think("why", `{"openai":{"from":"there","field":"reasoning_content"}}`), think("", `{"openai":{"from":"there","reasoning_details":[{"type":"e"}]}}`),
			signed(done("a", `1`), `{"openai":{"from":"there","id":"x.1","extra_content":{"google":{"thought_signature":"S=="}}}}`))}},
			`[{"role":"assistant","content":null,"tool_calls":` + called("a") + `},{"role":"tool","tool_call_id":"a","content":"1"}]`},
	} {
		got, err := provider.Marshal(messages(&tt.request, "here"))
		if err != nil {
			t.Fatal(err)
		}
		equalJSON(t, tt.name, got, []byte(tt.want))
	}
}

func TestBody(t *testing.T) {
	zero := 0.0
	r := &model.Request{
		Tools:       []model.ToolSpec{{Name: "f", Description: "does f", InputSchema: json.RawMessage(`{"type":"object"}`)}, {Name: "g"}},
		Output:      json.RawMessage(`{"type":"object"}`),
		MaxTokens:   9,
		Temperature: &zero,
	}
	const rest = `"messages":[],"stream":true,"temperature":0,
		"tools":[{"type":"function","function":{"name":"f","description":"does f","parameters":{"type":"object"}}},
		         {"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}]`
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Model: "m", StrictOutput: true}, `{"model":"m","max_completion_tokens":9,"stream_options":{"include_usage":true},
			"response_format":{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":{"type":"object"}}},` + rest + `}`},
		{Options{Model: "m", BaseURL: "http://localhost:1/v1", NoStreamOptions: true, Extra: map[string]any{"model": "n", "top_k": 3}},
			`{"model":"n","top_k":3,"max_tokens":9,
			"response_format":{"type":"json_schema","json_schema":{"name":"output","schema":{"type":"object"}}},` + rest + `}`},
	} {
		got, err := New(&tt.o).body(r, tt.o.Model)
		if err != nil {
			t.Fatal(err)
		}
		equalJSON(t, tt.o.BaseURL, got, []byte(tt.want))
	}
	if _, err := New(nil).body(&model.Request{Output: json.RawMessage(`{`)}, "m"); err == nil {
		t.Error("a schema that is not JSON passes")
	}
}

func equalJSON(t *testing.T, name string, got, want []byte) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
	}
}

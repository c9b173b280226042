package aisdk_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/aisdk"
)

func tool(id string, state chunk.ToolState, change func(*chunk.ToolPart)) chunk.Part {
	t := &chunk.ToolPart{CallID: id, Name: "search", State: state, Input: json.RawMessage(`{"q":1}`)}
	if change != nil {
		change(t)
	}
	return chunk.Part{Type: chunk.PartTool, Tool: t}
}

func decided(approved bool) func(*chunk.ToolPart) {
	return func(t *chunk.ToolPart) { t.Approval = &chunk.Approval{ID: "a", Approved: &approved, Reason: "r"} }
}

func TestConvertToolStates(t *testing.T) {
	const head = `{"type":"dynamic-tool","toolName":"search","toolCallId":"c","state":`
	tests := []struct {
		part chunk.Part
		ui   string
		core string
	}{
		{tool("c", chunk.ToolStreaming, func(t *chunk.ToolPart) { t.Input, t.InputText = nil, `{"q"` }),
			head + `"input-streaming"}`, `"state":"pending"}`},
		{tool("c", chunk.ToolPending, nil), head + `"input-available","input":{"q":1}}`, `"state":"pending","input":{"q":1}}`},
		{tool("c", chunk.ToolExecuting, nil), head + `"input-available","input":{"q":1}}`, `"state":"executing","input":{"q":1}}`},
		{tool("c", chunk.ToolExecuting, func(t *chunk.ToolPart) { t.Preliminary, t.Output = true, json.RawMessage("1") }),
			head + `"output-available","preliminary":true,"output":1,"input":{"q":1}}`, `"state":"executing","input":{"q":1}}`},
		{tool("c", chunk.ToolPending, func(t *chunk.ToolPart) { t.Approval = &chunk.Approval{ID: "a"} }),
			head + `"approval-requested","approval":{"id":"a"},"input":{"q":1}}`, `"state":"pending","input":{"q":1}}`},
		{tool("c", chunk.ToolPending, decided(true)),
			head + `"approval-responded","approval":{"id":"a","approved":true,"reason":"r"},"input":{"q":1}}`, `"state":"pending","input":{"q":1}}`},
		{tool("c", chunk.ToolCompleted, nil), head + `"output-available","output":null,"input":{"q":1}}`, `"state":"completed","input":{"q":1}}`},
		{tool("c", chunk.ToolCompleted, func(t *chunk.ToolPart) { t.Output = json.RawMessage(`"x"`) }),
			head + `"output-available","output":"x","input":{"q":1}}`, `"state":"completed","input":{"q":1},"output":"x"}`},
		{tool("c", chunk.ToolFailed, func(t *chunk.ToolPart) { t.Error, t.Output = "no", json.RawMessage("null") }),
			head + `"output-error","input":{"q":1},"errorText":"no"}`, `"state":"error","input":{"q":1},"error":"no"}`},
		{tool("c", chunk.ToolFailed, nil), head + `"output-error","input":{"q":1},"errorText":""}`, `"state":"error","input":{"q":1}}`},
		{tool("c", chunk.ToolDenied, decided(false)),
			head + `"output-denied","approval":{"id":"a","approved":false,"reason":"r"},"input":{"q":1}}`, `"state":"error","input":{"q":1},"error":"denied: r"}`},
	}
	for _, test := range tests {
		m := []chunk.Message{{ID: "m", Role: chunk.RoleAssistant, Parts: []chunk.Part{test.part}}}
		ui := aisdk.ConvertToUIMessages(m, &aisdk.ConvertOptions{Live: true})[0]
		if got, _ := json.Marshal(ui.Parts[0]); !sameText(got, test.ui) {
			t.Errorf("%s:\ngot  %s\nwant %s", test.part.Tool.State, got, test.ui)
		}
		core := aisdk.ConvertToCoreMessages(m, nil)[0]
		want := `{"type":"tool-invocation","toolCallId":"c","toolName":"search",` + test.core
		if got, _ := json.Marshal(core.Parts[0]); !sameText(got, want) {
			t.Errorf("%s:\ngot  %s\nwant %s", test.part.Tool.State, got, want)
		}
	}
	for core, want := range map[string]string{"pending": "input-available", "executing": "input-available", "completed": "output-available", "error": "output-error"} {
		if got := aisdk.UIState(core); got != want {
			t.Errorf("%s: %s, want %s", core, got, want)
		}
	}
}

// sameText compares JSON without regard to the order of members.
func sameText(got []byte, want string) bool {
	var a, b any
	if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		return false
	}
	return diff(a, b) == ""
}

func history() []chunk.Message {
	text := func(s string) chunk.Part { return chunk.Part{Type: chunk.PartText, Text: s} }
	return []chunk.Message{
		{ID: "s", Role: chunk.RoleSystem, Parts: []chunk.Part{text("Be brief.")}},
		{ID: "u", Role: chunk.RoleUser, Metadata: json.RawMessage(`{"from":"x"}`), Parts: []chunk.Part{text("Hello"),
			{Type: chunk.PartFile, URL: "data:,x", MediaType: "text/plain", Filename: "x.txt"}}},
		{ID: "a", Role: chunk.RoleAssistant, Parts: []chunk.Part{{Type: chunk.PartStep, ID: "1"},
			{Type: chunk.PartReasoning, Text: "Hm", ProviderMetadata: json.RawMessage(`{"flat":"x"}`)}, text("I search."),
			tool("c", chunk.ToolCompleted, func(t *chunk.ToolPart) { t.Output = json.RawMessage("1") })}},
	}
}

func TestConvertMessages(t *testing.T) {
	got, err := json.Marshal(aisdk.ConvertToUIMessages(history(), nil))
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"id":"s","role":"system","parts":[{"type":"text","text":"Be brief."}]},
		{"id":"u","role":"user","metadata":{"from":"x"},"parts":[{"type":"text","text":"Hello"},
			{"type":"file","url":"data:,x","mediaType":"text/plain","filename":"x.txt"}]},
		{"id":"a","role":"assistant","parts":[{"type":"step-start"},{"type":"reasoning","text":"Hm","state":"done"},
			{"type":"text","text":"I search.","state":"done"},
			{"type":"dynamic-tool","toolName":"search","toolCallId":"c","state":"output-available","input":{"q":1},"output":1},
			{"type":"step-start"}]}]`
	if !sameText(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, _ = json.Marshal(aisdk.ConvertToUIMessages(history(), &aisdk.ConvertOptions{OmitReasoning: true, OmitToolResults: true,
		StaticTools: true, NoStepEvents: true, GenerateID: func(i int, m *chunk.Message) string { return fmt.Sprint(m.Role, "-", i) }})[2])
	want = `{"id":"assistant-2","role":"assistant","parts":[{"type":"text","text":"I search.","state":"done"},
		{"type":"tool-search","toolCallId":"c","state":"input-available","input":{"q":1}}]}`
	if !sameText(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPages(t *testing.T) {
	o := &aisdk.ConvertOptions{GenerateID: func(i int, _ *chunk.Message) string { return fmt.Sprint(i) }}
	for _, test := range []struct {
		offset, limit int
		ids           string
		more          bool
	}{
		{0, 0, "012", false}, {0, 2, "01", true}, {2, 2, "2", false}, {1, 1, "1", true}, {3, 1, "", false}, {9, -1, "", false}, {-1, -1, "012", false},
	} {
		page := aisdk.LoadUIMessages(history(), test.offset, test.limit, o)
		core := aisdk.LoadCoreUIMessages(history(), test.offset, test.limit, o)
		ids, coreIDs := "", ""
		for _, m := range page.Messages {
			ids += m.ID
		}
		for _, m := range core.Messages {
			coreIDs += m.ID
		}
		if ids != test.ids || coreIDs != test.ids || page.HasMore != test.more || core.HasMore != test.more {
			t.Errorf("offset %d, limit %d: %q, more %v; core %q, more %v", test.offset, test.limit, ids, page.HasMore, coreIDs, core.HasMore)
		}
	}
	if data, _ := json.Marshal(aisdk.LoadUIMessages(nil, 0, 0, nil)); string(data) != `{"messages":[],"hasMore":false}` {
		t.Errorf("empty page: %s", data)
	}
}

func TestMergeAssistantMessages(t *testing.T) {
	call := func(id, state string) aisdk.UIPart {
		return aisdk.UIPart{Type: "tool-x", ToolCallID: id, State: state}
	}
	text := func(s string) aisdk.UIPart { return aisdk.UIPart{Type: "text", Text: s} }
	in := []aisdk.UIMessage{
		{ID: "u", Role: "user", Parts: []aisdk.UIPart{text("")}},
		{ID: "1", Role: "assistant", Metadata: json.RawMessage(`1`), Parts: []aisdk.UIPart{call("c", "input-available"), call("d", "output-available"), text("")}},
		{ID: "2-partial", Role: "assistant", Metadata: json.RawMessage(`2`), Parts: []aisdk.UIPart{call("c", "output-error"), call("d", "input-streaming"), text("x")}},
		{ID: "v", Role: "user", Parts: []aisdk.UIPart{text("y")}},
		{ID: "3", Role: "assistant", Parts: []aisdk.UIPart{text("z"), call("c", "input-available")}},
	}
	before, _ := json.Marshal(in)
	tests := map[string]struct {
		o    *aisdk.MergeOptions
		want string
	}{
		"default": {nil, `"parts":[{"type":"tool-x","state":"output-error","toolCallId":"c","errorText":""},{"type":"tool-x","state":"output-available","toolCallId":"d","output":null},{"type":"text","text":"x"}]`},
		"literal": {&aisdk.MergeOptions{FirstTool: true}, `"parts":[{"type":"tool-x","state":"input-available","toolCallId":"c"},{"type":"tool-x","state":"output-available","toolCallId":"d","output":null},{"type":"text","text":"x"}]`},
		"all": {&aisdk.MergeOptions{KeepDuplicateTools: true, KeepEmptyText: true}, `"parts":[{"type":"tool-x","state":"input-available","toolCallId":"c"},{"type":"tool-x","state":"output-available","toolCallId":"d","output":null},{"type":"text","text":""},
			{"type":"tool-x","state":"output-error","toolCallId":"c","errorText":""},{"type":"tool-x","state":"input-streaming","toolCallId":"d"},{"type":"text","text":"x"}]`},
	}
	for name, test := range tests {
		got, _ := json.Marshal(aisdk.MergeAssistantMessages(in, test.o))
		want := `[{"id":"u","role":"user","parts":[{"type":"text","text":""}]},{"id":"1-partial","role":"assistant","metadata":1,` + test.want +
			`},{"id":"v","role":"user","parts":[{"type":"text","text":"y"}]},{"id":"3","role":"assistant","parts":[{"type":"text","text":"z"},{"type":"tool-x","state":"input-available","toolCallId":"c"}]}]`
		if !sameText(got, want) {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
	if after, _ := json.Marshal(in); string(after) != string(before) {
		t.Error("the messages given were changed")
	}
}

func TestParse(t *testing.T) {
	m, err := aisdk.ParseUIMessage([]byte(`{"id":"u","role":"user","metadata":{"k":1},"parts":[{"type":"text","text":"Hi"},{"type":"step-start"},
		{"type":"file","url":"data:,x","mediaType":"image/png","filename":"x.png"},{"type":"data-pos","data":{"x":1},"id":"p"},{"type":"text","text":""}]}`))
	if err != nil {
		t.Fatal(err)
	}
	user, err := aisdk.UserMessage(m)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(user)
	if want := `{"id":"u","role":"user","metadata":{"k":1},"parts":[{"type":"text","text":"Hi"},{"type":"file","url":"data:,x","mediaType":"image/png","filename":"x.png"},{"type":"data","name":"pos","id":"p","data":{"x":1}}]}`; !sameText(got, want) {
		t.Errorf("got %s", got)
	}
	if m, err := aisdk.ParseUIMessage([]byte(`{"role":"user","content":"Hi"}`)); err != nil || m.Parts[0].Text != "Hi" {
		t.Error(m, err)
	}
	for _, bad := range []string{`[]`, `{"role":"tool","parts":[]}`, `{"role":"user","content":{}}`, `{"parts":[]}`, `{`} {
		if _, err := aisdk.ParseUIMessage([]byte(bad)); chunk.CodeOf(err) != chunk.ErrInvalid.Code {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for _, empty := range []aisdk.UIMessage{{Role: "user"}, {Role: "assistant", Parts: []aisdk.UIPart{{Type: "text", Text: "x"}}}} {
		if _, err := aisdk.UserMessage(empty); chunk.CodeOf(err) != chunk.ErrInvalid.Code {
			t.Errorf("%+v: %v", empty, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	m, err := aisdk.ParseUIMessage([]byte(`{"id":"a","role":"assistant","parts":[{"type":"text","text":"x","state":"done"},
		{"type":"tool-where","toolCallId":"c1","state":"output-available","input":{},"output":{"lat":1}},
		{"type":"dynamic-tool","toolName":"x","toolCallId":"c2","state":"output-error","input":{},"errorText":"off"},
		{"type":"dynamic-tool","toolName":"x","toolCallId":"c3","state":"approval-responded","input":{},"approval":{"id":"a3","approved":false,"reason":"no"}},
		{"type":"dynamic-tool","toolName":"x","toolCallId":"c4","state":"approval-requested","input":{},"approval":{"id":"a4"}},
		{"type":"dynamic-tool","toolName":"x","toolCallId":"c5","state":"input-available","input":{}},
		{"type":"dynamic-tool","toolName":"x","toolCallId":"c6","state":"output-available","preliminary":true,"input":{},"output":1},
		{"type":"dynamic-tool","toolName":"x","toolCallId":"c7","state":"output-available","input":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := aisdk.Answers(m)
	want := []aisdk.Answer{{ToolCallID: "c1", Output: json.RawMessage(`{"lat":1}`)}, {ToolCallID: "c2", Error: "off"},
		{ToolCallID: "c3", ApprovalID: "a3", Reason: "no"}, {ToolCallID: "c7", Output: json.RawMessage("null")}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	m.Role = "user"
	if aisdk.Answers(m) != nil {
		t.Error("a user's message answers calls")
	}
}

func TestMuteOutputs(t *testing.T) {
	live, _ := project(t, toolsTurn(t), "t", nil)
	kept := aisdk.MuteOutputs(live, map[string]bool{"c1": true})
	if n := len(live) - len(kept); n != 2 {
		t.Errorf("%d frames muted, want the preliminary and the final output of c1", n)
	}
	if len(aisdk.MuteOutputs(live, nil)) != len(live) {
		t.Error("frames were muted for no call")
	}
}

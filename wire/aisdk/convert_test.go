package aisdk_test

import (
	"encoding/json"
	"fmt"
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
		{"id":"a","role":"assistant","parts":[{"type":"step-start"},{"type":"reasoning","id":"block-1","text":"Hm","state":"done"},
			{"type":"text","text":"I search.","state":"done"},
			{"type":"dynamic-tool","toolName":"search","toolCallId":"c","state":"output-available","input":{"q":1},"output":1},
			{"type":"step-start"}]}]`
	if !sameText(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, _ = json.Marshal(aisdk.ConvertToUIMessages(history(), &aisdk.ConvertOptions{OmitReasoning: true, OmitToolResults: true,
		Options: aisdk.Options{StaticTools: true, NoStepEvents: true}, GenerateID: func(i int, m *chunk.Message) string { return fmt.Sprint(m.Role, "-", i) }})[2])
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

package aisdk_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/aisdk"
)

// A program that has chunks but no log streams them to useChat.
func ExampleToDataStream() {
	chunks := func(yield func(chunk.Chunk, error) bool) {
		base := chunk.Base{AgentID: "demo"}
		_ = yield(&chunk.TextDelta{Base: base, Delta: "Hel"}, nil) &&
			yield(&chunk.TextDelta{Base: base, Delta: "lo"}, nil)
	}
	if err := aisdk.WriteStream(os.Stdout, aisdk.ToDataStream(chunks, nil)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// data: {"type":"start","messageId":"msg-demo"}
	//
	// data: {"type":"text-start","id":"block-1"}
	//
	// id: 1
	// data: {"type":"text-delta","id":"block-1","delta":"Hel"}
	//
	// id: 2
	// data: {"type":"text-delta","id":"block-1","delta":"lo"}
	//
	// data: {"type":"text-end","id":"block-1"}
	//
	// data: {"type":"finish","finishReason":"stop"}
	//
	// data: [DONE]
}

// A stored history in the form that clients keep.
func ExampleConvertToUIMessages() {
	history := []chunk.Message{{ID: "m1", Role: chunk.RoleAssistant, Parts: []chunk.Part{
		{Type: chunk.PartText, Text: "Let me look."},
		{Type: chunk.PartTool, Tool: &chunk.ToolPart{CallID: "c1", Name: "search", State: chunk.ToolExecuting, Input: json.RawMessage(`{"q":"spool"}`)}},
	}}}
	data, err := json.Marshal(aisdk.ConvertToUIMessages(history, nil)[0].Parts[1])
	fmt.Println(string(data), err)
	// Output:
	// {"type":"dynamic-tool","state":"input-available","toolName":"search","toolCallId":"c1","input":{"q":"spool"}} <nil>
}

// A handler answers with such a stream.
func ExampleRespond() {
	handler := func(w http.ResponseWriter, r *http.Request) {
		chunks := func(yield func(chunk.Chunk, error) bool) {
			yield(&chunk.TextDelta{Base: chunk.Base{AgentID: "demo"}, Delta: "Hello"}, nil)
		}
		aisdk.Respond(w, nil, aisdk.ToDataStream(chunks, nil))
	}
	w := httptest.NewRecorder()
	handler(w, httptest.NewRequest(http.MethodPost, "/chat", nil))
	fmt.Println(w.Code, w.Header().Get("X-Vercel-AI-UI-Message-Stream"))
	// Output: 200 v1
}

// A page of a history, in the client's form and in the core format.
func ExampleLoadUIMessages() {
	history := []chunk.Message{
		{ID: "m1", Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "Hello"}}},
		{ID: "m2", Role: chunk.RoleAssistant, Parts: []chunk.Part{{Type: chunk.PartText, Text: "Hi."}}},
	}
	page, _ := json.Marshal(aisdk.LoadUIMessages(history, 0, 1, nil))
	core, _ := json.Marshal(aisdk.LoadCoreUIMessages(history, 1, 1, nil))
	fmt.Println(string(page))
	fmt.Println(string(core))
	// Output:
	// {"messages":[{"id":"m1","role":"user","parts":[{"type":"text","text":"Hello"}]}],"hasMore":true}
	// {"messages":[{"id":"m2","role":"assistant","parts":[{"type":"text","text":"Hi."}]}],"hasMore":false}
}

// Messages of one answer that were stored one by one are shown as one.
func ExampleMergeAssistantMessages() {
	said := func(id, text string) aisdk.UIMessage {
		return aisdk.UIMessage{ID: id, Role: "assistant", Parts: []aisdk.UIPart{{Type: "text", Text: text}}}
	}
	merged := aisdk.MergeAssistantMessages([]aisdk.UIMessage{said("a1", "Let me look."), said("a2", "Here it is.")}, nil)
	fmt.Println(len(merged), merged[0].ID, len(merged[0].Parts))
	// Output: 1 a1 2
}

// What a client that comes back needs of a message that still grows; its open block
// goes on with the next delta.
func ExampleCreateReplayEvents() {
	growing := &chunk.Message{ID: "a1", Parts: []chunk.Part{{Type: chunk.PartText, Text: "Hel", Open: true}}}
	content := aisdk.ReplayContentOf(growing)
	if !aisdk.HasReplayContent(content) {
		return
	}
	replay := aisdk.CreateReplayEvents(content, nil)
	for _, f := range replay.Frames {
		fmt.Print(string(f.Data))
	}
	fmt.Println(replay.TextBlockID)
	// Output:
	// data: {"type":"start","messageId":"a1"}
	//
	// data: {"type":"text-start","id":"block-1"}
	//
	// data: {"type":"text-delta","id":"block-1","delta":"Hel"}
	//
	// block-1
}

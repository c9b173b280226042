package aisdk_test

import (
	"encoding/json"
	"fmt"
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

package spool_test

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/memstore"
)

// A producer that has an agent of its own writes to a stream; readers read it
// while it grows, and again from wherever they were.
func ExampleStreamManager() {
	ctx := context.Background()
	logs := spool.NewLogs(memstore.New(nil), nil)
	defer logs.Close()
	streams := spool.NewStreamManager(logs, nil)

	w, err := streams.CreateWriter(ctx, "session-1", "session-1", "assistant")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	for _, s := range []string{"Hello", ", ", "world"} {
		if err := w.Write(ctx, &spool.TextDelta{Delta: s}); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := streams.EndStream(ctx, "session-1", nil); err != nil {
		fmt.Println(err)
		return
	}

	text, err := spool.CollectText(streams.CreateReader(ctx, "session-1"))
	fmt.Println(text, err)
	info, err := streams.GetStreamInfo(ctx, "session-1")
	fmt.Println(info.Status, err)
	// Output:
	// Hello, world <nil>
	// ended <nil>
}

func ExampleParseChunk() {
	_, err := spool.ParseChunk([]byte(`{"type":"tool_start","toolCallId":7}`))
	fmt.Println(err)
	_, err = spool.ParseChunk([]byte(`{"type":"tool_start","toolCallId":"call-1"}`))
	fmt.Println(err)
	c, err := spool.ParseChunk([]byte(`{"type":"text_delta","delta":"hi"}`))
	if text, ok := spool.As[*spool.TextDelta](c); ok {
		fmt.Println(text.Delta, err)
	}
	// Output:
	// spool: tool_start: toolCallId: is a number, not a string
	// spool: tool_start: toolName: is missing
	// hi <nil>
}

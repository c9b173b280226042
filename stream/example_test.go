package stream_test

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
)

// A producer that has an agent of its own writes to a stream; readers read it
// while it grows, and again from wherever they were.
func ExampleManager() {
	ctx := context.Background()
	logs := spool.NewLogs(memstore.New(nil), nil)
	defer logs.Close()
	streams := stream.NewManager(logs, nil)

	w, err := streams.CreateWriter(ctx, "session-1", "session-1", "assistant")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	for _, s := range []string{"Hello", ", ", "world"} {
		if err := w.Write(ctx, &chunk.TextDelta{Delta: s}); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := streams.EndStream(ctx, "session-1", nil); err != nil {
		fmt.Println(err)
		return
	}

	text, err := stream.CollectText(streams.CreateReader(ctx, "session-1"))
	fmt.Println(text, err)
	info, err := streams.GetStreamInfo(ctx, "session-1")
	fmt.Println(info.Status, err)
	// Output:
	// Hello, world <nil>
	// ended <nil>
}

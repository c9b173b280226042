package chunk_test

import (
	"fmt"

	"github.com/spool-run/spool/chunk"
)

func ExampleParse() {
	_, err := chunk.Parse([]byte(`{"type":"tool_start","toolCallId":7}`))
	fmt.Println(err)
	_, err = chunk.Parse([]byte(`{"type":"tool_start","toolCallId":"call-1"}`))
	fmt.Println(err)
	c, err := chunk.Parse([]byte(`{"type":"text_delta","delta":"hi"}`))
	if text, ok := chunk.As[*chunk.TextDelta](c); ok {
		fmt.Println(text.Delta, err)
	}
	// Output:
	// spool: tool_start: toolCallId: is a number, not a string
	// spool: tool_start: toolName: is missing
	// hi <nil>
}

package openai

import (
	"bytes"
	"testing"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
	"github.com/spool-run/spool/model/modeltest"
)

func newResponsesReader(yield func(model.Part, error) bool, o *IngestOptions) *provider.Reader {
	return newResponse(yield).reader(o)
}

func newMarkedReader(yield func(model.Part, error) bool, o *IngestOptions) *provider.Reader {
	in := newResponse(yield)
	in.marks = true
	return in.reader(o)
}

func TestFastEvents(t *testing.T) {
	n := 0
	for _, data := range modeltest.Streams(t, "../modeltest/testdata/openai-responses", "*.*") {
		n += sameBothWays(t, data, newResponsesReader)
		sameBothWays(t, data, newMarkedReader)
	}
	if n < 50 {
		t.Errorf("only %d events of the corpus went the fast way", n)
	}
	// Each of these differs from a plain delta in one thing.
	for _, event := range []string{
		`{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a","sequence_number":2}`,
		`{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a","sequence_number":1}`,
		`{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a","delta":"b"}`,
		`{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"\ud83e"}`,
		`{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"\uddf5\t"}`,
		`{"type":"response.output_text.delta","output_index":0,"delta":""}`,
		`{"type":"response.output_text.delta","output_index":0,"delta":{"text":"a"}}`,
		`{"type":"response.output_text.delta","output_index":1,"delta":"a"}`,
		`{"type":"response.output_text.delta","delta":"a"}`,
		`{"type":"response.output_text.delta","output_index":"0","delta":"a"}`,
		`{"type":"response.function_call_arguments.delta","output_index":0,"delta":"a"}`,
		`{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{","name":"f"}`,
		`{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"a"}`,
		`{"type":"response.output_text.delta","output_index":0,"delta":"a","error":{"message":"no"}}`,
		`{"type":"response.output_text.delta","output_index":0,"delta":"a"}}`,
		`{"output_index":0,"content_index":0,"delta":"a"}`,
	} {
		first := `data: {"type":"response.created","sequence_number":0,"response":{"id":"r"}}` + "\n\n" +
			`data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"type":"message"}}` + "\n\n"
		last := `data: {"type":"response.completed","sequence_number":3,"response":{"id":"r","status":"completed"}}` + "\n\n"
		for _, name := range []string{"", "event: response.output_text.delta\n", "event: error\n"} {
			for _, ingest := range []newIngester{newResponsesReader, newMarkedReader} {
				sameBothWays(t, []byte(first+name+"data: "+event+"\n\n"+last), ingest)
				sameBothWays(t, []byte(name+"data: "+event+"\n\n"+last), ingest)
			}
		}
	}
}

func FuzzFastEvents(f *testing.F) {
	for _, data := range modeltest.Streams(f, "../modeltest/testdata/openai-responses", "*.*") {
		if len(data) < 2048 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sameBothWays(t, data, newResponsesReader)
		sameBothWays(t, data, newMarkedReader)
	})
}

// A plain delta costs its part and, now and then, a slab for the text.
func TestFastEventsAllocate(t *testing.T) {
	event := []byte("event: response.output_text.delta\n" +
		`data: {"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":" word","logprobs":[],"obfuscation":"abc"}` + "\n\n")
	const n = 2000
	stream := []byte(`data: {"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}` + "\n\n")
	stream = append(append(stream, bytes.Repeat(event, n)...), `data: {"type":"response.completed","response":{"status":"completed"}}`+"\n\n"...)
	per := testing.AllocsPerRun(3, func() {
		for _, err := range IngestResponses(bytes.NewReader(stream), nil) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}) / n
	if per > 1.1 {
		t.Errorf("%v allocations an event", per)
	}
}

package openai

import (
	"bytes"
	"testing"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
	"github.com/spool-run/spool/model/internal/providertest"
	"github.com/spool-run/spool/model/modeltest"
)

type newIngester func(yield func(model.Part, error) bool, o *IngestOptions) *provider.Reader

func sameBothWays(t *testing.T, data []byte, ingest newIngester) int {
	t.Helper()
	return providertest.SameBothWays(t, data, func(yield func(model.Part, error) bool) *provider.Reader {
		return ingest(yield, &IngestOptions{})
	})
}

func TestFastChunks(t *testing.T) {
	n := 0
	for _, data := range modeltest.Streams(t, "../modeltest/testdata/openai-chat", "*.*") {
		n += sameBothWays(t, data, newReader)
	}
	if n < 50 {
		t.Errorf("only %d events of the corpus went the fast way", n)
	}
	// Each of these differs from a plain chunk in one thing.
	for _, event := range []string{
		`{"choices":[{"index":0,"delta":{"content":"a"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a","content":"b"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a","Content":"b"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"},"delta":{"content":"b"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}],"choices":[]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`,
		`{"choices":[{"index":1,"delta":{"content":"a"}}]}`,
		`{"choices":[{"index":1.0,"delta":{"content":"a"}}]}`,
		`{"choices":[{"index":"1","delta":{"content":"a"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":["a"]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"\u00e9\ud83e\uddf5 \ud83e"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"\uddf5"}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning":"r","reasoning_content":"r","content":"a"}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning":"r","content":"a"}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"{\"a\":"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":""}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}],"error":{"message":"no"}}`,
		`{"object":"error","choices":[{"index":0,"delta":{"content":"a"}}]}`,
		`{"type":"error","choices":[{"index":0,"delta":{"content":"a"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}],}`,
		`{"choices":[{"index":0,"delta":{"content":"a` + "\x01" + `"}}]}`,
		`{"choices":[{"index":00,"delta":{"content":"a"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a\x"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"x":[1,-2.5e+3,true,null,"\u0041"]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"x":[1,]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"x":01}}]}`,
	} {
		first := `data: {"choices":[{"index":0,"delta":{"content":"<"}}]}` + "\n\n"
		last := `data: {"choices":[{"index":0,"delta":{"content":">"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
		sameBothWays(t, []byte(first+"data: "+event+"\n\n"+last), newReader)
		sameBothWays(t, []byte("data: "+event+"\n\n"+last), newReader)
	}
}

func FuzzFastChunks(f *testing.F) {
	for _, data := range modeltest.Streams(f, "../modeltest/testdata/openai-chat", "*.*") {
		if len(data) < 2048 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameBothWays(t, data, newReader) })
}

// A plain chunk costs its part and, now and then, a slab for the text.
func TestFastChunksAllocate(t *testing.T) {
	event := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	const n = 2000
	stream := append(bytes.Repeat(event, n), "data: [DONE]\n\n"...)
	per := testing.AllocsPerRun(3, func() {
		for _, err := range Ingest(bytes.NewReader(stream), nil) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}) / n
	if per > 1.1 {
		t.Errorf("%v allocations an event", per)
	}
}

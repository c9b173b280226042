package anthropic

import (
	"bytes"
	"testing"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
	"github.com/spool-run/spool/model/internal/providertest"
	"github.com/spool-run/spool/model/modeltest"
)

func sameBothWays(t *testing.T, data []byte) int {
	t.Helper()
	return providertest.SameBothWays(t, data, func(yield func(model.Part, error) bool) *provider.Reader {
		return newReader(yield, &IngestOptions{})
	})
}

func TestFastDeltas(t *testing.T) {
	n := 0
	for _, data := range modeltest.Streams(t, "../modeltest/testdata/anthropic", "*.*") {
		n += sameBothWays(t, data)
	}
	if n < 50 {
		t.Errorf("only %d events of the corpus went the fast way", n)
	}
	// Each of these differs from a plain delta in one thing.
	for _, event := range []string{
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"},"error":{"message":"no"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}`,
		`{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","text":"a"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a","text":"b"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a","citation":{}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ud83e"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\uddf5"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":null}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}`,
		`{"type":"content_block_start","index":0,"delta":{"type":"text_delta","text":"a"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}},`,
	} {
		first := `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n"
		last := `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"
		for _, name := range []string{"", "event: content_block_delta\n", "event: error\n", "event: message_stop\n"} {
			sameBothWays(t, []byte(first+name+"data: "+event+"\n\n"+last))
			sameBothWays(t, []byte(name+"data: "+event+"\n\n"+last))
		}
	}
}

func FuzzFastDeltas(f *testing.F) {
	for _, data := range modeltest.Streams(f, "../modeltest/testdata/anthropic", "*.*") {
		if len(data) < 2048 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameBothWays(t, data) })
}

// A plain delta costs its part and, now and then, a slab for the text.
func TestFastDeltasAllocate(t *testing.T) {
	event := []byte("event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word"}}` + "\n\n")
	const n = 2000
	stream := []byte(`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n")
	stream = append(append(stream, bytes.Repeat(event, n)...), `data: {"type":"message_stop"}`+"\n\n"...)
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

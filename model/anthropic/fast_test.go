package anthropic

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
	"github.com/spool-run/spool/model/modeltest"
)

type newIngester func(yield func(model.Part, error) bool, o *IngestOptions) *provider.Reader

// says reads a stream, with or without the fast way, and counts the events that
// went it.
func says(data []byte, ingest newIngester, fast bool) (parts []model.Part, n int, err error) {
	parts, err = modeltest.Collect(func(yield func(model.Part, error) bool) {
		r := ingest(yield, &IngestOptions{})
		taken := r.Fast
		r.Fast = func(name, data []byte) bool {
			if !fast || !taken(name, data) {
				return false
			}
			n++
			return true
		}
		r.Read(bytes.NewReader(data))
	})
	return parts, n, err
}

// sameBothWays checks that an event taken the fast way says what it says the
// other.
func sameBothWays(t *testing.T, data []byte, ingest newIngester) (n int) {
	t.Helper()
	fast, n, fastErr := says(data, ingest, true)
	slow, _, slowErr := says(data, ingest, false)
	if !reflect.DeepEqual(fast, slow) || fmt.Sprint(fastErr) != fmt.Sprint(slowErr) {
		t.Errorf("the fast way: %+v, %v\nthe other: %+v, %v", fast, fastErr, slow, slowErr)
	}
	return n
}

func corpusOf(t testing.TB, format string) (list [][]byte) {
	t.Helper()
	for _, pattern := range []string{"*.sse", "*.body"} {
		files, err := filepath.Glob(filepath.Join("../modeltest/testdata", format, pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, data)
		}
	}
	return list
}

func TestFastDeltas(t *testing.T) {
	n := 0
	for _, data := range corpusOf(t, "anthropic") {
		n += sameBothWays(t, data, newReader)
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
			sameBothWays(t, []byte(first+name+"data: "+event+"\n\n"+last), newReader)
			sameBothWays(t, []byte(name+"data: "+event+"\n\n"+last), newReader)
		}
	}
}

func FuzzFastDeltas(f *testing.F) {
	for _, data := range corpusOf(f, "anthropic") {
		if len(data) < 2048 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameBothWays(t, data, newReader) })
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

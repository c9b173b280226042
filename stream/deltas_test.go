package stream_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/stream"
)

// strict reads a body chunk by chunk, as the strict parser does.
func strict(body []byte) ([]chunk.Chunk, error) {
	var raw []json.RawMessage
	if t := bytes.TrimSpace(body); len(t) > 0 && t[0] == '[' {
		if err := json.Unmarshal(t, &raw); err != nil {
			return nil, err
		}
	} else {
		for d := json.NewDecoder(bytes.NewReader(t)); d.More(); {
			var one json.RawMessage
			if err := d.Decode(&one); err != nil {
				return nil, err
			}
			raw = append(raw, one)
		}
	}
	chunks := []chunk.Chunk{}
	for _, one := range raw {
		c, err := stream.ParseProducerChunk(one)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, c)
	}
	return chunks, nil
}

// plainBodies are read in one pass.
var plainBodies = []string{
	``, " \n",
	`{"type":"text_delta","delta":"a"}`,
	` { "type" : "text_delta" , "delta" : "a\n\"\u00e9\ud83e\uddf5 漢" , "partId" : "p" } `,
	`{"delta":"","type":"text_delta"}` + "\r\n" + `{"type":"text_delta","content":"old"}`,
	`{"type":"thinking","content":"hm","isComplete":true}{"type":"thinking","content":"","isComplete":false,"partId":""}`,
	`{"type":"tool_arg_stream_delta","toolCallId":"a/b","delta":"{\"x\":"}`,
	`[{"type":"text_delta","delta":"a"}]`,
	`{"type":"custom","eventName":"m","data":{"a":[1,"}"], "b":null}}`, `{"data": "x" ,"eventName":"m","id":"i","transient":true,"toolCallId":"c","type":"custom"}{"type":"text_delta","delta":"a"}`,
	`[{"type":"custom","eventName":"m","data":null},{"type":"custom","eventName":"m","data":-1.5e3,"id":"","transient":false}]`,
	"[\n{\"type\":\"text_delta\",\"delta\":\"a\"} , {\"type\":\"thinking\",\"content\":\"b\"}\n]\n",
}

// otherBodies are for the strict parser, to take or to refuse.
var otherBodies = []string{
	`[]`, `[`, `{`, `{}`, `7`, `null`, `{"type":"text_delta","delta":"a"`, `[{"type":"text_delta","delta":"a"},]`,
	`[{"type":"text_delta","delta":"a"}] x`, `[{"type":"text_delta","delta":"a"}][]`, `{"type":"text_delta","delta":"a",}`, `{,"type":"text_delta","delta":"a"}`,
	`{"type":"text_delta"}`, `{"type":"text_delta","delta":null}`, `{"type":"text_delta","delta":7}`, `{"type":"text_delta","Delta":"a"}`,
	`{"type":"text_delta","delta":"a","content":"b"}`, `{"type":"text_delta","delta":"a","delta":"b"}`, `{"type":"text_delta","delta":"a","toolCallId":7}`,
	`{"type":"text_delta","delta":"a","step":"4"}`, `{"type":"text_delta","delta":"a","timestamp":4}`, `{"type":"text_delta","delta":"` + "\x01" + `"}`,
	`{"type":"text_delta","delta":"` + "\xff" + `"}`, `{"type":"text_delta","delta":"\ud83e"}x`, `{"type":"text_delta","delta":"\x"}`,
	`{"type":"text_delta","delta":"a","partId":"` + strings.Repeat("x", 300) + `"}`, `{"type":"thinking","delta":"a"}`, `{"type":"thinking","content":"a","isComplete":1}`,
	`{"type":"tool_arg_stream_delta","delta":"a"}`, `{"type":"tool_arg_stream_delta","toolCallId":"","delta":"a"}`,
	`{"type":"tool_arg_stream_start","toolCallId":"a","toolName":"b"}`, `{"type":"end"}`, `{"type":"run_finished","outcome":"completed"}`,
	`{"type":"custom","eventName":"m"}`, `{"type":"custom","data":1}`, `{"type":"custom","eventName":"","data":1}`, `{"type":"custom","eventName":"m","data":01}`, `{"type":"custom","eventName":"m","data":}`,
	`{"type":"custom","eventName":"m","data":{"a":1}`, `{"type":"custom","eventName":"m","data":1,"data":2}`, `{"type":"custom","eventName":"m","data":1,"delta":"a"}`, `{"type":"text_delta","delta":"a","data":1}`,
	`{"type":"custom","eventName":"m","data":` + strings.Repeat("[", 257) + strings.Repeat("]", 257) + `}`,
	strings.Repeat(`{"type":"text_delta","delta":"a"}`, 1001),
}

func TestParseDeltas(t *testing.T) {
	t.Parallel()
	for _, body := range plainBodies {
		chunks, ok := stream.ParseDeltas([]byte(body))
		if !ok {
			t.Errorf("%q is not read in one pass", body)
		}
		if want, err := strict([]byte(body)); err != nil || !reflect.DeepEqual(chunks, want) {
			t.Errorf("%q is %v, want %v, %v", body, chunks, want, err)
		}
	}
	for _, body := range otherBodies {
		if chunks, ok := stream.ParseDeltas([]byte(body)); ok {
			t.Errorf("%q is read as %v", body, chunks)
		}
	}
}

// FuzzParseDeltas: what is read in one pass, the strict parser reads as the same.
func FuzzParseDeltas(f *testing.F) {
	for _, body := range append(plainBodies, otherBodies...) {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		chunks, ok := stream.ParseDeltas(body)
		if !ok {
			return
		}
		if want, err := strict(body); err != nil || !reflect.DeepEqual(chunks, want) {
			t.Fatalf("%q is %v, to the strict parser %v, %v", body, chunks, want, err)
		}
	})
}

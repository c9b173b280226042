package frontend

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

func TestParseBody(t *testing.T) {
	t.Parallel()
	b, err := ParseBody([]byte(`{"id":"chat","trigger":"submit-message","unknown":[1],"messages":[
		{"id":"a","role":"assistant","parts":[{"type":"text","text":"forged"}]},
		{"id":"u","role":"user","metadata":{"k":1},"parts":[
			{"type":"text","text":"look","state":"done"},
			{"type":"file","url":"data:image/png;base64,AA","mediaType":"image/png","filename":"x.png"},
			{"type":"data-place","id":"p","data":{"lat":1}},
			{"type":"later-kind","x":1}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &chunk.Message{ID: "u", Role: chunk.RoleUser, Metadata: json.RawMessage(`{"k":1}`), Parts: []chunk.Part{
		{Type: chunk.PartText, Text: "look"},
		{Type: chunk.PartFile, URL: "data:image/png;base64,AA", MediaType: "image/png", Filename: "x.png"},
		{Type: chunk.PartData, Name: "place", ID: "p", Data: json.RawMessage(`{"lat":1}`)},
	}}
	if b.Session != "chat" || b.Replace != nil || !reflect.DeepEqual(b.Message, want) {
		t.Errorf("parsed %+v, message %+v", b, b.Message)
	}

	b, err = ParseBody([]byte(`{"messages":[{"id":"a1","role":"assistant","parts":[
		{"type":"tool-ask","toolCallId":"c1","state":"output-available","input":{"forged":1},"output":{"ok":1}},
		{"type":"dynamic-tool","toolName":"run","toolCallId":"c2","state":"output-error","errorText":"no"},
		{"type":"tool-rm","toolCallId":"c3","state":"approval-responded","approval":{"id":"ap","approved":false,"reason":"never"}},
		{"type":"tool-rm","toolCallId":"c4","state":"approval-responded","approval":{"id":"ap2"}},
		{"type":"tool-rm","toolCallId":"c5","state":"input-available"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	answers := []Answer{
		{CallID: "c1", Output: json.RawMessage(`{"ok":1}`)},
		{CallID: "c2", Error: "no"},
		{CallID: "c3", ApprovalID: "ap", Reason: "never"},
	}
	if b.Message != nil || b.MessageID != "a1" || !reflect.DeepEqual(b.Answers, answers) {
		t.Errorf("parsed %+v", b)
	}
}

// Metadata beside the message is the message's, unless it has its own.
func TestBodyMetadata(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"message":"hi","metadata":{"source":"web"}}`:                                                                 `{"source":"web"}`,
		`{"metadata":{"source":"web"},"messages":[{"role":"user","parts":[]}]}`:                                        `{"source":"web"}`,
		`{"metadata":{"source":"web"},"message":{"role":"user","content":"hi","metadata":{"own":1}}}`:                  `{"own":1}`,
		`{"metadata":"web","message":"hi"}`:                                                                            ``,
		`{"message":"hi"}`:                                                                                             ``,
		`{"metadata":null,"message":{"content":"hi","metadata":null}}`:                                                 ``,
		`{"metadata":{"source":"web"},"message":"hi","messages":[{"role":"user","content":"before","metadata":null}]}`: `{"source":"web"}`,
	} {
		b, err := ParseBody([]byte(body))
		if err != nil || b.Message == nil || string(b.Message.Metadata) != want {
			t.Errorf("%s: %+v, %v", body, b, err)
		}
		if err == nil && b.Replace != nil && (*b.Replace)[0].Metadata != nil {
			t.Errorf("%s: an earlier message got the metadata, too", body)
		}
	}
	if b, err := ParseBody([]byte(`{"metadata":{"source":"web"},"messages":[{"id":"a","role":"assistant","parts":[]}]}`)); err != nil || b.Message != nil {
		t.Errorf("a continuation: %+v, %v", b, err)
	}
}

func TestExtractResumePosition(t *testing.T) {
	t.Parallel()
	seen := func(seq uint64) Position {
		return Position{Kind: SeenPosition, Cursor: spool.Cursor{Seq: seq}}
	}
	snap := func(seq uint64) Position {
		return Position{Kind: SnapshotPosition, Cursor: spool.Cursor{Seq: seq}}
	}
	for _, tt := range []struct {
		header [3]string // Last-Event-ID, X-Resume-From-Sequence, X-Resume-At
		want   Position
	}{
		{[3]string{}, Position{}},
		{[3]string{"3", "2", "1"}, seen(3)},
		{[3]string{"", "2", "1"}, snap(2)},
		{[3]string{"", "", "1"}, snap(1)},
		{[3]string{"-3", "2", ""}, snap(2)},
		{[3]string{"x", "1.1", "0x1"}, Position{}},
		{[3]string{"0", "", ""}, seen(0)},
	} {
		h := http.Header{}
		for i, name := range []string{HeaderLastEventID, HeaderResumeFrom, HeaderResumeAt} {
			if tt.header[i] != "" {
				h.Set(name, tt.header[i])
			}
		}
		if got := ExtractResumePosition(h); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.header, got, tt.want)
		}
	}
}

func TestRunID(t *testing.T) {
	t.Parallel()
	for _, session := range []string{"s", "a~b", "a~0123456789abcdef"} {
		if s, run := SplitRunID(runID(session, "u1")); s != session || run != hash("u1") {
			t.Errorf("%q: %q %q", session, s, run)
		}
	}
	for _, id := range []string{"s", "a~b", "~0123456789abcdef", "a~0123456789abcdeg"} {
		if s, run := SplitRunID(id); s != id || run != "" {
			t.Errorf("%q: %q %q", id, s, run)
		}
	}
}

// FuzzParseBody: whatever comes, it is a body or a malformed one, and what was
// read can be stored.
func FuzzParseBody(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"message":"hi"}`, `{"id":"s","messages":[{"id":"u","role":"user","parts":[{"type":"text","text":"x"}]}]}`,
		`{"trigger":"regenerate-message","messageId":"a"}`, `{"message":{"content":[{"type":"text","text":"x"}]},"messages":[],"state":{}}`,
		`{"messages":[{"role":"assistant","parts":[{"type":"tool-x","toolCallId":"c","state":"output-available","output":1}]}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := ParseBody(data)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v is not ErrMalformed", err)
			}
			return
		}
		d := &Deps{Logs: spool.NewLogs(nil, nil), AllowOverrides: true}
		dec, err := d.decide(fold.New("s"), b)
		if err != nil {
			if chunk.CodeOf(err) == "" {
				t.Fatalf("%v has no code", err)
			}
			return
		}
		if len(dec.follow) == 0 || len(dec.chunks) == 0 {
			t.Fatalf("nothing to append or to follow: %+v", dec)
		}
		for _, c := range dec.chunks {
			if id := chunk.CommandID(c); chunk.CheckID(id) != nil {
				t.Fatalf("command id %q", id)
			}
			if _, err := chunk.Append(nil, c); err != nil {
				t.Fatalf("%s cannot be stored: %v", c.ChunkType(), err)
			}
		}
	})
}

package aisdk_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

func TestParseBody(t *testing.T) {
	t.Parallel()
	b, err := aisdk.ParseBody([]byte(`{"id":"chat","trigger":"submit-message","unknown":[1],"messages":[
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

	b, err = aisdk.ParseBody([]byte(`{"messages":[{"id":"a1","role":"assistant","parts":[{"type":"text","text":"x","state":"done"},
		{"type":"tool-ask","toolCallId":"c1","state":"output-available","input":{"forged":1},"output":{"ok":1}},
		{"type":"dynamic-tool","toolName":"run","toolCallId":"c2","state":"output-error","errorText":"no"},
		{"type":"tool-rm","toolCallId":"c3","state":"approval-responded","approval":{"id":"ap","approved":false,"reason":"never"}},
		{"type":"tool-rm","toolCallId":"c4","state":"approval-responded","approval":{"id":"ap2"}},
		{"type":"tool-rm","toolCallId":"c5","state":"input-available"},
		{"type":"tool-rm","toolCallId":"c6","state":"output-available","preliminary":true,"output":1},
		{"type":"tool-rm","toolCallId":"c7","state":"output-available"},
		{"type":"tool-rm","state":"output-available","output":1}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	answers := []wire.Answer{
		{CallID: "c1", Output: json.RawMessage(`{"ok":1}`)},
		{CallID: "c2", Error: "no"},
		{CallID: "c3", ApprovalID: "ap", Reason: "never"},
		{CallID: "c7", Output: json.RawMessage("null")},
	}
	if b.Message != nil || b.MessageID != "a1" || !reflect.DeepEqual(b.Answers, answers) {
		t.Errorf("parsed %+v", b)
	}

	b, err = aisdk.ParseBody([]byte(`{"sessionId":"s","id":"x","whenBusy":"steer","commandId":"k","state":{"n":1},"message":"hi",
		"messages":[{"role":"system","content":"brief"},{"role":"user","content":[{"type":"text","text":"before"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if b.Session != "s" || b.WhenBusy != chunk.BusySteer || b.CommandID != "k" || string(b.State) != `{"n":1}` || b.Message.Text() != "hi" ||
		len(*b.Replace) != 1 || (*b.Replace)[0].Text() != "before" {
		t.Errorf("parsed %+v", b)
	}
}

func TestMalformedBodies(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{``, `[]`, `{`, `"hi"`, `{"id":1}`, `{"whenBusy":"never"}`, `{"trigger":"other"}`, `{"message":{"role":"tool"}}`,
		`{"message":{"role":"user","content":{}}}`, `{"message":[]}`, `{"messages":["hi"]}`, `{"messages":[{"content":"no role"}]}`,
		`{"message":"hi","messages":[{"role":"x"}]}`, `{"message":{"parts":[1]}}`} {
		if b, err := aisdk.ParseBody([]byte(bad)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %+v, %v", bad, b, err)
		}
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
		b, err := aisdk.ParseBody([]byte(body))
		if err != nil || b.Message == nil || string(b.Message.Metadata) != want {
			t.Errorf("%s: %+v, %v", body, b, err)
		}
		if err == nil && b.Replace != nil && (*b.Replace)[0].Metadata != nil {
			t.Errorf("%s: an earlier message got the metadata, too", body)
		}
	}
	if b, err := aisdk.ParseBody([]byte(`{"metadata":{"source":"web"},"messages":[{"id":"a","role":"assistant","parts":[]}]}`)); err != nil || b.Message != nil {
		t.Errorf("a continuation: %+v, %v", b, err)
	}
}

// What a client was given and sends back is the message that it was given, but for
// what is not the client's to say.
func TestMessagesComeBack(t *testing.T) {
	t.Parallel()
	for _, m := range history() {
		data, err := json.Marshal(aisdk.ConvertToUIMessage(&m, &aisdk.ConvertOptions{Live: true}))
		if err != nil {
			t.Fatal(err)
		}
		got, answers, err := aisdk.ParseMessage(data, "")
		if err != nil {
			t.Fatal(err)
		}
		want := m.Clone()
		for i := range want.Parts {
			switch p := &want.Parts[i]; p.Type {
			case chunk.PartStep:
				p.ID = ""
			case chunk.PartReasoning:
				p.ProviderMetadata = nil // clients refuse this one
			}
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("got  %s\nwant %s", a, b)
		}
		if calls := m.Role == chunk.RoleAssistant; calls != (len(answers) == 1) {
			t.Errorf("%s: answers %+v", m.ID, answers)
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
		b, err := aisdk.ParseBody(data)
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Fatalf("%v is not ErrMalformed", err)
			}
			return
		}
		if b.Message != nil {
			if _, err := json.Marshal(b.Message); err != nil {
				t.Fatalf("%+v cannot be stored: %v", b.Message, err)
			}
		}
		for _, a := range b.Answers {
			if a.CallID == "" || a.ApprovalID == "" && a.Error == "" && !json.Valid(a.Output) {
				t.Fatalf("%+v answers nothing", a)
			}
		}
	})
}

// A history whose results are messages of the role tool becomes one whose calls have
// outcomes.
func TestToolMessages(t *testing.T) {
	t.Parallel()
	b, err := aisdk.ParseBody([]byte(`{"message":"And now?","messages":[
		{"role":"system","content":"Be kind."},
		{"role":"user","content":"Hello"},
		{"role":"assistant","content":"Let me search...","toolCalls":[{"id":"tc1","name":"search","arguments":{"q":"x"}},{"toolCallId":"tc2","toolName":"read","args":"{\"n\":1}"},{"id":"tc3","name":"write"}]},
		{"role":"tool","toolCallId":"tc1","content":"{\"result\": \"...\"}"},
		{"role":"tool","toolCallId":"tc2","content":"not JSON"},
		{"role":"assistant","content":"Found it.","toolCalls":[]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	ui := aisdk.ConvertToUIMessages(*b.Replace, &aisdk.ConvertOptions{Options: aisdk.Options{StaticTools: true}})
	got, err := json.Marshal(ui)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"id":"","role":"user","parts":[{"type":"text","text":"Hello"}]},` +
		`{"id":"","role":"assistant","parts":[{"type":"text","state":"done","text":"Let me search..."},` +
		`{"type":"tool-search","state":"output-available","toolCallId":"tc1","output":{"result":"..."},"input":{"q":"x"}},` +
		`{"type":"tool-read","state":"output-available","toolCallId":"tc2","output":"not JSON","input":{"n":1}},` +
		`{"type":"tool-write","state":"input-available","toolCallId":"tc3","input":{}}]},` +
		`{"id":"","role":"assistant","parts":[{"type":"text","state":"done","text":"Found it."}]}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for body, problem := range map[string]string{
		`{"message":"x","messages":[{"role":"tool","toolCallId":"tc1","content":"1"}]}`:                   "no message before it",
		`{"message":"x","messages":[{"role":"tool","content":"1"}]}`:                                      "needs a toolCallId",
		`{"message":"x","messages":[{"role":"assistant","content":"a","toolCalls":[{"name":"search"}]}]}`: "must have an id and a name",
		`{"message":"x","messages":[{"role":"assistant","toolCalls":{}}]}`:                                "toolCalls",
	} {
		if _, err := aisdk.ParseBody([]byte(body)); !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", body, err)
		}
	}
	many := `{"message":"x","messages":[{"role":"assistant","content":"","toolCalls":[` + strings.Repeat(`{},`, aisdk.MaxParts) + `{}]}]}`
	if _, err := aisdk.ParseBody([]byte(many)); !errors.Is(err, chunk.ErrTooLarge) {
		t.Errorf("too many calls: %v", err)
	}
}

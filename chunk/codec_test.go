package chunk

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// want is what encoding/json writes for a chunk.
func want(t testing.TB, c Chunk) []byte {
	t.Helper()
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatalf("json.Marshal(%T): %v", c, err)
	}
	return append([]byte(`{"type":"`+string(c.ChunkType())+`",`), body[1:]...)
}

var awkward = []string{
	"plain", "", "a<b>&c", "line\u2028sep\u2029", "\x00\x01\x1f\x7f", "\b\f\n\r\t", `"\/`, "日本語 🧵", "bad\xffutf\xc3", "\xe2\x80", "\ufffd",
}

var awkwardRaw = []string{
	`null`, ` { "a" : [ 1 , 2 ] } `, `"<\u2028& "`, "\"\u2028\u2029<>&\"", `{"q\"uo te":"\\"}`, "[\n1,\t\"\\\\\" ]", `-1.5e+30`, "\"bad\xff\"", `true`,
}

// fill sets every field of v to something that is not zero; salt varies it.
func fill(v reflect.Value, salt int) {
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes([]byte(awkwardRaw[salt%len(awkwardRaw)]))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(awkward[salt%len(awkward)])
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(salt*7919 - 3))
	case reflect.Uint64:
		v.SetUint(uint64(salt) + 1)
	case reflect.Float64:
		v.SetFloat([]float64{0, 0.5, 1e-7, 1e21, 100, -3.25e-9, 1e-100}[salt%7])
	case reflect.Bool:
		v.SetBool(salt%2 == 0)
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		fill(p.Elem(), salt)
		v.Set(p)
	case reflect.Slice:
		s := reflect.MakeSlice(v.Type(), salt%3, salt%3)
		for i := range s.Len() {
			fill(s.Index(i), salt+i)
		}
		v.Set(s)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(v.Field(i), salt+i)
			}
		}
	default:
		panic("fill: " + v.Type().String())
	}
}

func TestAppendChunkEqualsEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, typ := range Types() {
		c := kinds[typ].new()
		check := func(c Chunk) {
			t.Helper()
			got, err := Append([]byte("prefix"), c)
			if err != nil {
				t.Fatalf("AppendChunk(%s): %v", typ, err)
			}
			if w := "prefix" + string(want(t, c)); string(got) != w {
				t.Fatalf("AppendChunk(%s)\n got %s\nwant %s", typ, got, w)
			}
		}
		check(c)
		for salt := range 60 {
			fill(reflect.ValueOf(c).Elem(), salt)
			check(c)
		}
	}
}

func TestAppendChunkRefusesWhatEncodingJSONRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []Chunk{
		&ToolStart{Arguments: json.RawMessage(`{`)},
		&ToolStart{Arguments: json.RawMessage{}},
		&ToolEnd{Result: json.RawMessage(`1 2`)},
		&Custom{Data: json.RawMessage(`'x'`)},
		&Progress{Percent: new(math.NaN())},
		&Progress{Percent: new(math.Inf(1))},
		&StatePatch{Patches: []PatchOperation{{Value: json.RawMessage(`nul`)}}},
		&Output{Output: json.RawMessage(`]`)},
	} {
		if _, err := json.Marshal(c); err == nil {
			t.Errorf("encoding/json accepts %+v", c)
		}
		got, err := Append([]byte("kept"), c)
		if !errors.Is(err, ErrInvalidChunk) || string(got) != "kept" {
			t.Errorf("AppendChunk(%T) = %q, %v; want dst and ErrInvalidChunk", c, got, err)
		}
	}
	for _, c := range []Chunk{nil, (*TextDelta)(nil), (*Output)(nil), (*Unknown)(nil), &Unknown{Type: "x"}, &Unknown{Type: "x", Raw: json.RawMessage("{")}} {
		if _, err := Append(nil, c); !errors.Is(err, ErrInvalidChunk) {
			t.Errorf("AppendChunk(%#v) = %v, want ErrInvalidChunk", c, err)
		}
	}
}

func TestAppendChunkKeepsUnknownOnOneLine(t *testing.T) {
	t.Parallel()
	for in, out := range map[string]string{
		`{ "type" : "x", "a<": 1 }`:          `{ "type" : "x", "a<": 1 }`,
		"{\n \"type\": \"x\", \"s\": \" \"}": `{"type":"x","s":" "}`,
	} {
		got, err := Append(nil, &Unknown{Type: "x", Raw: json.RawMessage(in)})
		if err != nil || string(got) != out {
			t.Errorf("AppendChunk(%q) = %q, %v; want %q", in, got, err, out)
		}
	}
}

func TestAppendChunkRawProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := json.RawMessage(rapid.StringOf(rapid.SampledFrom([]rune(`{}[]:,"\ 0123eE+-.truefalsn<>&u`+"\u2028\n\t"))).Draw(t, "raw"))
		c := &ToolEnd{Result: raw}
		got, err := Append(nil, c)
		if _, jerr := json.Marshal(c); (jerr == nil) != (err == nil) {
			t.Fatalf("raw %q: encoding/json says %v, AppendChunk %v", raw, jerr, err)
		} else if err == nil {
			body, _ := json.Marshal(c)
			if !bytes.HasSuffix(got, body[1:]) {
				t.Fatalf("raw %q: got %s, want %s", raw, got, body)
			}
		}
	})
}

func TestAppendChunkFloatProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64().Draw(t, "f")
		w, err := json.Marshal(f)
		if err != nil {
			t.Skip("not a number")
		}
		e := encoder{}
		e.float("", f)
		if !bytes.Equal(e.b, w) {
			t.Fatalf("float(%v) = %s, want %s", f, e.b, w)
		}
	})
}

func hotChunks() []Chunk {
	base := Base{AgentID: "session-1", AgentType: "assistant", Timestamp: 1763730000000, Step: 2, RunID: "run-1"}
	return []Chunk{
		&TextDelta{Base: base, Delta: "Hello, <world>"},
		&Thinking{Base: base, Content: "let me think"},
		&ToolArgStreamStart{Base: base, ToolCallID: "call-1", ToolName: "search"},
		&ToolArgStreamDelta{Base: base, ToolCallID: "call-1", Delta: `{"q":`},
		&ToolArgStreamEnd{Base: base, ToolCallID: "call-1", Arguments: json.RawMessage(`{"q": "x"}`)},
		&ToolStart{Base: base, ToolCallID: "call-1", ToolName: "search", Arguments: json.RawMessage(`{"q": "x"}`)},
		&ToolEnd{Base: base, ToolCallID: "call-1", ToolName: "search", Result: json.RawMessage(`[{"title":"a & b"}]`), Success: true},
		&Custom{Base: base, EventName: "note", Data: json.RawMessage(`{"n":1}`)},
		&Progress{Base: base, ID: "p", Percent: new(12.5)},
		&StatePatch{Base: base, Patches: []PatchOperation{{Op: "add", Path: "/a/-", Value: json.RawMessage(`1`)}}},
	}
}

func TestAppendChunkAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 4096)
	for _, c := range hotChunks() {
		if n := testing.AllocsPerRun(200, func() { buf, _ = Append(buf[:0], c) }); n != 0 {
			t.Errorf("AppendChunk(%T) allocates %v times", c, n)
		}
	}
}

func TestDecodeChunkRoundTrip(t *testing.T) {
	t.Parallel()
	for _, typ := range Types() {
		for salt := range 30 {
			c := kinds[typ].new()
			fill(reflect.ValueOf(c).Elem(), salt)
			once, err := Append(nil, c)
			if err != nil {
				t.Fatal(err)
			}
			back, err := Decode(once)
			if err != nil || reflect.TypeOf(back) != reflect.TypeOf(c) {
				t.Fatalf("DecodeChunk(%s) = %T, %v", once, back, err)
			}
			// The first time, \ufffd takes the place of bytes that are no text.
			twice, err := Append(nil, back)
			if w := bytes.ReplaceAll(once, []byte(`\ufffd`), []byte("\ufffd")); err != nil || !bytes.Equal(w, twice) {
				t.Fatalf("round trip of %s\n got %s (%v)\nwant %s", typ, twice, err, w)
			}
		}
	}
}

func TestDecodeChunkTolerates(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     Chunk
	}{
		{"content for delta", `{"type":"text_delta","content":"hi"}`, &TextDelta{Delta: "hi"}},
		{"delta before content", `{"type":"text_delta","content":"no","delta":""}`, &TextDelta{}},
		{"no success, no error", `{"type":"tool_end","toolCallId":"c","result":1}`, &ToolEnd{ToolCallID: "c", Result: json.RawMessage(`1`), Success: true}},
		{"no success, an error", `{"type":"tool_end","toolCallId":"c","error":"e"}`, &ToolEnd{ToolCallID: "c", Error: "e"}},
		{"success said", `{"type":"tool_end","success":false}`, &ToolEnd{}},
		{"type last", `{"delta":"x","type":"text_delta","step":3}`, &TextDelta{Base: Base{Step: 3}, Delta: "x"}},
		{"space", "{ \"type\" : \"text_delta\" , \"delta\":\"x\" }", &TextDelta{Delta: "x"}},
		{"escaped type", `{"type":"text\u005fdelta","delta":"x"}`, &TextDelta{Delta: "x"}},
		{"new field", `{"type":"text_delta","delta":"x","later":1}`, &TextDelta{Delta: "x"}},
		{"unknown type", `{"type":"later","agentId":"s","x":1}`, &Unknown{Base: Base{AgentID: "s"}, Type: "later", Raw: json.RawMessage(`{"type":"later","agentId":"s","x":1}`)}},
		{"wrong shape", `{"type":"text_delta","delta":{"rich":1},"step":4}`, &Unknown{Base: Base{Step: 4}, Type: "text_delta", Raw: json.RawMessage(`{"type":"text_delta","delta":{"rich":1},"step":4}`)}},
		{"wrong base", `{"type":"text_delta","delta":"x","step":"4","agentId":"s"}`, &Unknown{Base: Base{AgentID: "s"}, Type: "text_delta", Raw: json.RawMessage(`{"type":"text_delta","delta":"x","step":"4","agentId":"s"}`)}},
	}
	for _, tt := range tests {
		got, err := Decode([]byte(tt.in))
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: DecodeChunk(%s) = %#v, %v; want %#v", tt.name, tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{``, `null`, `[]`, `{}`, `{"type":1}`, `{"type":""}`, `{"type":null}`, `{"type":"text_delta"`, `{"type":"later",]`, `"x"`, `{"type":"text_delta","delta":"x"} {}`} {
		if got, err := Decode([]byte(in)); !errors.Is(err, ErrInvalidChunk) {
			t.Errorf("DecodeChunk(%s) = %#v, %v; want ErrInvalidChunk", in, got, err)
		}
	}
}

func TestDecodeChunkKeepsNoReference(t *testing.T) {
	t.Parallel()
	for _, in := range []string{`{"type":"later","x":1}`, `{"type":"custom","eventName":"e","data":{"a":1}}`} {
		data := []byte(in)
		c, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := Append(nil, c)
		for i := range data {
			data[i] = '#'
		}
		if after, _ := Append(nil, c); !bytes.Equal(before, after) {
			t.Errorf("DecodeChunk(%s) keeps a reference", in)
		}
	}
}

func seedCorpus(f *testing.F) {
	for _, typ := range Types() {
		for salt := range 4 {
			c := kinds[typ].new()
			fill(reflect.ValueOf(c).Elem(), salt)
			f.Add(want(f, c))
		}
	}
	f.Add([]byte(`{"type":"text_delta","content":"x"}`))
	f.Add([]byte(`{"type":"later","x":{"y":[1,2,{}]}}`))
	f.Add([]byte("{\n\"type\":\"later\",\"s\":\"\\\"\"}"))
}

// FuzzDecodeChunk: whatever decodes encodes again, to what decodes the same.
func FuzzDecodeChunk(f *testing.F) {
	seedCorpus(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(data)
		agreesWithGeneral(t, data)
		if p, perr := Parse(data); perr == nil && (err != nil || !reflect.DeepEqual(p, c)) {
			t.Fatalf("ParseChunk accepts %q as %#v, DecodeChunk says %#v, %v", data, p, c, err)
		}
		if err != nil {
			return
		}
		once, err := Append(nil, c)
		if err != nil {
			t.Fatalf("%q decodes as %#v and does not encode: %v", data, c, err)
		}
		if bytes.ContainsAny(once, "\n\r") || !json.Valid(once) {
			t.Fatalf("%q becomes %q", data, once)
		}
		back, err := Decode(once)
		if err != nil || back.ChunkType() != c.ChunkType() {
			t.Fatalf("%q becomes %q, which decodes as %#v, %v", data, once, back, err)
		}
		if twice, err := Append(nil, back); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%q becomes %q, then %q, %v", data, once, twice, err)
		}
	})
}

// agreesWithGeneral: what the quick decoder takes, the general one takes too, and
// as the same.
func agreesWithGeneral(t *testing.T, data []byte) (taken bool) {
	t.Helper()
	_, k, plain, err := typeOf(data)
	if err != nil || !plain || k == nil {
		return false
	}
	c := decodeQuick(k, data)
	if c == nil {
		return false
	}
	general, err := decodeKnown(k, data)
	if err != nil || !reflect.DeepEqual(c, general) {
		t.Fatalf("%q is %#v to the quick decoder and %#v, %v to the general one", data, c, general, err)
	}
	return true
}

func TestDecodeQuickly(t *testing.T) {
	t.Parallel()
	for _, typ := range []Type{TypeTextDelta, TypeThinking, TypeToolArgStreamDelta} {
		for salt := range 60 {
			c := kinds[typ].new()
			fill(reflect.ValueOf(c).Elem(), salt)
			b := c.ChunkBase()
			b.Timestamp, b.Step = max(b.Timestamp, 0), max(b.Step, 0)
			if thinking, ok := c.(*Thinking); ok {
				thinking.ProviderMetadata = nil // it may be anything
			}
			data := want(t, c)
			if !agreesWithGeneral(t, data) {
				t.Errorf("%s is not decoded quickly", data)
			}
			for i := range data { // nor is what is nearly one taken for one
				agreesWithGeneral(t, data[:i])
				broken := slices.Clone(data)
				broken[i] ^= 0x11
				agreesWithGeneral(t, broken)
			}
		}
	}
	for _, s := range []string{`\u00e9`, `\ud83e\uddf5`, `\ud83e`, `\u00E9`, `\/`, `\x`, `\u12`, `\`, "\x01", "\xff", `a\"b`} {
		agreesWithGeneral(t, []byte(`{"type":"text_delta","agentId":"","agentType":"","timestamp":0,"step":0,"delta":"`+s+`"}`))
	}
	for _, s := range []string{"01", "-1", "1.0", "1e3", "999999999999999999", "9999999999999999999999", "", "null"} {
		agreesWithGeneral(t, []byte(`{"type":"text_delta","agentId":"","agentType":"","timestamp":`+s+`,"step":0,"delta":""}`))
	}
}

// FuzzAppendChunk: the quick encoder agrees with encoding/json.
func FuzzAppendChunk(f *testing.F) {
	f.Add(uint(0), "agent", "text", []byte(`{"a": 1}`), int64(1), 0.5)
	f.Add(uint(6), "\xff", "<&>", []byte(`"`+"\u2028"+`"`), int64(-1), 1e-9)
	f.Fuzz(func(t *testing.T, kind uint, agent, text string, raw []byte, n int64, percent float64) {
		b := Base{AgentID: agent, AgentType: text, Timestamp: n, Step: int(n), RunID: agent}
		chunks := []Chunk{
			&TextDelta{b, text, agent}, &Thinking{b, text, n > 0, agent, raw},
			&ToolArgStreamStart{b, agent, text, n > 0}, &ToolArgStreamDelta{b, agent, text}, &ToolArgStreamEnd{b, agent, text, raw, raw},
			&ToolStart{b, agent, text, raw, agent, n > 0}, &ToolEnd{b, agent, text, raw, n > 0, agent, n < 0, n > 0},
			&Custom{b, agent, raw, text, n > 0, text}, &Progress{b, agent, text, agent, text, &percent, raw},
			&StatePatch{b, []PatchOperation{{agent, text, agent, raw}}, agent},
		}
		c := chunks[kind%uint(len(chunks))]
		got, err := Append(nil, c)
		body, jerr := json.Marshal(c)
		if (err == nil) != (jerr == nil) {
			t.Fatalf("%#v: AppendChunk %v, encoding/json %v", c, err, jerr)
		}
		if err != nil {
			return
		}
		if w := append([]byte(`{"type":"`+string(c.ChunkType())+`",`), body[1:]...); !bytes.Equal(got, w) {
			t.Fatalf("%#v\n got %s\nwant %s", c, got, w)
		}
	})
}

func BenchmarkAppendChunk(b *testing.B) {
	buf := make([]byte, 0, 4096)
	for _, c := range hotChunks() {
		b.Run(string(c.ChunkType()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf, _ = Append(buf[:0], c)
			}
		})
	}
}

func BenchmarkEncodingJSON(b *testing.B) {
	for _, c := range hotChunks() {
		b.Run(string(c.ChunkType()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = json.Marshal(c)
			}
		})
	}
}

func BenchmarkDecodeChunk(b *testing.B) {
	for _, c := range hotChunks() {
		data, _ := Append(nil, c)
		b.Run(string(c.ChunkType()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Decode(data)
			}
		})
	}
}

func TestTypesAreSortedAndComplete(t *testing.T) {
	t.Parallel()
	types := Types()
	if !slices.IsSorted(types) {
		t.Error("Types() is not sorted")
	}
	for _, typ := range types {
		if got := kinds[typ].new().ChunkType(); got != typ {
			t.Errorf("the table makes of %s a %s", typ, got)
		}
		if strings.ToLower(string(typ)) != string(typ) {
			t.Errorf("%s is not lower case", typ)
		}
	}
}

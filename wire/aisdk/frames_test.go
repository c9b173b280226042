package aisdk

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\n\r\t\x00\x1f\x7f", "é🧵\u2028\u2029", "\xff\xfe half \xe2\x80", strings.Repeat("a", 300), strings.Repeat("\x01é", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := appendString(nil, s)
		var back string
		if err := json.Unmarshal(quoted, &back); err != nil || back != s && utf8.ValidString(s) {
			t.Fatalf("%q became %s (%v)", s, quoted, err)
		}
		want, _ := json.Marshal(s)
		var standard string
		if json.Unmarshal(want, &standard); back != standard {
			t.Fatalf("%q reads as %q, want %q", s, back, standard)
		}
		if strings.ContainsAny(string(quoted), "\n\r\u2028\u2029") {
			t.Fatalf("%q holds a line break", quoted)
		}
		for rest, pieces := s, 0; rest != ""; pieces++ {
			n := fit(rest, 60)
			if n == 0 || n < len(rest) && !utf8.RuneStart(rest[n]) && utf8.ValidString(s) {
				t.Fatalf("%q is cut at %d", rest, n)
			}
			if encoded := len(appendString(nil, rest[:n])) - 2; encoded > 60 {
				t.Fatalf("%q takes %d bytes", rest[:n], encoded)
			}
			rest = rest[n:]
		}
	})
}

func TestRawValuesAreOneLine(t *testing.T) {
	for in, want := range map[string]string{"": "null", "{\n \"a\": [1,\r\n2]}": `{"a":[1,2]}`, `{"a": 1}`: `{"a": 1}`, "{\n": "null"} {
		if got := string(appendRaw(nil, json.RawMessage(in))); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestProviderMetadata(t *testing.T) {
	for in, ok := range map[string]bool{"": false, "null": false, `{}`: true, `{"p":{"k":1}}`: true, `{"p":1}`: false, `{"p":null}`: false, `[]`: false} {
		if got := providerMetadata(json.RawMessage(in)); (got != nil) != ok {
			t.Errorf("%s: %s", in, got)
		}
	}
}

package jsonenc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestStringsEqualEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("\xe2\x80\xa8\xa9<>&\\\"\n")))).Draw(t, "s"))
		w, _ := json.Marshal(s)
		if got := AppendString(nil, s); !bytes.Equal(got, w) {
			t.Fatalf("AppendString(%q) = %s, want %s", s, got, w)
		}
		if n := Size(s); n != len(w) {
			t.Fatalf("Size(%q) = %d, want %d", s, n, len(w))
		}
	})
}

func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.SampledFrom([]rune("ab\"\\<>&\n\u2028é\U0001F600\ufffd"))).Draw(t, "s")
		limit := rapid.IntRange(0, 40).Draw(t, "limit")
		n := Fit(s, limit)
		if got := len(AppendString(nil, s[:n])) - 2; got > limit {
			t.Fatalf("%q takes %d bytes, more than %d", s[:n], got, limit)
		}
		if !utf8.ValidString(s[:n]) {
			t.Fatalf("%q is cut inside a rune", s[:n])
		}
		if n == 0 && limit >= 6 && s != "" {
			t.Fatalf("nothing of %q fits into %d", s, limit)
		}
	})
}

func FuzzString(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\n\r\t\x00\x1f\x7f", "é🧵\u2028\u2029", "\xff\xfe half \xe2\x80", strings.Repeat("a", 300), strings.Repeat("\x01é", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := AppendString(nil, s)
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
			n := Fit(rest, 60)
			if n == 0 || n < len(rest) && !utf8.RuneStart(rest[n]) && utf8.ValidString(s) {
				t.Fatalf("%q is cut at %d", rest, n)
			}
			if encoded := len(AppendString(nil, rest[:n])) - 2; encoded > 60 {
				t.Fatalf("%q takes %d bytes", rest[:n], encoded)
			}
			rest = rest[n:]
		}
	})
}

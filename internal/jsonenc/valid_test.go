package jsonenc

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestValid(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat(`[{"a":`, n) + "1" + strings.Repeat("}]", n) }
	for text, want := range map[string]bool{
		"":                      false,
		"1":                     true,
		"[":                     false,
		nested(MaxDepth / 2):    true,
		nested(MaxDepth/2 + 1):  false,
		nested(20_000):          false,
		`"` + nested(300) + `"`: false, // the quotes end the string
		`["` + strings.Repeat(`\"[`, 400) + `", 1]`:                                  true,
		`[` + strings.Repeat(`{},[],`, 400) + `1]`:                                   true,
		`{"` + strings.Repeat("{", 400) + `": "` + strings.Repeat("[", 400) + `\\"}`: true,
	} {
		if Valid([]byte(text)) != want {
			t.Errorf("Valid(%.40s…) = %v", text, !want)
		}
	}
}

// FuzzValid: what is valid is valid to encoding/json, too, and the other way round if it
// is not nested too deep. A value is found with and without others after it.
func FuzzValid(f *testing.F) {
	for _, s := range []string{
		``, ` `, `1`, ` {"a" : [1 , -2.5e+10, true,false , null, "\u00e9\n\"x"], "b":{}, "":[[],{}]} `, `{"a":1,}`, `[1,]`, `[,1]`, `{,}`, `{"a"}`, `{"a":}`, `{1:2}`, `[1 2]`, `[}`, `{]`,
		`01`, `-`, `-0`, `00`, `1.`, `.5`, `1e`, `1E-2`, `1e+`, `+1`, `tru`, `nulls`, `"\x"`, `"\u12g4"`, `"\u12"`, `"`, `"\`, "\"\x01\"", "\"\xff\"", `1 2`, `{}{}`, `]`, `}`, `[`, `{`, `{"a":[}`, `[{]}`,
		strings.Repeat("[", 256) + strings.Repeat("]", 256), strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), strings.Repeat(`[{"a":`, 70) + "1" + strings.Repeat("]}", 70),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if want := json.Valid(data) && Shallow(data); Valid(data) != want {
			t.Fatalf("%q: Valid is %v", data, !want)
		}
		n := Value(data)
		if n >= 0 && !json.Valid(data[:n]) {
			t.Fatalf("%q: the value is %q", data, data[:n])
		}
		if n < 0 {
			return
		}
		if more := Value(append(append([]byte(nil), data[:n]...), ` , {"b":1}`...)); more != n {
			t.Fatalf("%q: with others after it it ends at %d, not %d", data[:n], more, n)
		}
	})
}

func BenchmarkValid(b *testing.B) {
	data := []byte(`{"seq":12,"t":1763835000000000000,"type":"text-delta","id":"0","delta":"lorem ipsum dolor sit amet lorem ipsum dolor sit amet"}`)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if !Valid(data) {
			b.Fatal("invalid")
		}
	}
}

// However a text is cut into pieces, Nesting finds the same place in it, and none in a
// text that is shallow.
func TestNesting(t *testing.T) {
	deep := func(s string) string { return strings.Repeat(s, MaxDepth+1) }
	for _, text := range []string{
		"", `{"a":[1,{"b":"]}"}]}`, deep("[]"), deep(`{"\\\"[":`), deep("["), deep(`[{"é]":`), `"` + deep("[") + `"`, `"\\"` + deep("["), `"\""` + deep("{"),
	} {
		var whole Nesting
		want := whole.Fit(text)
		if got := Shallow([]byte(text)); got != (want == len(text)) {
			t.Fatalf("%.40q: %d of %d fit, Shallow says %v", text, want, len(text), got)
		}
		for size := 1; size < 9; size++ {
			var n Nesting
			fits := 0
			for rest := text; rest != ""; {
				piece := rest[:min(size, len(rest))]
				rest = rest[len(piece):]
				k := n.Fit(piece)
				if fits += k; k < len(piece) {
					break
				}
			}
			if fits != want {
				t.Errorf("%.40q in pieces of %d: %d fit, want %d", text, size, fits, want)
			}
		}
	}
}

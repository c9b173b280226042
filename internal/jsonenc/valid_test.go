package jsonenc

import (
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

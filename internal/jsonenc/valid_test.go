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

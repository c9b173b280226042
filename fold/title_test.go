package fold

import (
	"testing"

	"github.com/spool-run/spool/chunk"
)

// A title is text that every store takes: one line without control characters.
func TestTitleIsPlainText(t *testing.T) {
	for text, want := range map[string]string{
		"  a \t b\nc":     "a b",
		"a\x00b\x1b[1mc":  "ab[1mc",
		"a\xffb":          "a\uFFFDb",
		"\x00\nsomething": "",
	} {
		m := &chunk.Message{Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}
		if got := Title(m); got != want {
			t.Errorf("%q makes the title %q, want %q", text, got, want)
		}
	}
}

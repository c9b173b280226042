package fold

import (
	"strings"
	"unicode"

	"github.com/spool-run/spool/chunk"
)

const titleRunes = 80

// Title makes a session's title of the first thing that its user said: its first
// line, on one line, without control characters, and cut to 80 characters.
func Title(m *chunk.Message) string {
	if m == nil {
		return ""
	}
	title, _, _ := strings.Cut(strings.TrimSpace(m.Text()), "\n")
	title = strings.Join(strings.Fields(title), " ")
	title = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, title) // it also makes the text valid UTF-8
	if runes := []rune(title); len(runes) > titleRunes {
		title = strings.TrimSpace(string(runes[:titleRunes-1])) + "…"
	}
	return title
}

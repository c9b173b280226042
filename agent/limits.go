package agent

import (
	"unicode/utf8"

	"github.com/spool-run/spool"
)

// What others say must fit into a record, or a run could not be ended.
const (
	maxErrorBytes    = spool.MaxResultErrorBytes
	maxMetadataBytes = spool.MaxInlineBytes
)

// clip shortens an error text that is too long, at a rune's border.
func clip(text string) string {
	if len(text) <= maxErrorBytes {
		return text
	}
	n := maxErrorBytes
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// Package jsonenc appends JSON to byte slices, with the bytes that encoding/json
// would write and without its allocations.
package jsonenc

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// plain holds the ASCII characters that stand for themselves in a JSON string
// that may also be pasted into HTML.
var plain = func() (table [utf8.RuneSelf]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		table[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return table
}()

// AppendString appends s as a JSON string, with the escapes of encoding/json.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if plain[c] {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\b':
				dst = append(dst, `\b`...)
			case '\f':
				dst = append(dst, `\f`...)
			case '\n':
				dst = append(dst, `\n`...)
			case '\r':
				dst = append(dst, `\r`...)
			case '\t':
				dst = append(dst, `\t`...)
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\ufffd`...)
			start = i + size
		case r == '\u2028' || r == '\u2029': // line ends to JavaScript
			dst = append(dst, s[start:i]...)
			dst = append(dst, `\u202`...)
			dst = append(dst, hexDigits[r&0xf])
			start = i + size
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// AppendCompact appends valid JSON without the space between its tokens; with
// escape set, it also escapes what encoding/json escapes in raw messages.
func AppendCompact(dst, src []byte, escape bool) []byte {
	start, inString := 0, false
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case c == '"':
			inString = !inString
		case c == '\\':
			i++ // an escape, of which the first character is what matters
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if !inString {
				dst = append(dst, src[start:i]...)
				start = i + 1
			}
		case !escape:
		case c == '<' || c == '>' || c == '&':
			dst = append(dst, src[start:i]...)
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
			start = i + 1
		case c == 0xe2 && i+2 < len(src) && src[i+1] == 0x80 && src[i+2]&^1 == 0xa8:
			dst = append(dst, src[start:i]...)
			dst = append(dst, `\u202`...)
			dst = append(dst, hexDigits[src[i+2]&0xf])
			start = i + 3
			i += 2
		}
	}
	return append(dst, src[start:]...)
}

// Fit returns how many bytes of s, cut at a rune border, take at most limit
// bytes between the quotes of a JSON string.
func Fit(s string, limit int) int {
	if len(s) <= limit/6 {
		return len(s)
	}
	encoded := 0
	for i, r := range s {
		switch {
		case r < utf8.RuneSelf && plain[r]:
			encoded++
		case r == '"' || r == '\\':
			encoded += 2
		case r < utf8.RuneSelf || r == utf8.RuneError || r == '\u2028' || r == '\u2029':
			encoded += 6
		default:
			encoded += utf8.RuneLen(r)
		}
		if encoded > limit {
			return i
		}
	}
	return len(s)
}

// Size returns how many bytes s takes as a JSON string, with its quotes.
func Size(s string) int {
	n := len(s) + 2
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case plain[c]:
			case c == '"', c == '\\', c == '\b', c == '\f', c == '\n', c == '\r', c == '\t':
				n++
			default:
				n += 5
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
			n += 6 - size
		}
		i += size
	}
	return n
}

// Must encodes values that cannot fail: our own structs of strings, numbers
// and JSON that was decoded before.
func Must(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	if err := enc.Encode(v); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

package aisdk

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/spool-run/spool"
)

// maxText is how much encoded text one frame carries.
const maxText = 255 << 10

// frameWriter collects the frames of one record or one plan.
type frameWriter struct {
	frames []spool.Frame
	buf    []byte
}

// open begins an event; close ends it. Between them str, raw and flag add its
// fields, in the order of the calls.
func (w *frameWriter) open(kind string) *frameWriter {
	w.buf = append(w.buf[:0], `data: {"type":`...)
	w.buf = appendString(w.buf, kind)
	return w
}

func (w *frameWriter) key(key string) {
	w.buf = append(w.buf, `,"`...)
	w.buf = append(w.buf, key...)
	w.buf = append(w.buf, `":`...)
}

func (w *frameWriter) str(key, value string) *frameWriter {
	w.key(key)
	w.buf = appendString(w.buf, value)
	return w
}

// opt adds a string unless it is empty.
func (w *frameWriter) opt(key, value string) *frameWriter {
	if value != "" {
		w.str(key, value)
	}
	return w
}

func (w *frameWriter) raw(key string, value json.RawMessage) *frameWriter {
	w.key(key)
	w.buf = appendRaw(w.buf, value)
	return w
}

// rawOpt adds a value unless it is absent or null.
func (w *frameWriter) rawOpt(key string, value json.RawMessage) *frameWriter {
	if !isNull(value) {
		w.raw(key, value)
	}
	return w
}

// flag adds "key":true, or nothing.
func (w *frameWriter) flag(key string, set bool) *frameWriter {
	if set {
		w.key(key)
		w.buf = append(w.buf, "true"...)
	}
	return w
}

func (w *frameWriter) close() {
	w.buf = append(w.buf, "}\n\n"...)
	w.frames = append(w.frames, spool.Frame{Data: bytes.Clone(w.buf)})
}

// text writes s as one event, or as several if it is too long for one frame.
func (w *frameWriter) text(kind, idKey, id, textKey, s string) {
	for s != "" {
		n := fit(s, maxText)
		w.open(kind).str(idKey, id).str(textKey, s[:n]).close()
		s = s[n:]
	}
}

// fit returns how many bytes of s, cut at a rune border, take at most limit
// bytes once encoded.
func fit(s string, limit int) int {
	if len(s) <= limit/6 {
		return len(s)
	}
	encoded := 0
	for i, r := range s {
		switch {
		case r < 0x20 || r == utf8.RuneError || r == '\u2028' || r == '\u2029':
			encoded += 6
		case r == '"' || r == '\\':
			encoded += 2
		default:
			encoded += utf8.RuneLen(r)
		}
		if encoded > limit {
			return i
		}
	}
	return len(s)
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD; the
// line separators that some line readers split at are escaped.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				dst = append(append(dst, s[start:i]...), `\ufffd`...)
				start = i + size
			case r == '\u2028' || r == '\u2029':
				dst = append(append(dst, s[start:i]...), `\u202`...)
				dst = append(dst, hexDigits[r&0xf])
				start = i + size
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
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
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// appendRaw appends a JSON value, null if it is absent, without line breaks.
func appendRaw(dst []byte, v json.RawMessage) []byte {
	if len(v) == 0 {
		return append(dst, "null"...)
	}
	if bytes.IndexByte(v, '\n') < 0 && bytes.IndexByte(v, '\r') < 0 {
		return append(dst, v...)
	}
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return append(dst, "null"...)
	}
	return append(dst, b.Bytes()...)
}

func isNull(v json.RawMessage) bool {
	return len(v) == 0 || string(v) == "null"
}

// sameJSON reports whether two values are the same to a client that parses
// them.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if isNull(a) || isNull(b) {
		return isNull(a) && isNull(b)
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return equalValues(x, y)
}

// equalValues compares decoded JSON.
func equalValues(x, y any) bool {
	switch x := x.(type) {
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, ok := y[k]
			if !ok || !equalValues(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalValues(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return x == y
}

// providerMetadata returns metadata that clients accept: an object of objects.
func providerMetadata(v json.RawMessage) json.RawMessage {
	var m map[string]map[string]json.RawMessage
	if isNull(v) || json.Unmarshal(v, &m) != nil || m == nil {
		return nil
	}
	for _, inner := range m {
		if inner == nil {
			return nil
		}
	}
	return v
}

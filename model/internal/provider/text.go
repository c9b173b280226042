package provider

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Raw returns the string that raw, a JSON string, stands for, with the pieces of
// characters that a provider has cut: half of a surrogate pair as three bytes of
// its own, and other bytes as they are. A [Joiner] makes text of them.
func Raw(raw []byte) (s string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	body := raw[1 : len(raw)-1]
	if bytes.IndexByte(body, '\\') < 0 {
		return string(body), true
	}
	return string(AppendRaw(make([]byte, 0, len(body)), body)), true
}

// AppendRaw appends what the inside of a valid JSON string stands for, as [Raw]
// has it.
func AppendRaw(dst, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 || i+1 >= len(s) {
			return append(dst, s...)
		}
		dst = append(dst, s[:i]...)
		c := s[i+1]
		s = s[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(s)
			s = s[min(4, len(s)):]
			if utf16.IsSurrogate(r) && len(s) >= 6 && s[0] == '\\' && s[1] == 'u' {
				if both := utf16.DecodeRune(r, hex4(s[2:])); both != utf8.RuneError {
					r, s = both, s[6:]
				}
			}
			if utf16.IsSurrogate(r) {
				dst = append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
			} else {
				dst = utf8.AppendRune(dst, r)
			}
			continue
		}
		dst = append(dst, c)
	}
}

func hex4(s []byte) (r rune) {
	for i := range min(4, len(s)) {
		c := s[i]
		switch {
		case c >= 'a':
			c -= 'a' - 10
		case c >= 'A':
			c -= 'A' - 10
		default:
			c -= '0'
		}
		r = r<<4 | rune(c&0xF)
	}
	return r
}

// Joiner joins the characters that a provider has cut in two: JavaScript cuts
// surrogate pairs, and some servers cut the bytes of a character. Its zero value
// holds nothing.
type Joiner struct{ held string }

// Add returns the text so far; the beginning of a character at its end waits for
// the rest of it.
func (j *Joiner) Add(s string) string {
	if j.held == "" && utf8.ValidString(s) {
		return s
	}
	s = j.held + s
	end := len(s) - begun(s)
	j.held = strings.Clone(s[end:])
	return mend(s[:end])
}

// End returns what still waits, as no more comes.
func (j *Joiner) End() string {
	s := j.held
	j.held = ""
	return mend(s)
}

// Drop forgets what waits. It is for a caller that gets the whole text in another way.
func (j *Joiner) Drop() { j.held = "" }

// begun is how many bytes at the end of s may be the beginning of a character.
func begun(s string) int {
	if n := len(s) - 3; n >= 0 {
		if r, ok := half(s[n:]); ok && r < 0xDC00 {
			return 3
		}
	}
	for n := 1; n <= min(3, len(s)); n++ {
		if c := s[len(s)-n]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(s[len(s)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// half decodes half of a surrogate pair at the beginning of s.
func half(s string) (rune, bool) {
	if len(s) < 3 || s[0] != 0xED || s[1] < 0xA0 || s[1] > 0xBF || s[2]&0xC0 != 0x80 {
		return 0, false
	}
	return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), true
}

// mend joins halves, and replaces what is not a character, as encoding/json does.
func mend(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			if first, ok := half(s[i:]); ok {
				size = 3
				if second, ok := half(s[i+3:]); ok {
					if r = utf16.DecodeRune(first, second); r != utf8.RuneError {
						size = 6
					}
				}
			}
		}
		b.WriteRune(r)
		i += size
	}
	return b.String()
}

// Strings makes strings of bytes that will be overwritten, many short ones in one
// allocation.
type Strings struct{ b strings.Builder }

// Of returns p as a string.
func (s *Strings) Of(p []byte) string {
	const slab, most = 2 << 10, 256
	if len(p) > most {
		return string(p)
	}
	if s.b.Cap()-s.b.Len() < len(p) {
		s.b.Reset()
		s.b.Grow(slab)
	}
	n := s.b.Len()
	s.b.Write(p)
	return s.b.String()[n:]
}

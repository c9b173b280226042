package chunk

import (
	"bytes"
	"unicode/utf8"
)

// decodeQuick reads a chunk of a kind that makes up much of a log, if it looks
// exactly as [Append] writes it. For anything else, valid or not, it returns nil,
// and the general decoder decides.
func decodeQuick(k *kind, data []byte) Chunk {
	if k.quick == nil {
		return nil
	}
	return k.quick(quick{left: data[len(`{"type":""`)+len(k.typ):], ok: true})
}

// quick reads the members of an object in the order in which [Append] writes them. ok
// becomes false at the first one that is not as expected.
type quick struct {
	left []byte
	ok   bool
}

func (d *quick) base(b *Base) {
	b.AgentID = d.str(`,"agentId":`)
	b.AgentType = d.str(`,"agentType":`)
	b.Timestamp = d.int(`,"timestamp":`)
	b.Step = int(d.int(`,"step":`))
	b.RunID = d.optStr(`,"runId":`)
}

func (d *quick) end() bool { return d.ok && len(d.left) == 1 && d.left[0] == '}' }

func (d *quick) has(key string) bool {
	return d.ok && len(d.left) >= len(key) && string(d.left[:len(key)]) == key
}

func (d *quick) key(key string) {
	if d.ok = d.has(key); d.ok {
		d.left = d.left[len(key):]
	}
}

func (d *quick) optStr(key string) string {
	if !d.has(key) {
		return ""
	}
	return d.str(key)
}

func (d *quick) bool(key string) bool {
	d.key(key)
	if d.has("true") {
		d.key("true")
		return true
	}
	d.key("false")
	return false
}

func (d *quick) int(key string) int64 {
	d.key(key)
	if !d.ok {
		return 0
	}
	n, i := int64(0), 0
	for i < len(d.left) && i < 18 && d.left[i] >= '0' && d.left[i] <= '9' {
		n = n*10 + int64(d.left[i]-'0')
		i++
	}
	d.ok = i > 0 && i < 18 && (i == 1 || d.left[0] != '0')
	d.left = d.left[i:]
	return n
}

func (d *quick) str(key string) string {
	d.key(key)
	if !d.ok || len(d.left) == 0 || d.left[0] != '"' {
		d.ok = false
		return ""
	}
	s := d.left[1:]
	n := bytes.IndexByte(s, '"')
	if n < 0 {
		d.ok = false
		return ""
	}
	if bytes.IndexByte(s[:n], '\\') >= 0 {
		return d.escaped(s)
	}
	d.left = s[n+1:]
	return d.text(s[:n])
}

// text returns a string without escapes. Control characters are not allowed in it, and
// text that is not UTF-8 is left to the general decoder, which mends it.
func (d *quick) text(s []byte) string {
	for _, c := range s {
		if c < ' ' {
			d.ok = false
			return ""
		}
	}
	d.ok = utf8.Valid(s)
	return string(s)
}

// escaped reads a string with the escapes that [Append] writes.
func (d *quick) escaped(s []byte) string {
	text := make([]byte, 0, min(len(s), 256))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			d.left = s[i+1:]
			d.ok = utf8.Valid(text)
			return string(text)
		case c < ' ':
			d.ok = false
			return ""
		case c != '\\':
			text = append(text, c)
			continue
		}
		if i++; i == len(s) {
			break
		}
		switch s[i] {
		case '"', '\\':
			text = append(text, s[i])
		case 'b':
			text = append(text, '\b')
		case 'f':
			text = append(text, '\f')
		case 'n':
			text = append(text, '\n')
		case 'r':
			text = append(text, '\r')
		case 't':
			text = append(text, '\t')
		case 'u':
			r := rune(0)
			if i+4 >= len(s) {
				d.ok = false
				return ""
			}
			for _, h := range s[i+1 : i+5] {
				v := bytes.IndexByte([]byte("0123456789abcdef"), h)
				if v < 0 {
					d.ok = false
					return ""
				}
				r = r<<4 | rune(v)
			}
			if !utf8.ValidRune(r) { // half of a surrogate pair
				d.ok = false
				return ""
			}
			text = utf8.AppendRune(text, r)
			i += 4
		default:
			d.ok = false
			return ""
		}
	}
	d.ok = false
	return ""
}

package chunk

import (
	"bytes"
	"unicode/utf8"
)

// decodeQuick reads the deltas that make up nearly all of a log, if they look
// exactly as [Append] writes them. For anything else, valid or not, it
// returns nil, and the general decoder has its say.
func decodeQuick(t Type, data []byte) Chunk {
	d := quick{rest: data[len(`{"type":""`)+len(t):], ok: true}
	switch t {
	case TypeTextDelta:
		c := new(TextDelta)
		d.base(&c.Base)
		c.Delta = d.str(`,"delta":`)
		c.PartID = d.optStr(`,"partId":`)
		if d.end() {
			return c
		}
	case TypeThinking:
		c := new(Thinking)
		d.base(&c.Base)
		c.Content = d.str(`,"content":`)
		c.IsComplete = d.bool(`,"isComplete":`)
		c.PartID = d.optStr(`,"partId":`)
		if d.end() {
			return c
		}
	case TypeToolArgStreamDelta:
		c := new(ToolArgStreamDelta)
		d.base(&c.Base)
		c.ToolCallID = d.str(`,"toolCallId":`)
		c.Delta = d.str(`,"delta":`)
		if d.end() {
			return c
		}
	}
	return nil
}

// quick takes members off the front of an object until one is not as expected.
type quick struct {
	rest []byte
	ok   bool
}

func (d *quick) base(b *Base) {
	b.AgentID = d.str(`,"agentId":`)
	b.AgentType = d.str(`,"agentType":`)
	b.Timestamp = d.int(`,"timestamp":`)
	b.Step = int(d.int(`,"step":`))
	b.RunID = d.optStr(`,"runId":`)
}

func (d *quick) end() bool { return d.ok && len(d.rest) == 1 && d.rest[0] == '}' }

func (d *quick) has(key string) bool {
	return d.ok && len(d.rest) >= len(key) && string(d.rest[:len(key)]) == key
}

func (d *quick) key(key string) {
	if d.ok = d.has(key); d.ok {
		d.rest = d.rest[len(key):]
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
	for i < len(d.rest) && i < 18 && d.rest[i] >= '0' && d.rest[i] <= '9' {
		n = n*10 + int64(d.rest[i]-'0')
		i++
	}
	d.ok = i > 0 && i < 18 && (i == 1 || d.rest[0] != '0')
	d.rest = d.rest[i:]
	return n
}

func (d *quick) str(key string) string {
	d.key(key)
	if !d.ok || len(d.rest) == 0 || d.rest[0] != '"' {
		d.ok = false
		return ""
	}
	s := d.rest[1:]
	n := bytes.IndexByte(s, '"')
	if n < 0 {
		d.ok = false
		return ""
	}
	if bytes.IndexByte(s[:n], '\\') >= 0 {
		return d.escaped(s)
	}
	d.rest = s[n+1:]
	return d.text(s[:n])
}

// text checks what a JSON string may not hold. Text that is no UTF-8 is the
// general decoder's to mend.
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

// escaped reads a string with the escapes that AppendChunk writes.
func (d *quick) escaped(s []byte) string {
	text := make([]byte, 0, min(len(s), 256))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			d.rest = s[i+1:]
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
			if !utf8.ValidRune(r) { // half of a pair
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

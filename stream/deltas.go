package stream

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// ParseDeltas reads the body of an append that contains only deltas and custom events in
// plain JSON, as lines or as an array. Nearly all appends of producers are such bodies,
// and it reads them in one pass. For any other body, valid or not, it returns false;
// [ParseProducerChunk] reads those.
func ParseDeltas(body []byte) ([]chunk.Chunk, bool) {
	p := plain{rest: body}
	array := p.token('[')
	chunks := make([]chunk.Chunk, 0, 1+len(body)/128)
	for array || !p.done() {
		c := p.delta()
		if c == nil || len(chunks) == spool.MaxAppendRecords {
			return nil, false
		}
		chunks = append(chunks, c)
		if array && !p.token(',') {
			if !p.token(']') {
				return nil, false
			}
			array = false
			if !p.done() {
				return nil, false
			}
		}
	}
	return chunks, true
}

// plain parses JSON from the front of a text.
type plain struct{ rest []byte }

func (p *plain) space() {
	for len(p.rest) > 0 && (p.rest[0] == ' ' || p.rest[0] == '\n' || p.rest[0] == '\r' || p.rest[0] == '\t') {
		p.rest = p.rest[1:]
	}
}

func (p *plain) done() bool {
	p.space()
	return len(p.rest) == 0
}

func (p *plain) token(c byte) bool {
	p.space()
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// text reads a string. It refuses strings that encoding/json would have to repair.
func (p *plain) text() (text []byte, ok bool) {
	if !p.token('"') {
		return nil, false
	}
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			text, p.rest = p.rest[:i], p.rest[i+1:]
			return text, utf8.Valid(text)
		case c == '\\':
			return p.escaped(i)
		case c < ' ':
			return nil, false
		}
	}
	return nil, false
}

// escaped reads a string of which the first escape stands at i.
func (p *plain) escaped(i int) ([]byte, bool) {
	for ; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			i++
		case '"':
			quoted := append(append([]byte{'"'}, p.rest[:i]...), '"')
			var text string
			if !utf8.Valid(quoted) || json.Unmarshal(quoted, &text) != nil {
				return nil, false
			}
			p.rest = p.rest[i+1:]
			return []byte(text), true
		}
	}
	return nil, false
}

// members are what a plain delta says.
type members struct {
	typ, text, part, call []byte
	name, data, id        []byte
	whole, transient      bool
	seen                  int // bits of the members that were read
}

const (
	hasType = 1 << iota
	hasDelta
	hasContent
	hasPart
	hasCall
	hasWhole
	hasName
	hasData
	hasID
	hasTransient
)

// delta reads one object, or returns nil.
func (p *plain) delta() chunk.Chunk {
	if !p.token('{') {
		return nil
	}
	var m members
	for !p.token('}') {
		if m.seen != 0 && !p.token(',') || !p.member(&m) {
			return nil
		}
	}
	c := m.chunk()
	if c == nil || chunk.Validate(c) != nil {
		return nil
	}
	return c
}

// member reads one member. It refuses one that was read before.
func (p *plain) member(m *members) (ok bool) {
	name, ok := p.text()
	if !ok || !p.token(':') {
		return false
	}
	has := 0
	switch string(name) {
	case "type":
		has = hasType
		m.typ, ok = p.text()
	case "delta":
		has = hasDelta
		m.text, ok = p.text()
	case "content":
		has = hasContent
		m.text, ok = p.text()
	case "partId":
		has = hasPart
		m.part, ok = p.text()
	case "toolCallId":
		has = hasCall
		m.call, ok = p.text()
	case "isComplete":
		has = hasWhole
		m.whole, ok = p.boolean()
	case "eventName":
		has = hasName
		m.name, ok = p.text()
	case "data":
		has = hasData
		m.data, ok = p.value()
	case "id":
		has = hasID
		m.id, ok = p.text()
	case "transient":
		has = hasTransient
		m.transient, ok = p.boolean()
	default:
		return false
	}
	fresh := m.seen&has == 0
	m.seen |= has
	return ok && fresh
}

func (p *plain) boolean() (value, ok bool) {
	p.space()
	for _, word := range [...]string{"true", "false"} {
		if rest, found := bytes.CutPrefix(p.rest, []byte(word)); found {
			p.rest = rest
			return word == "true", true
		}
	}
	return false, false
}

// value reads a value of any kind.
func (p *plain) value() (value []byte, ok bool) {
	p.space()
	n := jsonenc.Value(p.rest)
	if n < 0 {
		return nil, false
	}
	value, p.rest = p.rest[:n], p.rest[n:]
	return value, true
}

// chunk makes the chunk. It returns nil if members are missing or belong to another
// type.
func (m *members) chunk() chunk.Chunk {
	seen := m.seen &^ hasPart
	switch {
	case string(m.typ) == string(chunk.TypeTextDelta) && (seen == hasType|hasDelta || seen == hasType|hasContent):
		return &chunk.TextDelta{Delta: string(m.text), PartID: string(m.part)}
	case string(m.typ) == string(chunk.TypeThinking) && seen&^hasWhole == hasType|hasContent:
		return &chunk.Thinking{Content: string(m.text), PartID: string(m.part), IsComplete: m.whole}
	case string(m.typ) == string(chunk.TypeToolArgStreamDelta) && m.seen == hasType|hasDelta|hasCall:
		return &chunk.ToolArgStreamDelta{Delta: string(m.text), ToolCallID: string(m.call)}
	case string(m.typ) == string(chunk.TypeCustom) && m.seen&^(hasID|hasTransient|hasCall) == hasType|hasName|hasData:
		return &chunk.Custom{EventName: string(m.name), Data: bytes.Clone(m.data), ID: string(m.id), Transient: m.transient, ToolCallID: string(m.call)}
	}
	return nil
}

package anthropic

import "github.com/spool-run/spool/model/internal/provider"

// fast takes the event that comes thousands of times: a delta of text, thinking or
// input to a block that is open. For any other event it does nothing and returns
// false.
func (in *ingester) fast(name, data []byte) bool {
	if len(name) > 0 && string(name) != "content_block_delta" {
		return false
	}
	d := plainDelta{s: provider.Scan(data), index: -1}
	if !d.read() || !d.s.Done() {
		return false
	}
	b := in.blocks[d.index]
	if b == nil || b.kind != d.kind || !in.isOpen(b) || len(d.text) == 0 {
		return false
	}
	in.last = d.index
	text := d.text
	if d.escaped {
		in.scratch = provider.AppendRaw(in.scratch[:0], text)
		text = in.scratch
	}
	in.write(b, in.strings.Of(text))
	return true
}

// plainDelta is what a plain delta holds. Its text points into the event.
type plainDelta struct {
	s       provider.Scanner
	index   int
	kind    string // of its block
	text    []byte
	escaped bool
}

func (d *plainDelta) read() bool {
	s, typed, found := &d.s, false, false
	for key := s.First(); key != nil; key = s.Next() {
		switch string(key) {
		case "type":
			kind, escaped := s.Str()
			if escaped || typed || string(kind) != "content_block_delta" {
				return false
			}
			typed = true
		case "index":
			if d.index >= 0 {
				return false
			}
			d.index = s.Int()
		case "delta":
			if found || !d.delta() {
				return false
			}
			found = true
		default:
			return false
		}
	}
	return typed && found && d.index >= 0
}

func (d *plainDelta) delta() bool {
	s, typed, member := &d.s, "", ""
	for key := s.First(); key != nil; key = s.Next() {
		switch string(key) {
		case "type":
			kind, _ := s.Str()
			if typed != "" {
				return false
			}
			switch string(kind) {
			case "text_delta":
				typed = "text"
			case "thinking_delta":
				typed = "thinking"
			case "input_json_delta":
				typed = "tool"
			default:
				return false
			}
			continue
		case "text":
			d.kind = "text"
		case "thinking":
			d.kind = "thinking"
		case "partial_json":
			d.kind = "tool"
		default:
			return false
		}
		if member != "" || !s.IsStr() {
			return false
		}
		member = d.kind
		d.text, d.escaped = s.Str()
	}
	return member != "" && typed == d.kind
}

package openai

import (
	"github.com/spool-run/spool/model/internal/provider"
)

// fast takes the chunk that comes thousands of times: one choice with a piece of text,
// of reasoning or of a call's arguments, and nothing else that matters. For any other
// chunk it does nothing and returns false.
func (in *ingester) fast(name, data []byte) bool {
	if len(name) > 0 || in.tagged {
		return false
	}
	c := plainChunk{s: provider.Scan(data)}
	if !c.read() || !c.s.Done() {
		return false
	}
	if in.choice == nil {
		in.choice = new(int)
		*in.choice = c.index
	}
	if c.index != *in.choice {
		return true
	}
	if len(c.reasoning) > 0 {
		in.reasoning(c.field, in.str(c.reasoning, c.escaped[0]))
	}
	if len(c.text) > 0 {
		in.text(in.str(c.text, c.escaped[1]))
	}
	if c.called {
		i := index(c.call)
		in.tool(&toolDelta{Index: &i, Function: functionDelta{Arguments: c.arguments}})
	}
	return true
}

// str returns what the inside of a JSON string stands for.
func (in *ingester) str(inside []byte, escaped bool) string {
	if escaped {
		in.scratch = provider.AppendRaw(in.scratch[:0], inside)
		inside = in.scratch
	}
	return in.strings.Of(inside)
}

// plainChunk is what a plain chunk holds. Its slices point into the chunk.
type plainChunk struct {
	s               provider.Scanner
	index           int
	field           string // of the reasoning
	reasoning, text []byte
	escaped         [2]bool
	called          bool
	call            int
	arguments       []byte // a JSON string
}

func (c *plainChunk) read() bool {
	s, found := &c.s, false
	for key := s.First(); key != nil; key = s.Next() {
		switch string(key) {
		case "id", "created", "model", "system_fingerprint", "service_tier", "obfuscation", "provider":
			s.Skip()
		case "object":
			if kind, escaped := s.Str(); escaped || string(kind) == "error" {
				return false
			}
		case "usage", "error", "x_groq", "citations":
			if !s.IsNull() {
				return false
			}
		case "choices":
			if found || !s.FirstItem() || !c.choice() || s.NextItem() {
				return false
			}
			found = true
		default:
			return false
		}
	}
	return found
}

func (c *plainChunk) choice() bool {
	s, found, numbered := &c.s, false, false
	for key := s.First(); key != nil; key = s.Next() {
		switch string(key) {
		case "index":
			if numbered {
				return false
			}
			c.index, numbered = s.Int(), true
		case "finish_reason":
			if s.IsStr() {
				if reason, _ := s.Str(); len(reason) > 0 {
					return false
				}
			} else if !s.IsNull() {
				return false
			}
		case "native_finish_reason", "logprobs", "content_filter_results", "token_ids", "stop_reason":
			s.Skip()
		case "message", "text", "usage", "error":
			if !s.IsNull() {
				return false
			}
		case "delta":
			if found || !c.delta() {
				return false
			}
			found = true
		default:
			return false
		}
	}
	return found
}

func (c *plainChunk) delta() bool {
	s, said := &c.s, false
	for key := s.First(); key != nil; key = s.Next() {
		switch string(key) {
		case "role":
			s.Skip()
		case "content":
			if s.IsNull() {
				continue
			}
			if said {
				return false
			}
			c.text, c.escaped[1] = s.Str()
			said = true
		case "reasoning_content", "reasoning":
			if s.IsNull() {
				continue
			}
			if c.reasoning != nil {
				return false
			}
			c.field = "reasoning"
			if len(key) > len(c.field) {
				c.field = "reasoning_content"
			}
			c.reasoning, c.escaped[0] = s.Str()
		case "tool_calls":
			if s.IsNull() {
				continue
			}
			if c.called || !s.FirstItem() || !c.piece() || s.NextItem() {
				return false
			}
			c.called = true
		case "refusal", "function_call", "audio", "annotations", "reasoning_details", "thinking", "images":
			if !s.IsNull() {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// piece reads a piece of a call's arguments.
func (c *plainChunk) piece() bool {
	s, numbered, found := &c.s, false, false
	for key := s.First(); key != nil; key = s.Next() {
		switch string(key) {
		case "index":
			if numbered {
				return false
			}
			c.call, numbered = s.Int(), true
		case "type":
			s.Skip()
		case "id":
			if !s.IsNull() {
				return false
			}
		case "function":
			if found {
				return false
			}
			found = true
			for key := s.First(); key != nil; key = s.Next() {
				switch {
				case string(key) == "arguments" && c.arguments == nil && s.IsStr():
					c.arguments = s.RawStr()
				case string(key) == "name" && s.IsNull():
				default:
					return false
				}
			}
		default:
			return false
		}
	}
	return numbered && c.arguments != nil
}

package jsonenc

import "encoding/json"

// MaxDepth bounds how deep a value is nested. encoding/json reads 10,000 levels:
// a value near that could be stored, but not inside an answer that holds it.
const MaxDepth = 256

// Valid says whether data is JSON that is nested no deeper than [MaxDepth].
func Valid(data []byte) bool { return json.Valid(data) && Shallow(data) }

// Shallow says whether JSON is nested no deeper than [MaxDepth].
func Shallow(data []byte) bool {
	if len(data) <= MaxDepth {
		return true
	}
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			if depth++; depth > MaxDepth {
				return false
			}
		case ']', '}':
			depth--
		}
	}
	return true
}

// Nesting follows how deep a JSON text is nested that comes in pieces.
type Nesting struct {
	depth    int
	inString bool
	escaped  bool
}

// Fit takes the text's next piece, and returns how many of its bytes come before the
// first that is nested deeper than [MaxDepth]. After that it must not be called again.
func (n *Nesting) Fit(s string) int {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case n.escaped:
			n.escaped = false
		case n.inString:
			n.escaped, n.inString = c == '\\', c != '"'
		case c == '"':
			n.inString = true
		case c == '[' || c == '{':
			if n.depth++; n.depth > MaxDepth {
				return i
			}
		case c == ']' || c == '}':
			n.depth--
		}
	}
	return len(s)
}

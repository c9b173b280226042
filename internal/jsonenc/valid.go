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

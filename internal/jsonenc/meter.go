package jsonenc

import "iter"

// Meter measures JSON text while it arrives, in any pieces. It does not check the text.
type Meter struct {
	Values int // values so far, or up to twice as many where containers are empty
	Depth  int // the deepest nesting so far

	depth             int
	inString, escaped bool
}

// Add measures the next piece of the text.
func (m *Meter) Add(piece []byte) {
	for _, c := range piece {
		switch {
		case m.escaped:
			m.escaped = false
		case m.inString:
			m.escaped, m.inString = c == '\\', c != '"'
		case c == '"':
			m.inString = true
		case c == ',':
			m.Values++
		case c == '[' || c == '{':
			m.Values++
			m.depth++
			m.Depth = max(m.Depth, m.depth)
		case c == ']' || c == '}':
			m.depth--
		}
	}
}

// Elements returns the elements of a valid JSON array, one after the other and without
// copying them. Spaces around them are left on.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		depth, start, inString, empty := 0, 0, false, true
		for i := 0; i < len(array); i++ {
			c := array[i]
			switch {
			case inString:
				if c == '\\' {
					i++
				}
				inString = c != '"'
				continue
			case c == ' ' || c == '\t' || c == '\n' || c == '\r':
				continue
			case c == ',' && depth == 1:
				if !yield(array[start:i]) {
					return
				}
				start = i + 1
			case c == '[' || c == '{':
				if depth++; depth == 1 {
					start = i + 1
					continue
				}
			case c == ']' || c == '}':
				if depth--; depth == 0 {
					if !empty {
						yield(array[start:i])
					}
					return
				}
			}
			inString, empty = c == '"', false
		}
	}
}

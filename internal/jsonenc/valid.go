package jsonenc

// MaxDepth bounds how deep a value is nested. encoding/json reads 10,000 levels:
// a value near that could be stored, but not inside an answer that holds it.
const MaxDepth = 256

// Valid says whether data is JSON, as encoding/json reads it, that is nested no deeper
// than [MaxDepth].
func Valid(data []byte) bool {
	n := Value(data)
	return n >= 0 && skipSpace(data, n) == len(data)
}

// Value returns where the JSON value ends that data begins with; space may come before it.
// It returns -1 if there is none, or one that is nested deeper than [MaxDepth].
func Value(data []byte) int {
	var objects [MaxDepth / 64]uint64 // a bit for each level: it is an object, no array
	depth := 0
	i := skipSpace(data, 0)
	for {
		// A value begins at i.
		if i >= len(data) {
			return -1
		}
		if c := data[i]; c == '{' || c == '[' {
			if depth == MaxDepth {
				return -1
			}
			i = skipSpace(data, i+1)
			if i < len(data) && data[i] == c+2 { // the bracket that closes it
				i++
			} else {
				bit := uint64(1) << (depth % 64)
				objects[depth/64] &^= bit
				depth++
				if c == '{' {
					objects[(depth-1)/64] |= bit
					i = key(data, i)
				}
				if i < 0 {
					return -1
				}
				continue
			}
		} else if i = scalar(data, i); i < 0 {
			return -1
		}
		// A value ended before i.
		for {
			if depth == 0 {
				return i
			}
			i = skipSpace(data, i)
			if i >= len(data) {
				return -1
			}
			object := objects[(depth-1)/64]&(1<<((depth-1)%64)) != 0
			c := data[i]
			i++
			if c == ',' {
				if i = skipSpace(data, i); object {
					i = key(data, i)
				}
				break
			}
			if object && c != '}' || !object && c != ']' {
				return -1
			}
			depth--
		}
		if i < 0 {
			return -1
		}
	}
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') {
		i++
	}
	return i
}

// key returns where the value of the member begins whose name begins at i, or -1.
func key(data []byte, i int) int {
	if i >= len(data) || data[i] != '"' {
		return -1
	}
	if i = text(data, i+1); i < 0 {
		return -1
	}
	if i = skipSpace(data, i); i >= len(data) || data[i] != ':' {
		return -1
	}
	return skipSpace(data, i+1)
}

// scalar returns where the string, number or word ends that begins at i, or -1.
func scalar(data []byte, i int) int {
	switch data[i] {
	case '"':
		return text(data, i+1)
	case 't':
		return word(data, i, "true")
	case 'f':
		return word(data, i, "false")
	case 'n':
		return word(data, i, "null")
	}
	return number(data, i)
}

func word(data []byte, i int, w string) int {
	if len(data)-i < len(w) || string(data[i:i+len(w)]) != w {
		return -1
	}
	return i + len(w)
}

// inText holds the characters of strings that need no further look.
var inText = func() (table [256]bool) {
	for c := ' '; c < 256; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// text returns where a string ends of which the first character is at i, or -1.
func text(data []byte, i int) int {
	for i < len(data) {
		c := data[i]
		i++
		switch {
		case inText[c]:
		case c == '"':
			return i
		case c != '\\' || i >= len(data):
			return -1
		default:
			if i = escape(data, i); i < 0 {
				return -1
			}
		}
	}
	return -1
}

// escape returns where an escape ends of which the character after the backslash is at i,
// or -1.
func escape(data []byte, i int) int {
	switch data[i] {
	case 'b', 'f', 'n', 'r', 't', '\\', '/', '"':
		return i + 1
	case 'u':
	default:
		return -1
	}
	if len(data)-i < 5 {
		return -1
	}
	for _, c := range data[i+1 : i+5] {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return -1
		}
	}
	return i + 5
}

// number returns where a number ends that begins at i, or -1.
func number(data []byte, i int) int {
	if data[i] == '-' {
		i++
	}
	whole := digits(data, i)
	if whole == i || data[i] == '0' && whole > i+1 {
		return -1
	}
	i = whole
	if i < len(data) && data[i] == '.' {
		n := digits(data, i+1)
		if n == i+1 {
			return -1
		}
		i = n
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		n := digits(data, i)
		if n == i {
			return -1
		}
		i = n
	}
	return i
}

func digits(data []byte, i int) int {
	for i < len(data) && data[i] >= '0' && data[i] <= '9' {
		i++
	}
	return i
}

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

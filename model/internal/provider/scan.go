package provider

// Scanner walks through one JSON value without allocating. What is not JSON makes
// it bad; from then on it yields nothing. It is for the one event of a stream that
// comes thousands of times: code that meets something unexpected decodes the value
// with encoding/json instead.
type Scanner struct {
	data []byte
	at   int
	bad  bool
}

// Scan begins with a value.
func Scan(data []byte) Scanner { return Scanner{data: data} }

// Done reports whether the value was JSON and has been walked through.
func (s *Scanner) Done() bool { return s.peek() == 0 && s.at == len(s.data) && !s.bad }

// peek skips blank space and returns the next byte; 0 at the end.
func (s *Scanner) peek() byte {
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (s *Scanner) take(c byte) bool {
	if s.bad || s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *Scanner) fail() { s.bad = true }

// First enters an object and returns its first key; nil if it has none. Keys with
// escapes make the scanner bad.
func (s *Scanner) First() []byte {
	if !s.take('{') {
		s.fail()
		return nil
	}
	if s.take('}') {
		return nil
	}
	return s.key()
}

// Next returns the object's next key; nil behind the last one.
func (s *Scanner) Next() []byte {
	if s.take(',') {
		return s.key()
	}
	if !s.take('}') {
		s.fail()
	}
	return nil
}

func (s *Scanner) key() []byte {
	key, escaped := s.Str()
	if escaped || !s.take(':') {
		s.fail()
	}
	if s.bad {
		return nil
	}
	return key
}

// FirstItem enters an array and reports whether it has an element.
func (s *Scanner) FirstItem() bool {
	if !s.take('[') {
		s.fail()
		return false
	}
	return !s.take(']') && !s.bad
}

// NextItem reports whether the array has another element.
func (s *Scanner) NextItem() bool {
	if s.take(',') {
		return true
	}
	if !s.take(']') {
		s.fail()
	}
	return false
}

// IsNull takes null, if it is next.
func (s *Scanner) IsNull() bool {
	if s.bad || s.peek() != 'n' {
		return false
	}
	s.word("null")
	return !s.bad
}

// IsStr reports whether a string is next.
func (s *Scanner) IsStr() bool { return !s.bad && s.peek() == '"' }

// Str takes a string and returns its inside, which is what it stands for unless it
// is escaped.
func (s *Scanner) Str() (inside []byte, escaped bool) {
	if !s.take('"') {
		s.fail()
		return nil, false
	}
	from := s.at
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return s.data[from : s.at-1], escaped
		case c == '\\':
			escaped = true
			s.escape()
		case c < ' ':
			s.fail()
		}
		if s.bad {
			return nil, false
		}
	}
	s.fail()
	return nil, false
}

// escape walks to the last byte of an escape.
func (s *Scanner) escape() {
	s.at++
	if s.at >= len(s.data) {
		s.fail()
		return
	}
	switch s.data[s.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		for range 4 {
			if s.at++; s.at >= len(s.data) || !isHex(s.data[s.at]) {
				s.fail()
				return
			}
		}
	default:
		s.fail()
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// Int takes a number of at most nine digits and nothing else.
func (s *Scanner) Int() (n int) {
	s.peek()
	from := s.at
	for ; s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9'; s.at++ {
		n = n*10 + int(s.data[s.at]-'0')
		if s.at-from > 8 {
			s.fail()
			return 0
		}
	}
	if s.at == from || s.at-from > 1 && s.data[from] == '0' {
		s.fail()
	}
	if s.at < len(s.data) {
		switch s.data[s.at] {
		case '.', 'e', 'E':
			s.fail()
		}
	}
	return n
}

// Skip takes any value.
func (s *Scanner) Skip() { s.skip(0) }

func (s *Scanner) skip(depth int) {
	if depth > 64 {
		s.fail()
	}
	if s.bad {
		return
	}
	switch c := s.peek(); {
	case c == '"':
		s.Str()
	case c == '{':
		// Keys may hold escapes here.
		s.at++
		if s.take('}') {
			return
		}
		for {
			s.Str()
			if !s.take(':') {
				s.fail()
				return
			}
			s.skip(depth + 1)
			if !s.take(',') {
				break
			}
		}
		if !s.take('}') {
			s.fail()
		}
	case c == '[':
		for more := s.FirstItem(); more; more = s.NextItem() {
			s.skip(depth + 1)
		}
	case c == 't':
		s.word("true")
	case c == 'f':
		s.word("false")
	case c == 'n':
		s.word("null")
	default:
		s.number()
	}
}

func (s *Scanner) word(w string) {
	if len(s.data)-s.at < len(w) || string(s.data[s.at:s.at+len(w)]) != w {
		s.fail()
		return
	}
	s.at += len(w)
}

func (s *Scanner) number() {
	digits := func() bool {
		from := s.at
		for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
			s.at++
		}
		return s.at > from
	}
	is := func(chars string) bool {
		for i := range len(chars) {
			if s.at < len(s.data) && s.data[s.at] == chars[i] {
				s.at++
				return true
			}
		}
		return false
	}
	is("-")
	ok := is("0") || digits()
	if ok && is(".") {
		ok = digits()
	}
	if ok && is("eE") {
		is("+-")
		ok = digits()
	}
	if !ok {
		s.fail()
	}
}

// RawStr takes a string and returns it with its quotes.
func (s *Scanner) RawStr() []byte {
	s.peek()
	from := s.at
	s.Str()
	return s.data[from:s.at]
}

package provider

import (
	"bytes"
	"encoding/json"
	"io"
)

// strays are the lines of an event stream that are no fields: JSON that a server or a
// proxy wrote without framing, in one line or several, and the lines of an answer that
// is no event stream at all.
type strays struct {
	begun bool   // there were events
	json  []byte // the beginning of a value
	lines int    // in it
	prose string // the first line that is none
}

// The most of a JSON value in several lines.
const (
	strayBytes = 64 << 10
	strayLines = 1000
)

// line takes a line. An error ends the stream.
func (s *strays) line(r *Reader, line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	text := bytes.TrimSpace(line)
	switch {
	case s.lines == 0 && string(name) == "error" && len(value) > 0: // llama.cpp
		return ParseError(0, nil, bytes.TrimSpace(value))
	case s.lines == 0 && (len(text) == 0 || text[0] != '{' && text[0] != '['):
		if s.prose == "" && bytes.ContainsAny(name, " \t") { // which no field has in its name
			s.prose = string(text)
		}
		return nil
	}
	s.json, s.lines = append(append(s.json, line...), '\n'), s.lines+1
	switch {
	case s.lines > 1 && (len(s.json) > strayBytes || s.lines > strayLines):
		s.drop()
	case (line[0] == '}' || line[0] == ']' || s.lines == 1) && json.Valid(s.json):
		value := bytes.TrimSpace(s.json)
		s.seen()
		if r.event("", value, false); r.Out.Stopped {
			return io.EOF // the reader need not go on
		}
	}
	return nil
}

func (s *strays) drop() { s.json, s.lines = nil, 0 }

// seen is told of an event.
func (s *strays) seen() {
	s.begun = true
	s.drop()
}

// cut ends the answer where the bytes do.
func (s *strays) cut(r *Reader, err error) {
	if err == io.EOF && !s.begun && s.prose != "" {
		r.Out.Fail(ParseError(0, nil, []byte(s.prose)))
		return
	}
	r.Out.Cut(err)
}

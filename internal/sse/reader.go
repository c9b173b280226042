package sse

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// DefaultMaxLine bounds a line, and an event's data, unless the options say
// otherwise.
const DefaultMaxLine = 32 << 20

// Errors of a [Reader]. They end it.
var (
	ErrLineTooLong  = errors.New("sse: line too long")
	ErrEventTooLong = errors.New("sse: event data too long")
)

// Event is one dispatched event. Its slices are valid until the next call of
// [Reader.Next]. They are the stream's bytes: nothing replaces invalid UTF-8.
type Event struct {
	Name []byte // the event field; empty means "message"
	Data []byte // the data lines, joined by newlines
	ID   []byte // the last event id seen so far in the stream
	// Unterminated is set if the input ended before the event's blank line. Its
	// last line may be cut.
	Unterminated bool
}

// ReaderOptions are a reader's settings. The zero value reads as a browser does.
type ReaderOptions struct {
	// MaxLine bounds a line and an event's data, in bytes; 0: [DefaultMaxLine].
	MaxLine int
	// KeepLast dispatches an event that the end of the input cuts before its
	// blank line. Browsers drop it; some servers never send that line.
	KeepLast bool
	// Other is given the lines that the standard does not know and a browser
	// skips; nil: skip them. What it returns ends the reader, if it is an error.
	Other func(line []byte) error
}

// Reader takes an event stream apart as the WHATWG standard says. Results do not
// depend on how the input is cut into reads. It does not allocate per event.
type Reader struct {
	src io.Reader
	o   ReaderOptions

	buf     []byte
	r, w    int  // unread bytes are buf[r:w]
	scanned int  // bytes after r known to hold no line end
	empty   int  // reads in a row that gave nothing
	begun   bool // the first line, which may hold a byte order mark, is done
	skipLF  bool // the last line ended in CR; an LF next belongs to it
	err     error

	name, data, id, newID []byte
	hasData, hasID        bool
	retry                 time.Duration
}

// NewReader returns a reader of src. Options may be nil.
func NewReader(src io.Reader, o *ReaderOptions) *Reader {
	r := &Reader{src: src}
	if o != nil {
		r.o = *o
	}
	if r.o.MaxLine <= 0 {
		r.o.MaxLine = DefaultMaxLine
	}
	return r
}

// Retry returns the reconnection time that the stream asked for last, 0 if none.
func (r *Reader) Retry() time.Duration { return r.retry }

// Next returns the next event that has data. At the end of the input it returns
// io.EOF, or the error that the source gave.
func (r *Reader) Next() (Event, error) {
	r.name, r.data, r.hasData = r.name[:0], r.data[:0], false
	for {
		line, err := r.line()
		if err != nil {
			if err != io.EOF || !r.o.KeepLast {
				return Event{}, err
			}
			if len(line) > 0 {
				if err := r.field(line); err != nil {
					return Event{}, err
				}
			}
			if e, ok := r.dispatch(); ok {
				e.Unterminated = true
				return e, nil
			}
			return Event{}, err
		}
		if len(line) == 0 {
			if e, ok := r.dispatch(); ok {
				return e, nil
			}
			continue
		}
		if err := r.field(line); err != nil {
			return Event{}, err
		}
	}
}

func (r *Reader) dispatch() (Event, bool) {
	if r.hasID {
		r.id, r.hasID = append(r.id[:0], r.newID...), false
	}
	if !r.hasData {
		r.name = r.name[:0]
		return Event{}, false
	}
	r.hasData = false
	return Event{Name: r.name, Data: r.data, ID: r.id}, true
}

func (r *Reader) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		if r.hasData {
			r.data = append(r.data, '\n')
		}
		if len(r.data)+len(value) > r.o.MaxLine {
			r.err = ErrEventTooLong
			r.r, r.w = 0, 0
			return r.err
		}
		r.data, r.hasData = append(r.data, value...), true
	case "event":
		r.name = append(r.name[:0], value...)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.newID, r.hasID = append(r.newID[:0], value...), true
		}
	case "retry":
		if ms, ok := digits(value); ok {
			r.retry = ms
		}
	default: // a comment, or a field that the standard does not know
		if len(name) > 0 && r.o.Other != nil {
			if err := r.o.Other(line); err != nil {
				r.err = err
				r.r, r.w = 0, 0
				return err
			}
		}
	}
	return nil
}

// digits reads a number of milliseconds, at most about a day.
func digits(value []byte) (time.Duration, bool) {
	const most = 100_000_000
	n := 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int(c-'0'), most)
	}
	return time.Duration(n) * time.Millisecond, len(value) > 0
}

// line returns the next line without its end. With an error it returns what came
// after the last line end.
func (r *Reader) line() ([]byte, error) {
	for {
		if r.skipLF && r.r < r.w {
			r.skipLF = false
			if r.buf[r.r] == '\n' {
				r.r++
			}
		}
		rest := r.buf[r.r:r.w]
		end := lineEnd(rest[r.scanned:])
		if end >= 0 {
			end += r.scanned
		}
		if end > r.o.MaxLine || end < 0 && len(rest) > r.o.MaxLine {
			r.err, r.r, r.w, r.scanned = ErrLineTooLong, 0, 0, 0
			return nil, r.err
		}
		if end >= 0 {
			r.skipLF = rest[end] == '\r'
			r.r += end + 1
			r.scanned = 0
			return r.first(rest[:end]), nil
		}
		if r.err != nil {
			r.r, r.scanned = r.w, 0
			return r.first(rest), r.err
		}
		r.scanned = len(rest)
		r.fill()
	}
}

func (r *Reader) first(line []byte) []byte {
	if !r.begun {
		r.begun = true
		line = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
	}
	return line
}

func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// fill reads once. The source's error is kept for when its bytes are used up.
func (r *Reader) fill() {
	switch {
	case r.r == r.w:
		r.r, r.w = 0, 0
	case r.r > 0 && r.w == len(r.buf):
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	}
	if r.w == len(r.buf) {
		buf := make([]byte, max(4096, 2*len(r.buf)))
		copy(buf, r.buf[:r.w])
		r.buf = buf
	}
	n, err := r.src.Read(r.buf[r.w:])
	r.w += n
	switch {
	case err != nil:
		r.err = err
	case n > 0:
		r.empty = 0
	default:
		if r.empty++; r.empty == 100 {
			r.err = io.ErrNoProgress
		}
	}
}

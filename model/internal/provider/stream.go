package provider

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/model"
)

// Reader takes an answer's bytes apart: an event stream, or one JSON value.
type Reader struct {
	Limit  int    // bytes of one line, or of an answer that is not streamed; 0: 32 MiB
	OnData func() // called for every event that has data; may be nil

	// Fast may take an event that is plain, and reports whether it has. It must
	// check that the data is JSON, and do what Event would do; nil: never.
	Fast  func(name, data []byte) bool
	Event func(name string, data []byte) // a JSON value, or [DONE]
	Whole func(data []byte)              // an answer that is not streamed, as it came
	Out   *Emitter

	other strays
}

// Read reads src to the end of the answer, which is when the emitter stops.
func (r *Reader) Read(src io.Reader) {
	if r.Limit <= 0 {
		r.Limit = sse.DefaultMaxLine
	}
	buf := bufio.NewReader(src)
	first, err := firstByte(buf)
	switch {
	case err != nil:
		r.Out.Cut(err)
	case first == '{' || first == '[':
		r.whole(buf)
	case first == '<':
		r.Out.Fail(&model.Error{Code: model.CodeProtocol, Message: "the provider answered with a web page instead of a stream"})
	default:
		r.events(sse.NewReader(buf, &sse.ReaderOptions{MaxLine: r.Limit, KeepLast: true, Other: func(line []byte) error { return r.other.line(r, line) }}))
	}
}

var done = []byte("[DONE]")

// firstByte skips blank space and a byte order mark.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if strings.IndexByte(" \t\r\n\xEF\xBB\xBF", b) < 0 {
			return b, r.UnreadByte()
		}
	}
}

func (r *Reader) events(events *sse.Reader) {
	for !r.Out.Stopped {
		e, err := events.Next()
		if err != nil {
			r.other.cut(r, err)
			return
		}
		r.other.seen()
		if r.OnData != nil {
			r.OnData()
		}
		data := bytes.TrimSpace(e.Data)
		if len(data) > 0 && (r.Fast == nil || !r.Fast(e.Name, data)) {
			r.event(string(e.Name), data, e.Unterminated)
		}
	}
}

// event takes an event that has data; cut: its end may be missing.
func (r *Reader) event(name string, data []byte, cut bool) {
	for again := true; again; { // some proxies frame the events again
		if data, again = bytes.CutPrefix(data, []byte("data:")); again {
			data = bytes.TrimSpace(data)
		}
	}
	if bytes.EqualFold(bytes.Trim(data, `"`), done) {
		data = done
	}
	first, rest, several := bytes.Cut(data, []byte{'\n'})
	switch {
	case bytes.Equal(data, done), json.Valid(data) && !failed(name):
		r.Event(name, data)
	case name == "error", failed(name):
		r.Out.Fail(ParseEvent(name, data))
	case several && (bytes.EqualFold(bytes.TrimSpace(first), done) || json.Valid(first)):
		// Events without the blank line between them.
		if r.event(name, bytes.TrimSpace(first), false); !r.Out.Stopped {
			r.event(name, bytes.TrimSpace(rest), cut)
		}
	case idle(name), idle(string(data)):
	case cut:
		r.Out.Cut(io.EOF)
	default:
		r.Out.Fail(&model.Error{Code: model.CodeProtocol, Message: "the provider sent an event that is not JSON: " + Excerpt(string(data))})
	}
}

// failed reports whether an event's name is that of an error, other than "error"
// itself, whose data ingesters read.
func failed(name string) bool {
	name = strings.ToLower(name)
	return name != "error" && !strings.Contains(name, "call") && (strings.HasSuffix(name, "error") || strings.HasSuffix(name, "exception"))
}

// idle reports whether s is a text by which some servers say that they still work.
func idle(s string) bool {
	switch strings.Trim(strings.ToLower(s), "[]") {
	case "ping", "heartbeat", "keepalive", "keep-alive", "keep_alive":
		return true
	}
	return false
}

func (r *Reader) whole(src io.Reader) {
	data, err := io.ReadAll(io.LimitReader(src, int64(r.Limit)+1))
	switch {
	case err != nil:
		r.Out.Cut(err)
	case len(data) > r.Limit:
		r.Out.Cut(sse.ErrLineTooLong)
	case unfinished(data):
		r.Out.Cut(io.EOF)
	default:
		r.Whole(data)
	}
}

// Lines reads an answer that is a stream's events without its framing, several
// JSON values one after the other, and reports whether it is one.
func (e *Emitter) Lines(data []byte, event func(name string, data []byte)) bool {
	values := json.NewDecoder(bytes.NewReader(data))
	for n := 0; !e.Stopped; n++ {
		var value json.RawMessage
		if err := values.Decode(&value); err != nil {
			if n > 1 {
				e.Cut(io.EOF)
			}
			return n > 1
		}
		if n == 0 && !values.More() {
			return false
		}
		event("", value)
	}
	return true
}

// unfinished reports whether data is the beginning of a JSON value.
func unfinished(data []byte) bool {
	var v json.RawMessage
	return errors.Is(json.NewDecoder(bytes.NewReader(data)).Decode(&v), io.ErrUnexpectedEOF)
}

// Emitter gives parts to a consumer and ends their stream once.
type Emitter struct {
	Yield   func(model.Part, error) bool
	Stopped bool // the consumer is gone, or the stream has ended

	Finish string // the finish reason, as the provider said it
	Usage  *chunk.Usage
	End    func() // completes the answer; called when no bytes come after a finish reason
	Flush  func() // emits what is held back; called before a failure
	// Hold is asked when the bytes end before the answer does. If it says true, the
	// stream goes on with another connection's. nil: never.
	Hold func(err error) bool
}

// Emit gives a part to the consumer.
func (e *Emitter) Emit(p model.Part) {
	if !e.Stopped && !e.Yield(p, nil) {
		e.Stopped = true
	}
}

// Fail ends the stream with an error.
func (e *Emitter) Fail(err *model.Error) {
	if e.Stopped {
		return
	}
	if e.Flush != nil {
		e.Flush()
	}
	e.report()
	if !e.Stopped {
		err.Message, err.Finish = redact.Text(err.Message), e.Finish
		e.Yield(nil, err)
		e.Stopped = true
	}
}

// Complete ends the stream with a finish.
func (e *Emitter) Complete(f model.Finish) {
	e.report()
	e.Emit(f)
	e.Stopped = true
}

// report emits the usage, once, as the last part before the end.
func (e *Emitter) report() {
	if e.Usage != nil {
		e.Emit(model.UsageUpdate{Usage: *e.Usage})
	}
}

// Cut is called when no more bytes come.
func (e *Emitter) Cut(err error) {
	switch {
	case e.Stopped:
	case errors.Is(err, sse.ErrLineTooLong), errors.Is(err, sse.ErrEventTooLong):
		e.Fail(&model.Error{Code: model.CodeProtocol, Message: "the provider sent an event that is too large", Err: err})
	case e.Finish != "":
		e.End()
	case e.Hold != nil && e.Hold(err):
	default:
		e.Truncated(err)
	}
}

// Truncated ends the stream as one that was cut.
func (e *Emitter) Truncated(err error) {
	if failure, ok := errors.AsType[*model.Error](err); ok {
		e.Fail(failure)
		return
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	e.Fail(&model.Error{Code: model.CodeTruncated, Message: "the provider's stream ended before the answer did", Retryable: true, Err: err})
}

package sse

import (
	"net/http"
	"strconv"
	"strings"
)

// The headers of an event stream. Transformations hold bytes back until a buffer
// is full, and so does nginx unless it is told not to.
const (
	ContentType       = "text/event-stream"
	CacheControl      = "no-cache, no-transform"
	AccelBufferingKey = "X-Accel-Buffering"
	AccelBuffering    = "no"
	LastEventIDKey    = "Last-Event-ID"
)

// SetHeaders sets the headers of an event stream.
func SetHeaders(h http.Header) {
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", CacheControl)
	h.Set(AccelBufferingKey, AccelBuffering)
}

// AppendEvent appends an event with this id, or without one if id is "". Line
// ends inside data become several data lines, as the format demands, and come
// out of a parser as \n.
func AppendEvent(dst []byte, id string, data []byte) []byte {
	return appendData(AppendID(dst, id), data)
}

// AppendNamedEvent is [AppendEvent] for an event with a name ("event:").
func AppendNamedEvent(dst []byte, name, id string, data []byte) []byte {
	dst = AppendID(dst, id)
	if name != "" && !strings.ContainsAny(name, "\r\n") {
		dst = append(dst, "event: "...)
		dst = append(dst, name...)
		dst = append(dst, '\n')
	}
	return appendData(dst, data)
}

// AppendID appends the id line of the event that follows. An id that the format
// cannot carry is left out.
func AppendID(dst []byte, id string) []byte {
	if id == "" || strings.ContainsAny(id, "\r\n\x00") {
		return dst
	}
	dst = append(dst, "id: "...)
	dst = append(dst, id...)
	return append(dst, '\n')
}

// AppendRetry appends the time after which a reader should reconnect.
func AppendRetry(dst []byte, milliseconds int) []byte {
	dst = append(dst, "retry: "...)
	dst = strconv.AppendInt(dst, int64(milliseconds), 10)
	return append(dst, "\n\n"...)
}

// AppendComment appends a comment, which readers skip; an empty one is the
// shortest heartbeat.
func AppendComment(dst []byte, text string) []byte {
	for line := range strings.SplitSeq(text, "\n") {
		dst = append(dst, ':')
		if line = strings.TrimRight(line, "\r"); line != "" {
			dst = append(dst, ' ')
			dst = append(dst, strings.ReplaceAll(line, "\r", " ")...)
		}
		dst = append(dst, '\n')
	}
	return append(dst, '\n')
}

// AppendPadding appends a comment of n bytes or a few more: some proxies hold
// the first two KiB of a response back.
func AppendPadding(dst []byte, n int) []byte {
	dst = append(dst, ':')
	for range n {
		dst = append(dst, ' ')
	}
	return append(dst, "\n\n"...)
}

func appendData(dst, data []byte) []byte {
	dst = append(dst, "data: "...)
	start := 0
	for i := 0; i < len(data); i++ {
		c := data[i]
		if c != '\n' && c != '\r' {
			continue
		}
		dst = append(dst, data[start:i]...)
		dst = append(dst, "\ndata: "...)
		if c == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			i++
		}
		start = i + 1
	}
	dst = append(dst, data[start:]...)
	return append(dst, "\n\n"...)
}

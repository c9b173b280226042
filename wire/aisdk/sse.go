package aisdk

import (
	"io"
	"iter"
	"maps"
	"net/http"

	"github.com/spool-run/spool"
)

// What marks requests and responses of this wire.
const (
	Header      = "X-AI-SDK-UI"      // on a request that wants this wire
	HeaderValue = "vercel-ai-sdk-ui" // its value

	StreamHeader      = "X-Vercel-Ai-Ui-Message-Stream" // on every response
	StreamHeaderValue = "v1"                            // its value
)

// The headers that name the position to go on from, in order of precedence.
const (
	HeaderLastEventID = "Last-Event-ID"
	HeaderResumeFrom  = "X-Resume-From-Sequence"
	HeaderResumeAt    = "X-Resume-At"
)

// Headers returns the headers of a stream, with custom ones added or in their
// place.
func Headers(custom http.Header) http.Header {
	h := http.Header{
		"Content-Type":      {"text/event-stream"},
		"Cache-Control":     {"no-cache, no-transform"},
		"Connection":        {"keep-alive"},
		StreamHeader:        {StreamHeaderValue},
		"X-Accel-Buffering": {"no"},
	}
	for k, v := range custom {
		h[http.CanonicalHeaderKey(k)] = v
	}
	return h
}

// Wants reports whether a request asks for this wire.
func Wants(h http.Header) bool { return h.Get(Header) == HeaderValue }

// ParseResumePosition reads the value of a resume header. What is no position
// is none.
func ParseResumePosition(value string) (spool.Cursor, bool) {
	c, err := spool.ParseCursor(value)
	return c, err == nil
}

// ExtractResumePosition returns the position that a request's headers name: the
// first of Last-Event-ID, X-Resume-From-Sequence and X-Resume-At that is one.
func ExtractResumePosition(h http.Header) (c spool.Cursor, header string, ok bool) {
	for _, name := range []string{HeaderLastEventID, HeaderResumeFrom, HeaderResumeAt} {
		if c, ok := ParseResumePosition(h.Get(name)); ok {
			return c, name, true
		}
	}
	return spool.Cursor{}, "", false
}

// AppendFrame appends a frame as it goes on the socket: after an id line if it
// has a sequence. Clients of this wire ignore the id; those that splice
// connections need it.
func AppendFrame(dst []byte, f spool.Frame, incarnation uint64) []byte {
	if f.Seq != 0 {
		dst = append(dst, "id: "...)
		dst = spool.Cursor{Seq: f.Seq, Incarnation: incarnation}.AppendText(dst)
		dst = append(dst, '\n')
	}
	return append(dst, f.Data...)
}

// WriteStream writes frames, each as soon as there is one.
func WriteStream(w io.Writer, frames iter.Seq2[spool.Frame, error]) error {
	flusher, _ := w.(http.Flusher)
	var buf []byte
	for f, err := range frames {
		if err != nil {
			return err
		}
		buf = AppendFrame(buf[:0], f, 0)
		if _, err := w.Write(buf); err != nil {
			return err
		}
		if flusher != nil {
			flusher.Flush()
		}
	}
	return nil
}

// Respond answers a request with a stream. An error after the first frame
// breaks the connection: a clean end would tell clients that all went well.
func Respond(w http.ResponseWriter, custom http.Header, frames iter.Seq2[spool.Frame, error]) {
	maps.Copy(w.Header(), Headers(custom))
	w.WriteHeader(http.StatusOK)
	if err := WriteStream(w, frames); err != nil {
		panic(http.ErrAbortHandler)
	}
}

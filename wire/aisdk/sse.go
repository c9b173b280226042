package aisdk

import (
	"io"
	"iter"
	"maps"
	"net/http"

	"github.com/spool-run/spool"
)

// What marks a request of a client of this wire.
const (
	Header      = "X-AI-SDK-UI"
	HeaderValue = "vercel-ai-sdk-ui"
)

// What marks a stream of this wire.
const (
	streamHeader  = "X-Vercel-Ai-Ui-Message-Stream"
	streamVersion = "v1"
)

// headers returns the headers of a stream, with custom ones added or in their
// place.
func headers(custom http.Header) http.Header {
	h := http.Header{
		"Content-Type":      {"text/event-stream"},
		"Cache-Control":     {"no-cache, no-transform"},
		"Connection":        {"keep-alive"},
		streamHeader:        {streamVersion},
		"X-Accel-Buffering": {"no"},
	}
	for k, v := range custom {
		h[http.CanonicalHeaderKey(k)] = v
	}
	return h
}

// appendFrame appends a frame as it goes on the socket: after an id line if it
// has a sequence. Clients of this wire ignore the id; those that splice
// connections need it.
func appendFrame(dst []byte, f spool.Frame, incarnation uint64) []byte {
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
		buf = appendFrame(buf[:0], f, 0)
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
	maps.Copy(w.Header(), headers(custom))
	w.WriteHeader(http.StatusOK)
	if err := WriteStream(w, frames); err != nil {
		panic(http.ErrAbortHandler)
	}
}

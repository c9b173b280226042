package wire

import "github.com/spool-run/spool/internal/sse"

// AppendEvent appends a frame of a text/event-stream: an event with this name, or
// without one if it is "". The id line is not the wire's to write. Line ends inside
// data become several data lines, as the format demands.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	return sse.AppendNamedEvent(dst, name, "", data)
}

// AppendComment appends a comment, which readers skip.
func AppendComment(dst []byte, text string) []byte { return sse.AppendComment(dst, text) }

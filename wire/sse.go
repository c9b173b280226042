package wire

import "github.com/spool-run/spool/internal/sse"

// AppendEvent appends a frame of a text/event-stream: an event with this name, or
// without one if it is "". It does not write the id line: the server does. Data with
// line ends becomes several data lines, as the format requires.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	return sse.AppendNamedEvent(dst, name, "", data)
}

// AppendComment appends a comment, which readers skip.
func AppendComment(dst []byte, text string) []byte { return sse.AppendComment(dst, text) }

package merlin

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/wire"
)

// maxText is how much encoded text one frame carries.
const maxText = 255 << 10

// event is an event of the wire before it is encoded.
type event struct {
	name string
	data any
	// again marks a step or a heading that the client has already, in an earlier
	// state; reopened, a step that was done in that state and now is not.
	again, reopened bool
}

// messageAt is a message of V2, about a content index.
func messageAt(index int, m Message) event {
	m.Content, m.Index = new(string), &index
	return event{name: eventMessage, data: m}
}

// frameWriter writes the frames of one record or one plan.
type frameWriter struct {
	frames  []spool.Frame
	literal *Literal
	first   int // content index of the answer's first block
}

// send writes an event as a frame.
func (w *frameWriter) send(e event) {
	if e, ok := w.literal.rewrite(e, w.first); ok {
		w.frames = append(w.frames, spool.Frame{Data: wire.AppendEvent(nil, e.name, encode(e.data))})
	}
}

func (w *frameWriter) event(name string, data any) { w.send(event{name: name, data: data}) }

func (w *frameWriter) message(index int, m Message) { w.send(messageAt(index, m)) }

// words writes text as one frame, or as several if it is too long for one.
func (w *frameWriter) words(s string, write func(piece string)) {
	for s != "" {
		n := fit(s, maxText)
		write(s[:n])
		s = s[n:]
	}
}

// fit returns how many bytes of s, cut at a rune border, take at most limit
// bytes once encoded.
func fit(s string, limit int) int {
	if len(s) <= limit/6 {
		return len(s)
	}
	encoded := 0
	for i, r := range s {
		switch {
		case r < 0x20, r == utf8.RuneError, r == '\u2028', r == '\u2029':
			encoded += 6
		case r == '"', r == '\\':
			encoded += 2
		default:
			encoded += utf8.RuneLen(r)
		}
		if encoded > limit {
			return i
		}
	}
	return len(s)
}

// encode encodes values that cannot fail: our own structs of strings, numbers
// and JSON that was decoded before.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

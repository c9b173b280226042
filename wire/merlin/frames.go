package merlin

import (
	"bytes"
	"encoding/json"
	"regexp"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/sse"
)

// maxText is how much encoded text one frame carries.
const maxText = 255 << 10

// frameWriter writes the frames of one record or one plan.
type frameWriter struct {
	frames []spool.Frame
	union  bool
}

func (w *frameWriter) event(name string, v any) {
	w.frames = append(w.frames, spool.Frame{Data: sse.AppendNamedEvent(nil, name, "", encode(v))})
}

func (w *frameWriter) message(index int, m Message) {
	switch {
	case !w.union:
		m.Content, m.Index = new(string), &index
	case m.Type == TypeText:
		text := m.Text
		m.Content, m.Text, m.Index = &text, "", &index
	case m.Type == TypeToolCalls, m.Type == TypeToolCallResult:
		m.ContentIndex = &index
	case m.Type == TypeReasoning, m.Type == TypeProgress, m.Type == TypeError:
		m.Index = &index
	}
	w.event(EventMessage, m)
}

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

// AppendEvent appends an event of this name without data: {}.
func AppendEvent(dst []byte, name string) []byte {
	return sse.AppendNamedEvent(dst, name, "", []byte("{}"))
}

// AppendContent appends a V1 message with this content.
func AppendContent(dst []byte, content string) []byte {
	return sse.AppendNamedEvent(dst, EventMessage, "", encode(Message{Content: &content}))
}

// markers are what [marker] makes.
var markers = regexp.MustCompile(`^\[citation: [0-9]+: [0-9]+\]$`)

// ContentOf returns the content of an event that [Projector] made, with or
// without an id line, if it may be written in slices: V1's, but for the markers of
// citations, which clients look for.
func ContentOf(event []byte) (content string, ok bool) {
	if bytes.HasPrefix(event, []byte("id:")) {
		_, event, _ = bytes.Cut(event, []byte("\n"))
	}
	data, ok := bytes.CutPrefix(event, []byte("event: message\ndata: "))
	if !ok || !bytes.HasPrefix(data, []byte(`{"content":`)) {
		return "", false
	}
	var m Message
	if json.Unmarshal(data, &m) != nil || m.Content == nil || m.Type != "" || m.Error != nil || *m.Content == "" || markers.MatchString(*m.Content) {
		return "", false
	}
	return *m.Content, true
}

package aisdk

import (
	"bytes"
	"encoding/json"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/jsonenc"
)

// maxText is how much encoded text one frame carries.
const maxText = 255 << 10

// frameWriter collects the frames of one record or one plan.
type frameWriter struct {
	frames []spool.Frame
	buf    []byte
	kind   eventKind // of the event that is being written,
	about  string    // and the call, or the data, that it is about
	echo   bool      // what a client answered is being repeated to it
	noted  func(kind eventKind, about string, f spool.Frame)
}

// eventKind sets apart the events that are told to some readers only.
type eventKind uint8

const (
	otherEvent eventKind = iota
	startEvent
	outcomeEvent
	denialEvent
	decisionEvent
	dataEvent
)

func kindOf(event string) eventKind {
	switch event {
	case "start":
		return startEvent
	case "tool-output-available", "tool-output-error":
		return outcomeEvent
	case "tool-output-denied":
		return denialEvent
	case "tool-approval-response":
		return decisionEvent
	}
	return otherEvent
}

// open begins an event; close ends it. Between them str, raw and flag add its
// fields, in the order of the calls.
func (w *frameWriter) open(kind string) *frameWriter {
	w.kind, w.about = kindOf(kind), ""
	w.buf = append(w.buf[:0], `data: {"type":`...)
	w.buf = jsonenc.AppendString(w.buf, kind)
	return w
}

func (w *frameWriter) key(key string) {
	w.buf = append(w.buf, `,"`...)
	w.buf = append(w.buf, key...)
	w.buf = append(w.buf, `":`...)
}

func (w *frameWriter) str(key, value string) *frameWriter {
	w.key(key)
	w.buf = jsonenc.AppendString(w.buf, value)
	return w
}

// opt adds a string unless it is empty.
func (w *frameWriter) opt(key, value string) *frameWriter {
	if value != "" {
		w.str(key, value)
	}
	return w
}

func (w *frameWriter) raw(key string, value json.RawMessage) *frameWriter {
	w.key(key)
	w.buf = appendRaw(w.buf, value)
	return w
}

// rawOpt adds a value unless it is absent or null.
func (w *frameWriter) rawOpt(key string, value json.RawMessage) *frameWriter {
	if !isNull(value) {
		w.raw(key, value)
	}
	return w
}

// flag adds "key":true, or nothing.
func (w *frameWriter) flag(key string, set bool) *frameWriter {
	if set {
		w.key(key)
		w.buf = append(w.buf, "true"...)
	}
	return w
}

func (w *frameWriter) close() {
	w.buf = append(w.buf, "}\n\n"...)
	f := spool.Frame{Data: bytes.Clone(w.buf), Echo: w.echo && (w.kind == outcomeEvent || w.kind == decisionEvent)}
	w.frames = append(w.frames, f)
	if w.noted != nil {
		w.noted(w.kind, w.about, f)
	}
}

// ofCall adds the call that the event is about.
func (w *frameWriter) ofCall(callID string) *frameWriter {
	w.about = callID
	return w.str("toolCallId", callID)
}

// text writes s as one event, or as several if it is too long for one frame.
func (w *frameWriter) text(kind, idKey, id, textKey, s string) {
	for s != "" {
		n := jsonenc.Fit(s, maxText)
		w.open(kind).str(idKey, id).str(textKey, s[:n]).close()
		s = s[n:]
	}
}

// appendRaw appends a JSON value, null if it is absent, without line breaks and without
// what clients do not take.
func appendRaw(dst []byte, v json.RawMessage) []byte {
	if len(v) == 0 {
		return append(dst, "null"...)
	}
	v = withoutPrototypes(v)
	if bytes.IndexByte(v, '\n') < 0 && bytes.IndexByte(v, '\r') < 0 {
		return append(dst, v...)
	}
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return append(dst, "null"...)
	}
	return append(dst, b.Bytes()...)
}

func isNull(v json.RawMessage) bool {
	return len(v) == 0 || string(v) == "null"
}

// sameJSON reports whether two values are the same to a client that parses
// them.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if isNull(a) || isNull(b) {
		return isNull(a) && isNull(b)
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return equalValues(x, y)
}

// equalValues compares decoded JSON.
func equalValues(x, y any) bool {
	switch x := x.(type) {
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, ok := y[k]
			if !ok || !equalValues(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalValues(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return x == y
}

// providerMetadata returns metadata that clients accept: an object of objects.
func providerMetadata(v json.RawMessage) json.RawMessage {
	var m map[string]map[string]json.RawMessage
	if isNull(v) || json.Unmarshal(v, &m) != nil || m == nil {
		return nil
	}
	for _, inner := range m {
		if inner == nil {
			return nil
		}
	}
	return v
}

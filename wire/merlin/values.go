package merlin

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/uuid"
)

// values caches the stored values that scenes show. A scene is made for almost
// every record; values are large and hardly ever change. So each is read once, and
// every scene has the same string, which views compare without looking into it.
type values struct {
	o      *Options
	answer string               // session and turn
	args   map[string]arguments // by their calls
	output map[string]output
	urls   map[uint64]string // of files, by where they stand
	parsed map[string]parsed // progress, by its agent and id
}

func newValues(o *Options) values {
	return values{o, "", map[string]arguments{}, map[string]output{}, map[uint64]string{}, map[string]parsed{}}
}

// arguments are the arguments of a call. Their text stays as it first was as long as
// it means the same.
type arguments struct {
	input json.RawMessage // what they were read from
	typed string
	text  string
}

// arguments reads the arguments of a call that has them.
func (v *values) arguments(t *chunk.ToolPart) {
	was, known := v.args[t.CallID]
	if known && bytes.Equal(was.input, t.Input) && was.typed == t.InputText {
		return
	}
	raw, whole := v.o.value(t.Input)
	var text string
	switch {
	case len(raw) == 0:
		raw = []byte(t.InputText)
	case t.InputInvalid && json.Unmarshal(raw, &text) == nil:
		raw = []byte(text) // text that is not JSON, stored as a JSON string
	}
	now := arguments{typed: t.InputText, text: compact(raw)}
	if whole {
		now.input = t.Input
	}
	if known && sameJSON(was.text, now.text) {
		now.text = was.text
	}
	v.args[t.CallID] = now
}

// output is the result of a call.
type output struct {
	raw  json.RawMessage
	text string
}

func (v *values) result(t *chunk.ToolPart) string {
	if was, known := v.output[t.CallID]; known && bytes.Equal(was.raw, t.Output) {
		return was.text
	}
	raw, whole := v.o.value(t.Output)
	text := textOf(raw)
	if whole {
		v.output[t.CallID] = output{t.Output, text}
	}
	return text
}

// url returns the URL of a file.
func (v *values) url(part *chunk.Part) string {
	url, known := v.urls[part.First]
	switch {
	case known:
		return url
	case len(part.Large) == 0 || v.o.Resolve == nil:
		return part.URL
	}
	whole, err := part.Whole(v.o.Resolve)
	if err == nil {
		v.urls[part.First] = whole.URL
	}
	return whole.URL
}

// parsed is a progress part that was read.
type parsed struct {
	data   json.RawMessage
	first  uint64
	step   *step
	head   *heading
	parent string
}

// progress reads a progress part of an agent: a step with this id, or a heading.
func (v *values) progress(agent, id string, part *chunk.Part) (*step, *heading, string) {
	key := agent + "\x00" + part.ID
	if was, known := v.parsed[key]; known && was.first == part.First && bytes.Equal(was.data, part.Data) {
		return was.step, was.head, was.parent
	}
	raw, whole := v.o.value(part.Data)
	st, head, parent := parseProgress(raw, part.First, v.stepID(id))
	if whole {
		v.parsed[key] = parsed{part.Data, part.First, st, head, parent}
	}
	return st, head, parent
}

// stepID is the UUID that clients have for a step of the turn: the same on every node, and
// another one in every turn, since pages keep the steps of several.
func (v *values) stepID(id string) string { return uuid.Named("spool:" + v.answer + "/" + id) }

// compact removes the spaces from JSON, and leaves other text as it is.
func compact(raw []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// sameJSON reports whether two texts are the same JSON.
func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	canon := func(s string) (json.RawMessage, bool) {
		var v any
		dec := json.NewDecoder(strings.NewReader(s))
		dec.UseNumber()
		if dec.Decode(&v) != nil || dec.More() {
			return nil, false
		}
		return encode(v), true
	}
	x, ok := canon(a)
	y, also := canon(b)
	return ok && also && bytes.Equal(x, y)
}

// textOf returns a result as text: a string as itself, all else as JSON.
func textOf(v json.RawMessage) string {
	var s string
	if len(v) > 0 && v[0] == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	if len(v) == 0 {
		return "null"
	}
	return compact(v)
}

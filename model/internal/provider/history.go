package provider

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// Steps cuts an assistant message at its step boundaries, and where text follows
// tool calls, which one message cannot say.
func Steps(parts []chunk.Part) func(yield func([]chunk.Part) bool) {
	return func(yield func([]chunk.Part) bool) {
		from, called := 0, false
		for i := range parts {
			switch parts[i].Type {
			case chunk.PartTool:
				called = true
				continue
			case chunk.PartText, chunk.PartReasoning:
				if !called {
					continue
				}
			case chunk.PartStep:
			default:
				continue
			}
			if i > from && !yield(parts[from:i]) {
				return
			}
			from, called = i, false
		}
		if from < len(parts) {
			yield(parts[from:])
		}
	}
}

// Arguments returns a call's argument text, always a JSON object: endpoints parse
// it. What was not one is wrapped, so that the model sees what it wrote.
func Arguments(t *chunk.ToolPart) string {
	text := strings.TrimSpace(string(t.Input))
	if text == "" || text == "null" {
		text = strings.TrimSpace(t.InputText)
	}
	if text == "" {
		return "{}"
	}
	var b bytes.Buffer
	if text[0] == '{' && json.Compact(&b, []byte(text)) == nil {
		return b.String()
	}
	data, err := Marshal(map[string]string{"invalid_arguments": text})
	if err != nil {
		return "{}"
	}
	return string(data)
}

// Outcome tells the model what became of a call.
func Outcome(t *chunk.ToolPart) string {
	switch {
	case t.State == chunk.ToolFailed:
		return "Error: " + t.Error
	case t.State == chunk.ToolDenied && t.Approval != nil && t.Approval.Reason != "":
		return "The user denied this call: " + t.Approval.Reason
	case t.State == chunk.ToolDenied:
		return "The user denied this call."
	case len(t.Output) == 0 && t.State != chunk.ToolCompleted:
		return "This call has no result."
	}
	if s, ok := Str(t.Output); ok {
		return s
	}
	if len(t.Output) == 0 {
		return "null"
	}
	return string(t.Output)
}

// CallID returns an id that endpoints take: 40 letters, digits, - and _ at most.
func CallID(id string) string {
	plain := strings.IndexFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}) < 0
	if plain && id != "" && len(id) <= 40 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

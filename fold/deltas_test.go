package fold_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

func TestDeltas(t *testing.T) {
	base := chunk.Base{AgentID: "s", AgentType: "a", Timestamp: 5, Step: 2, RunID: "r"}
	later := base
	later.Timestamp = 9
	text := func(b chunk.Base, s string) *chunk.TextDelta { return &chunk.TextDelta{Base: b, Delta: s, PartID: "p"} }
	for name, tt := range map[string]struct{ first, second, want chunk.Chunk }{
		"text":      {text(base, "a"), text(later, "b"), text(base, "ab")},
		"thinking":  {&chunk.Thinking{Base: base, Content: "a"}, &chunk.Thinking{Base: later, Content: "b"}, &chunk.Thinking{Base: base, Content: "ab"}},
		"arguments": {&chunk.ToolArgStreamDelta{Base: base, ToolCallID: "c", Delta: "a"}, &chunk.ToolArgStreamDelta{Base: later, ToolCallID: "c", Delta: "b"}, &chunk.ToolArgStreamDelta{Base: base, ToolCallID: "c", Delta: "ab"}},
	} {
		d := fold.NewDeltas(tt.first)
		if got := d.Chunk(); !reflect.DeepEqual(got, tt.first) {
			t.Errorf("%s: one delta: %+v", name, got)
		}
		if !d.Add(tt.second) || !reflect.DeepEqual(d.Chunk(), tt.want) || d.Len() != 2 {
			t.Errorf("%s: two: %+v", name, d.Chunk())
		}
	}

	change := func(f func(*chunk.TextDelta)) chunk.Chunk {
		c := text(base, "b")
		f(c)
		return c
	}
	for name, c := range map[string]chunk.Chunk{
		"another part":         change(func(c *chunk.TextDelta) { c.PartID = "q" }),
		"another agent":        change(func(c *chunk.TextDelta) { c.AgentID = "s.1" }),
		"another agent type":   change(func(c *chunk.TextDelta) { c.AgentType = "b" }),
		"another run":          change(func(c *chunk.TextDelta) { c.RunID = "q" }),
		"another step":         change(func(c *chunk.TextDelta) { c.Step = 3 }),
		"another kind":         &chunk.Thinking{Base: base, Content: "b", PartID: "p"},
		"nothing":              text(base, ""),
		"too much":             text(base, strings.Repeat("x", 16<<10)),
		"half of a character":  text(base, "\xe2\x82"),
		"a record":             &chunk.StepCommitted{Base: base},
		"the end of reasoning": &chunk.Thinking{Base: base, IsComplete: true, PartID: "p"},
	} {
		d := fold.NewDeltas(text(base, "a"))
		if d.Add(c) || !reflect.DeepEqual(d.Chunk(), text(base, "a")) {
			t.Errorf("%s was added: %+v", name, d.Chunk())
		}
	}
	for name, c := range map[string]chunk.Chunk{
		"nothing": text(base, ""), "half of a character": text(base, "\xe2\x82"), "a long text": text(base, strings.Repeat("x", 16<<10+1)),
		"the end of reasoning":    &chunk.Thinking{Base: base, Content: "b", IsComplete: true},
		"reasoning with metadata": &chunk.Thinking{Base: base, Content: "b", ProviderMetadata: []byte(`{}`)},
		"a record":                &chunk.StepCommitted{Base: base},
	} {
		if fold.NewDeltas(c) != nil {
			t.Errorf("deltas begin with %s", name)
		}
	}
}

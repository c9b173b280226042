package fold

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
)

func nested(n int) json.RawMessage {
	return json.RawMessage(strings.Repeat(`{"a":`, n) + "{}" + strings.Repeat("}", n))
}

// Whatever is stored can be decoded, and every answer that holds it encoded:
// values are nested no deeper than MaxDepth, a state that patches build up too.
func TestDepthIsBounded(t *testing.T) {
	t.Parallel()
	add := func(path string, v json.RawMessage) *chunk.StatePatch {
		return &chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "add", Path: path, Value: v}}}
	}
	for _, c := range []chunk.Chunk{
		&chunk.Custom{EventName: "x", Data: nested(chunk.MaxDepth)},
		add("", nested(chunk.MaxDepth)),
		&chunk.ToolStart{ToolCallID: "c", ToolName: "t", Arguments: nested(9_990)},
		&chunk.Unknown{Type: "later", Raw: json.RawMessage(`{"type":"later","x":` + string(nested(chunk.MaxDepth)) + `}`)},
	} {
		if err := chunk.Validate(c); !errors.Is(err, chunk.ErrInvalidChunk) || !strings.Contains(err.Error(), "deeper") {
			t.Errorf("ValidateChunk of a deep %s: %v", c.ChunkType(), err)
		}
		if _, err := chunk.Append(nil, c); !errors.Is(err, chunk.ErrInvalidChunk) || !strings.Contains(err.Error(), "deeper") {
			t.Errorf("AppendChunk of a deep %s: %v", c.ChunkType(), err)
		}
	}
	f := New("s")
	for i, c := range []chunk.Chunk{add("", nested(200)), add(strings.Repeat("/a", 201), nested(200))} {
		data, err := chunk.Append(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Apply(chunk.Record{Seq: uint64(i) + 1, Type: chunk.TypeStatePatch, Agent: "s", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	if string(f.State) != string(nested(200)) {
		t.Errorf("a patch that nests the state too deep was applied: %d bytes", len(f.State))
	}
	// A model's arguments that are too deep are none, and stay the text they are.
	call := &chunk.ToolPart{InputText: string(nested(9_999))}
	setInput(call, nil)
	if call.Input != nil || call.InputText == "" {
		t.Error("arguments nested too deep were taken for JSON")
	}
}

package spool

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/blobref"
)

func TestLargeValuesGoBesideTheLog(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	big := json.RawMessage(`{"rows":"` + strings.Repeat("x", chunk.MaxInlineBytes) + `"}`)
	end := &chunk.ToolEnd{ToolCallID: "c", ToolName: "t", Success: true, Result: big}
	message := &chunk.AssistantMessage{Parts: []chunk.Part{{Type: chunk.PartText, Text: "a"}, {Type: chunk.PartTool, Tool: &chunk.ToolPart{CallID: "c", Name: "t", Input: big, Output: big}}}}
	if _, err := w.Commit(ctx, Row{}, nil, end, message); err != nil {
		t.Fatal(err)
	}
	if string(end.Result) != string(big) || string(message.Parts[1].Tool.Input) != string(big) {
		t.Error("the caller's chunks were changed")
	}
	recs := store.log("s")
	c, err := chunk.Decode(recs[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	stored := c.(*chunk.ToolEnd).Result
	if _, size, ok := blobref.Parse(stored); !ok || size != len(big) {
		t.Fatalf("stored as %s", stored)
	}
	if v, err := g.Blob(ctx, stored); err != nil || string(v) != string(big) {
		t.Errorf("resolved to %d bytes, %v", len(v), err)
	}
	c, err = chunk.Decode(recs[1].Data)
	if err != nil {
		t.Fatal(err)
	}
	tool := c.(*chunk.AssistantMessage).Parts[1].Tool
	if string(tool.Input) != string(stored) || string(tool.Output) != string(stored) {
		t.Errorf("parts hold %s", tool.Input)
	}
	// What the fold gives back is stored as it is.
	if _, err := w.Commit(ctx, Row{}, nil, c); err != nil {
		t.Fatal(err)
	}
	if again := store.log("s")[2]; string(again.Data) != string(recs[1].Data) {
		t.Errorf("stored again as %s", again.Data)
	}
	if _, err := g.Blob(ctx, json.RawMessage(`{"$blob":"sha256:`+strings.Repeat("0", 64)+`","size":1,"mediaType":"application/json"}`)); !errors.Is(err, ErrNotFound) {
		t.Errorf("a blob that is not there: %v", err)
	}
}

func TestForeignBlobKeysAreEscaped(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	for _, v := range []string{
		`{"$blob":"sha256:` + strings.Repeat("0", 64) + `","size":1,"mediaType":"application/json"}`,
		`{"a":{"$blob":1},"$blob":[2,"$blob"],"$$blob":3,"b":4}`,
		`{"$blobs":1}`, `["$blob"]`, `"$blob"`, `{"x":"$blob"}`, `null`,
	} {
		if _, err := g.Command(ctx, Row{}, &chunk.ToolResultSubmitted{CommandID: "c", ToolCallID: "t", Result: json.RawMessage(v)}); err != nil {
			t.Fatal(err)
		}
		recs := store.log("s")
		c, err := chunk.Decode(recs[len(recs)-1].Data)
		if err != nil {
			t.Fatal(err)
		}
		stored := c.(*chunk.ToolResultSubmitted).Result
		if _, _, ref := blobref.Parse(stored); ref {
			t.Errorf("%s is stored as a reference", v)
		}
		if got, err := g.Blob(ctx, stored); err != nil || string(got) != v {
			t.Errorf("%s is stored as %s and comes back as %s, %v", v, stored, got, err)
		}
	}
}

// storeOnly hides the roles of a store.
type storeOnly struct{ Store }

func TestNoBlobStore(t *testing.T) {
	store := newFakeStore()
	logs := NewLogs(storeOnly{store}, nil)
	defer logs.Close()
	w := mustLog(t, logs).Writer(store.claim("s"), WriterOptions{})
	err := w.Append(context.Background(), &chunk.Output{Output: json.RawMessage(`"` + strings.Repeat("x", chunk.MaxInlineBytes) + `"`)})
	if !errors.Is(err, chunk.ErrTooLarge) {
		t.Error(err)
	}
}

// TestToolBlobKeysAreEscaped: what a model or a tool says is never taken for a
// reference, neither in the records nor in what the fold makes of deltas.
func TestToolBlobKeysAreEscaped(t *testing.T) {
	ctx := context.Background()
	for _, v := range []string{
		`{"$blob":"sha256:` + strings.Repeat("0", 64) + `","size":1,"mediaType":"application/json"}`,
		`{"$$blob":1}`, `{"$blob":1}`,
	} {
		store, g := newTestLog(t, nil)
		raw := json.RawMessage(v)
		w := g.Writer(store.claim("s"), WriterOptions{RunID: "r"})
		commit := func(chunks ...chunk.Chunk) {
			t.Helper()
			if _, err := w.Commit(ctx, Row{}, nil, chunks...); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string) {
			t.Helper()
			err := g.View(ctx, func(f *fold.Fold) error {
				for _, p := range f.Messages[0].Parts {
					values := map[string]json.RawMessage{"data": p.Data}
					if p.Tool != nil {
						values = map[string]json.RawMessage{"input": p.Tool.Input, "output": p.Tool.Output}
					}
					for name, stored := range values {
						if stored == nil {
							continue
						}
						if got, err := g.Blob(ctx, stored); err != nil || string(got) != v {
							t.Errorf("%s, %s: %s comes back as %s, %v", when, name, v, got, err)
						}
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		commit(&chunk.RunStarted{TurnID: "t", MessageID: "m", Mode: "start"}, &chunk.StepStarted{StepID: "s1"},
			&chunk.ToolArgStreamStart{ToolCallID: "c", ToolName: "x"},
			&chunk.ToolArgStreamDelta{ToolCallID: "c", Delta: v},
			&chunk.ToolArgStreamEnd{ToolCallID: "c", ToolName: "x"},
			&chunk.Custom{EventName: "e", ID: "1", Data: raw},
			&chunk.Custom{EventName: "e", Data: raw},
			&chunk.Output{Output: raw})
		check("streamed")
		var words []chunk.Chunk
		if err := g.View(ctx, func(f *fold.Fold) error { words = f.Owed().CloseModelPhase("tool-calls", nil); return nil }); err != nil {
			t.Fatal(err)
		}
		commit(words...)
		check("closed")
		commit(&chunk.ToolStart{ToolCallID: "c", ToolName: "x", Arguments: raw}, &chunk.ToolEnd{ToolCallID: "c", ToolName: "x", Success: true, Result: raw},
			&chunk.ToolInputError{ToolCallID: "d", ToolName: "x", Input: raw, Error: "no"})
		check("done")
		var step []chunk.Chunk
		if err := g.View(ctx, func(f *fold.Fold) error { step = f.Owed().CloseStep("cp"); return nil }); err != nil {
			t.Fatal(err)
		}
		commit(step...)
		check("committed")
	}
}

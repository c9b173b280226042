package merlin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/merlin"
)

// What a step shows may be stored apart from the record.
func TestLargeProgress(t *testing.T) {
	t.Parallel()
	o := merlin.Options{Resolve: func(v json.RawMessage) (json.RawMessage, error) {
		if bytes.Contains(v, []byte("$blob")) {
			return json.RawMessage(`{"id":"p","label":"look","state":"done","data":{"icon":"GLOBE"}}`), nil
		}
		return v, nil
	}}
	p, _ := project(t, log(t,
		started(), &chunk.StepStarted{StepID: "s"},
		&chunk.StepCommitted{StepID: "s", Data: []chunk.Part{
			{Type: chunk.PartData, First: 9, Name: "progress", ID: "p", Data: json.RawMessage(`{"$blob":"sha256:x","size":1}`)}}},
	), &o)
	c := read(t, text(plan(t, p)))
	if len(c.Blocks) != 1 || len(c.Blocks[0].Steps) != 1 || c.Blocks[0].Steps[0].Name != "look" || c.Blocks[0].Steps[0].Icon != "GLOBE" {
		t.Errorf("the blocks are %+v", c.Blocks)
	}
}

// A result that is larger than a frame goes out in pieces that make it.
func TestLargeResult(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("<é\u2028\"", 40000)
	o := merlin.Options{Resolve: func(v json.RawMessage) (json.RawMessage, error) {
		if bytes.Contains(v, []byte("$blob")) {
			return mustJSON(t, large), nil
		}
		return v, nil
	}}
	_, frames := project(t, log(t,
		started(), &chunk.StepStarted{StepID: "s"},
		&chunk.ToolStart{ToolCallID: "c", ToolName: "get", Arguments: json.RawMessage(`{"a":1}`)},
		&chunk.ToolEnd{ToolCallID: "c", ToolName: "get", Result: json.RawMessage(`{"$blob":"sha256:x","size":1}`), Success: true},
	), &o)
	for _, f := range frames {
		if len(f.Data) > 256<<10 {
			t.Errorf("a frame of %d bytes", len(f.Data))
		}
	}
	if c := read(t, text(frames)); c.Blocks[0].Results[0].Text != large {
		t.Errorf("%d bytes arrived of %d", len(c.Blocks[0].Results[0].Text), len(large))
	}
}

// A stored value is read once, however long the answer goes on behind it; one that
// could not be read is read again.
func TestValuesAreReadOnce(t *testing.T) {
	t.Parallel()
	ref := func(name string) json.RawMessage { return json.RawMessage(`{"$blob":"sha256:` + name + `","size":1}`) }
	child := chunk.Base{AgentID: session + ".1", AgentType: "helper", RunID: "r"}
	chunks := []chunk.Chunk{
		started(), &chunk.StepStarted{StepID: "s"},
		&chunk.ToolStart{ToolCallID: "c", ToolName: "get", Arguments: ref("args")},
		&chunk.Progress{ID: "c/p", Label: "look"},
		&chunk.ToolEnd{ToolCallID: "c", ToolName: "get", Result: ref("result"), Success: true},
		&chunk.File{MediaType: "text/plain", Large: ref("file")},
		&chunk.ToolStart{ToolCallID: "d", ToolName: "ask", Arguments: json.RawMessage(`{}`)},
		&chunk.SubAgentStart{SubAgentType: "helper", SubSessionID: child.AgentID, CallID: "d"},
	}
	for i := range 200 {
		base := child
		chunks = append(chunks, &chunk.TextDelta{Base: base, Delta: "word "}, &chunk.Progress{Base: base, ID: "q", Label: fmt.Sprint(i)},
			&chunk.ToolArgStreamDelta{ToolCallID: "e", Delta: "x"})
	}
	records := log(t, chunks...)
	for _, version := range []merlin.Version{merlin.V1, merlin.V2} {
		reads, fails := map[string]int{}, 1
		p, frames := project(t, records, &merlin.Options{Version: version, Resolve: func(v json.RawMessage) (json.RawMessage, error) {
			for _, name := range []string{"args", "result", "file"} {
				if !bytes.Equal(v, ref(name)) {
					continue
				}
				if reads[name]++; fails > 0 && name == "result" {
					fails--
					return nil, errors.New("away for a moment")
				}
				return json.RawMessage(`"the ` + name + `"`), nil
			}
			reads["small values"]++
			return v, nil
		}})
		_ = plan(t, p)
		// The small ones: a call's arguments, its step, and 200 steps of a sub-agent.
		want := map[string]int{"args": 1, "result": 2, "file": 1, "small values": 202}
		if !maps.Equal(reads, want) {
			t.Errorf("V%d: values were read %v times, want %v", version, reads, want)
		}
		if c := read(t, text(frames)); len(c.Attachments) != 1 || c.Attachments[0].URL != "the file" ||
			version == merlin.V2 && c.Blocks[0].Results[0].Text != "the result" {
			t.Errorf("V%d: the client has %+v", version, c)
		}
	}
}

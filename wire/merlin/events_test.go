package merlin_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/uuid"
	"github.com/spool-run/spool/tool"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
)

// host keeps what a tool emits.
type host struct{ chunks []chunk.Chunk }

func (h *host) Emit(_ context.Context, c chunk.Chunk) error {
	h.chunks = append(h.chunks, c)
	return nil
}
func (h *host) State() json.RawMessage { return nil }
func (h *host) Update(context.Context, func(json.RawMessage) (json.RawMessage, error)) error {
	return errors.New("there is no state")
}

// stepID is the id that clients have for a step of the tests' turn.
func stepID(id string) string { return uuid.Named("spool:" + session + "/turn-1/" + id) }

// What a tool shows through an event manager belongs to its call, survives the
// trimming of trace, and shows on the AI SDK wire as data parts that update.
func TestEventsOfATool(t *testing.T) {
	t.Parallel()
	h := &host{}
	ctx := tool.NewContext(t.Context(), tool.Call{ID: "call-1", Name: "web_search"}, h)
	events, err := merlin.NewEventManager(ctx.EmitProgress, &merlin.EventOptions{Name: "Web search", Icon: merlin.IconGlobe})
	check(t, err)
	step, err := events.CreateEvent("Searching", merlin.IconGlobe)
	check(t, err)
	check(t, step.Send(merlin.Text("Found 10 results")))
	check(t, step.End())
	check(t, events.End())

	chunks := []chunk.Chunk{
		&chunk.UserMessage{CommandID: "turn-1", Message: chunk.Message{ID: "u", Role: chunk.RoleUser, Parts: []chunk.Part{}}},
		started(), &chunk.StepStarted{StepID: "s"},
		&chunk.AssistantMessage{MessageID: "m1", StepID: "s", FinishReason: "tool-calls", Parts: []chunk.Part{
			{Type: chunk.PartText, First: 3, Text: "Wait."},
			{Type: chunk.PartTool, First: 4, Tool: &chunk.ToolPart{CallID: "call-1", Name: "web_search", Input: json.RawMessage(`{"q":1}`)}},
		}},
		&chunk.ToolStart{ToolCallID: "call-1", ToolName: "web_search", Arguments: json.RawMessage(`{"q":1}`)},
	}
	chunks = append(chunks, h.chunks...)
	chunks = append(chunks, &chunk.ToolEnd{ToolCallID: "call-1", ToolName: "web_search", Result: json.RawMessage(`10`), Success: true})
	f := fold.New(session)
	for _, r := range log(t, chunks...) {
		check(t, f.Apply(r))
	}
	chunks = append(append(chunks, f.Owed().CloseStep("cp")...), finished())
	records := log(t, chunks...)
	var kept []chunk.Record
	for _, r := range records {
		if r.Class == chunk.Kept {
			kept = append(kept, r)
		}
	}

	index := 0
	want := merlin.Block{Index: 1,
		Calls:   []merlin.ToolCall{{Type: "function", Function: merlin.Function{Name: "web_search", Arguments: `{"q":1}`}, ID: "call-1"}},
		Results: []merlin.Result{{Index: 0, Text: "10"}},
		Heading: &merlin.Progress{Name: "Web search", Icon: "GLOBE"},
		Steps: []merlin.Step{{Index: &index, Tags: []string{}, ID: stepID("call-1/events/1"), Name: "Searching", Status: merlin.Done,
			Values: []merlin.Value{merlin.Text("Found 10 results")}, Icon: "GLOBE"}},
	}
	_, live := project(t, records, nil)
	reloaded, _ := project(t, kept, nil)
	for what, stream := range map[string]string{"live": text(live), "reloaded": text(plan(t, reloaded))} {
		c := read(t, stream)
		if len(c.Blocks) != 2 || !reflect.DeepEqual(c.Blocks[1], want) {
			t.Errorf("%s: the blocks are %s, want the second to be %s", what, mustJSON(t, c.Blocks), mustJSON(t, want))
		}
	}

	p := aisdk.NewProjector(wire.Subject{Turn: "turn-1"}, nil)
	var frames []spool.Frame
	for _, r := range records {
		frames, err = p.Apply(frames, r)
		check(t, err)
	}
	for part, times := range map[string]int{`"data-progress","id":"call-1/events"`: 2, `"data-progress","id":"call-1/events/1"`: 3} {
		if got := strings.Count(text(frames), part+","); got != times {
			t.Errorf("the AI SDK wire has %s %d times, want %d:\n%s", part, got, times, text(frames))
		}
	}
}

package merlin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/spool-run/spool/wire/merlin"
)

// An orchestrator's loop over its state: what a request's context gives, and where the
// model's streams go by numbers.
func TestOrchestratorState(t *testing.T) {
	t.Parallel()
	s, w := newStreamer(version(merlin.V2))
	ctx := merlin.NewContext(t.Context(), s)
	if merlin.FromContext(t.Context()) != nil || merlin.FromContext(ctx) != s {
		t.Error("the context carries another streamer")
	}
	calls := delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"scout","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"clerk","arguments":"{}"}}]}`) + stops
	say(t, s, delta(`{"content":"I ask."}`)+calls, merlin.State{}.Config())
	for i, id := range []string{"a", "b"} {
		content, result, err := s.CallIndex(id)
		if check(t, err); content != 1 || result != i {
			t.Errorf("call %s is number %d at %d", id, result, content)
		}
		said := say(t, s, delta(fmt.Sprintf(`{"content":"by %s"}`, id))+stops,
			merlin.State{ContentIndex: content, ToolResultIndex: result, SubAgent: true, Show: id == "a"}.Config())
		if len(said.Content) != 1 {
			t.Errorf("%s said %+v", id, said)
		}
	}
	check(t, s.Result("b", "clerk", json.RawMessage(`"done"`), ""))
	for _, st := range []merlin.State{{ContentIndex: 1, ToolResultIndex: 2, SubAgent: true}, {ContentIndex: 0, SubAgent: true}, {ContentIndex: 1, ToolResultIndex: -1, SubAgent: true}} {
		if _, err := s.Stream(ctx, chunksOf(stops), st.Config()); !errors.Is(err, merlin.ErrUnknownCall) {
			t.Errorf("%+v: %v", st, err)
		}
	}
	if _, _, err := s.CallIndex("c"); !errors.Is(err, merlin.ErrUnknownCall) {
		t.Errorf("an unknown call: %v", err)
	}

	// Indexes can be raised, and follow an event manager's.
	for _, x := range [][2]int{{0, 2}, {5, 5}, {3, 5}} {
		if next, err := s.SetContentIndex(x[0]); err != nil || next != x[1] || s.ContentIndex() != x[1] {
			t.Errorf("set to %d, the index is %d, %v", x[0], next, err)
		}
	}
	at := 7
	events, err := s.NewEventManager(&merlin.EventOptions{Index: &at, Name: "Looking"})
	check(t, err)
	check(t, s.AddDocuments(merlin.Attachment{URL: "https://a.example", Title: "A"}))
	say(t, s, delta(`{"content":"Seen"}`)+delta(`{"citation":{"document_index":0,"cited_text":"q"}}`)+stops, merlin.StreamConfig{Events: events})
	if got := string(mustJSON(t, merlin.FromContext(ctx).Attachments())); got != `[{"url":"https://a.example","title":"A","cited_text":["q"]}]` {
		t.Errorf("the attachments are %s", got)
	}
	check(t, s.End(nil))
	var got []string
	for _, b := range read(t, w.Body.String()).Blocks {
		x := fmt.Sprint(b.Index, b.Text)
		for _, r := range b.Results {
			x += fmt.Sprint(" ", r.Index, r.Text)
		}
		if b.Heading != nil {
			x += " " + b.Heading.Name
		}
		got = append(got, x)
	}
	if want := `["0I ask." "1 0by a 1done" "7Seen Looking"]`; fmt.Sprintf("%q", got) != want {
		t.Errorf("the blocks are %q, want %s after\n%s", got, want, w.Body)
	}
	if merlin.InitialContentIndex(merlin.V1, 3, 5) != 0 || merlin.InitialContentIndex(merlin.V2, 3, 5) != 5 || merlin.InitialContentIndex(0, 6, 5) != 6 {
		t.Error("the initial index is wrong")
	}
}

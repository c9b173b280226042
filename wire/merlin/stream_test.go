package merlin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/merlin"
)

func newStreamer(o merlin.StreamerOptions) (*merlin.Streamer, *httptest.ResponseRecorder) {
	w := httptest.NewRecorder()
	return merlin.NewStreamer(w, &o), w
}

func version(v merlin.Version) merlin.StreamerOptions {
	return merlin.StreamerOptions{Options: merlin.Options{Version: v}, Pacing: []merlin.Pace{}}
}

func ask(id string) string {
	return delta(`{"tool_calls":[{"index":0,"id":"`+id+`","type":"function","function":{"name":"scout","arguments":"{\"q\":1}"}}]}`) + stops
}

func say(t *testing.T, s *merlin.Streamer, stream string, c merlin.StreamConfig) merlin.StreamedChunks {
	t.Helper()
	said, err := s.Stream(t.Context(), chunksOf(stream), c)
	check(t, err)
	return said
}

// A sub-agent that calls its model again, after tools of its own, adds to its result.
func TestStreamerContinuesASubAgent(t *testing.T) {
	t.Parallel()
	s, w := newStreamer(version(merlin.V2))
	say(t, s, ask("a"), merlin.StreamConfig{})
	sub := merlin.StreamConfig{AsResultOf: "a"}
	first := say(t, s, delta(`{"content":"One. "}`)+ask("inner"), sub)
	check(t, s.Result("inner", "scout", json.RawMessage(`1`), ""))
	second := say(t, s, delta(`{"content":"Two."}`)+stops, sub)
	if len(first.ToolCalls) != 1 || strings.Join(second.Content, "") != "Two." {
		t.Errorf("the calls gave %+v and %+v", first, second)
	}
	if c := read(t, w.Body.String()); len(c.Blocks) != 1 || len(c.Blocks[0].Results) != 1 || c.Blocks[0].Results[0].Text != "One. Two." {
		t.Errorf("the client has %+v after\n%s", c.Blocks, w.Body)
	}
	if strings.Contains(w.Body.String(), `"result"`) || strings.Contains(w.Body.String(), "retracted") {
		t.Errorf("the result was sent again or taken back:\n%s", w.Body)
	}
	if err := s.Result("other", "scout", nil, ""); !errors.Is(err, merlin.ErrUnknownCall) {
		t.Errorf("the result of an unknown call: %v", err)
	}
	if _, err := s.Stream(t.Context(), chunksOf(stops), merlin.StreamConfig{AsResultOf: "other"}); !errors.Is(err, merlin.ErrUnknownCall) {
		t.Errorf("a sub-agent of an unknown call: %v", err)
	}
}

// Own streams at the same time each have their blocks (V2), or are written one after
// the other (V1), although the provider names their texts alike.
func TestStreamerOwnStreamsAtTheSameTime(t *testing.T) {
	t.Parallel()
	for v, want := range map[merlin.Version]string{merlin.V1: "a1 a2 b1 b2 c", merlin.V2: "a1 a2 |b1 b2 |c|"} {
		s, w := newStreamer(version(v))
		next1, stop1 := iter.Pull2(chunksOf(delta(`{"content":"a1 "}`) + delta(`{"content":"a2 "}`) + ask("x")))
		defer stop1()
		var said merlin.StreamedChunks
		step := 0
		_, err := s.Stream(t.Context(), func(yield func(chunk.Chunk, error) bool) {
			for c, err, ok := next1(); ok; c, err, ok = next1() {
				if !yield(c, err) {
					return
				}
				if step++; step == 1 { // the second stream comes and goes in the middle of the first
					said = say(t, s, delta(`{"content":"b1 "}`)+delta(`{"content":"b2 "}`)+ask("y"), merlin.StreamConfig{})
				}
			}
		}, merlin.StreamConfig{})
		check(t, err)
		for _, id := range []string{"x", "y"} {
			say(t, s, delta(`{"content":"r`+id+`"}`)+stops, merlin.StreamConfig{AsResultOf: id})
			check(t, s.Result(id, "scout", json.RawMessage(`"`+strings.ToUpper(id)+`"`), ""))
		}
		say(t, s, delta(`{"content":"c"}`)+stops, merlin.StreamConfig{})
		check(t, s.End(nil))
		c := read(t, w.Body.String())
		got, results := c.Content, ""
		for _, b := range c.Blocks {
			if b.Text != "" {
				got += b.Text + "|"
			}
			for i, r := range b.Results {
				results += fmt.Sprint(b.Calls[i].ID, r.Text)
			}
		}
		if got != want || !c.Ended || strings.Contains(w.Body.String(), "retracted") || strings.Join(said.Content, "") != "b1 b2 " {
			t.Errorf("V%d: the client has %q, the second caller %+v, after\n%s", v, got, said, w.Body)
		}
		if v == merlin.V2 && results != "yYxX" && results != "xXyY" {
			t.Errorf("the results are %s", results)
		}
	}
}

// A quotation counts the documents that the model was given, and those that came
// before it. What the caller gets is what was sent.
func TestStreamerDocuments(t *testing.T) {
	t.Parallel()
	quote := func(block, doc int, text string) string {
		return delta(fmt.Sprintf(`{"index":%d,"citation":{"document_index":%d,"cited_text":%q}}`, block, doc, text))
	}
	link := delta(`{"annotations":[{"type":"url_citation","url_citation":{"url":"https://c.example","title":"C"}}]}`)
	answer := delta(`{"index":0,"content":"Old"}`) + quote(0, 1, "very old") + delta(`{"index":1,"content":", hot"}`) + quote(1, 1, "very hot") +
		delta(`{"index":2,"content":", old"}`) + quote(2, 1, "very old") + link + quote(2, 2, "sea") + stops
	for v, want := range map[merlin.Version]string{
		merlin.V1: "Old[citation: 2: 1], hot[citation: 2: 2], old[citation: 2: 1][citation: 3: 1]",
		merlin.V2: "Old, hot, old",
	} {
		o := version(v)
		o.Documents = []merlin.Attachment{{URL: "https://a.example", Title: "A"}, {URL: "https://b.example", Title: "B"}}
		s, w := newStreamer(o)
		said := say(t, s, answer, merlin.StreamConfig{})
		if got := strings.Join(said.Content, ""); got != want {
			t.Errorf("V%d: the caller has %q, want %q", v, got, want)
		}
		again := say(t, s, delta(`{"index":0,"content":" More"}`)+quote(0, 0, "a")+delta(`{"index":1,"content":"."}`)+stops, merlin.StreamConfig{})
		if len(again.Citations) != 1 || again.Citations[0].DocumentIndex != 0 {
			t.Errorf("V%d: the citations are %+v", v, again.Citations)
		}
		mark, err := s.SendCitation(&merlin.Citation{DocumentIndex: 0, CitedText: "b"})
		check(t, err)
		if mark != "[citation: 1: 2]" {
			t.Errorf("V%d: the marker is %q", v, mark)
		}
		if mark, err := s.SendCitation(nil); mark != "" || err != nil {
			t.Errorf("no citation: %q, %v", mark, err)
		}
		if _, err := s.SendCitation(&merlin.Citation{DocumentIndex: 9}); !errors.Is(err, merlin.ErrNoDocument) {
			t.Errorf("an unknown document: %v", err)
		}
		more := say(t, s, delta(`{"content":" End"}`)+stops, merlin.StreamConfig{})
		check(t, s.End(nil))
		c := read(t, w.Body.String())
		sent := strings.Join(said.Content, "") + strings.Join(again.Content, "")
		if v == merlin.V1 {
			sent += mark
		}
		sent += strings.Join(more.Content, "")
		if c.Text() != sent {
			t.Errorf("V%d: the client has %q, the caller %q", v, c.Text(), sent)
		}
		if got := string(mustJSON(t, c.Attachments)); got != `[{"url":"https://a.example","title":"A","cited_text":["a","b"]},`+
			`{"url":"https://b.example","title":"B","cited_text":["very old","very hot"]},{"url":"https://c.example","title":"C","cited_text":["sea"]}]` {
			t.Errorf("V%d: the attachments are %s", v, got)
		}
	}
}

// A piece of a call that never began is logged and left out. Reasoning that comes as
// an object keeps its id and its signature.
func TestStreamerBrokenCallsAndSignedReasoning(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	s, w := newStreamer(merlin.StreamerOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	said := say(t, s, delta(`{"reasoning":{"text":"hm","index":0,"id":"r1"}}`)+delta(`{"reasoning":{"text":"","index":0,"signature":"sig"}}`)+
		delta(`{"content":"Hi."}`)+delta(`{"tool_calls":[{"index":3,"function":{"arguments":"{\"a\":"}}]}`)+
		delta(`{"tool_calls":[{"index":3,"function":{"arguments":"1}"}}]}`)+stops, merlin.StreamConfig{})
	if _, err := s.Stream(t.Context(), chunksOf(delta(`{"content":"cut"}`)), merlin.StreamConfig{}); err == nil || strings.Count(logged.String(), "ERROR/STREAMER") != 2 {
		t.Errorf("a stream that breaks: %v; the log is %s", err, &logged)
	}
	blocks := say(t, s, delta(`{"reasoning":{"text":"a","index":4,"signature":"A"}}`)+delta(`{"reasoning":{"text":"b","index":5,"signature":"B"}}`)+
		delta(`{"content":"."}`)+stops, merlin.StreamConfig{}).ReasoningContent
	if len(blocks) != 2 || blocks[0].Index != 4 || blocks[0].Signature != "A" || blocks[1].Index != 5 || blocks[1].Text != "b" || blocks[1].Signature != "B" {
		t.Errorf("the blocks of reasoning are %+v", blocks)
	}
	check(t, s.End(nil))
	if said.ToolCalls != nil || strings.Contains(w.Body.String(), "toolCalls") || strings.Count(logged.String(), "did not begin") != 1 {
		t.Errorf("the caller has %+v; the log is %s; sent\n%s", said, &logged, w.Body)
	}
	if len(said.ReasoningContent) != 1 || said.ReasoningContent[0] != (merlin.ReasoningChunk{Text: "hm", ID: "r1", Signature: "sig"}) {
		t.Errorf("the reasoning is %+v", said.ReasoningContent)
	}
}

// Other origins are allowed by option only.
func TestStreamerAnyOrigin(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		s, w := newStreamer(merlin.StreamerOptions{AnyOrigin: on})
		check(t, s.End(nil))
		want := map[bool]string{true: "*"}[on]
		for _, h := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Headers"} {
			if got := w.Header().Get(h); got != want {
				t.Errorf("with AnyOrigin %v, %s is %q", on, h, got)
			}
		}
	}
}

// Managers of one streamer keep their steps apart. The steps of a manager without a
// name share one block, or are in that of its call.
func TestStreamerEventManagers(t *testing.T) {
	t.Parallel()
	for _, v := range []merlin.Version{merlin.V1, merlin.V2} {
		s, w := newStreamer(version(v))
		say(t, s, ask("a"), merlin.StreamConfig{})
		for i, o := range []*merlin.EventOptions{nil, nil, {Call: "a"}, {ID: "x", Name: "X"}, {ID: "x", Name: "Y"}} {
			if at := s.ContentIndex(); v == merlin.V2 && at != []int{1, 2, 3, 3, 4}[i] {
				t.Errorf("before manager %d, the next content index is %d", i, at)
			}
			events, err := s.NewEventManager(o)
			check(t, err)
			for n := range 2 {
				step, err := events.CreateEvent(fmt.Sprintf("%d.%d", i, n), "")
				check(t, err)
				check(t, step.End())
			}
		}
		if _, err := s.NewEventManager(&merlin.EventOptions{Call: "other"}); !errors.Is(err, merlin.ErrUnknownCall) {
			t.Errorf("a manager of an unknown call: %v", err)
		}
		check(t, s.End(nil))
		c := read(t, w.Body.String())
		if v == merlin.V1 {
			if len(c.Steps) != 10 || c.Steps[0].Name != "0.0" || c.Steps[9].Name != "4.1" {
				t.Errorf("V1: the steps are %+v", c.Steps)
			}
			continue
		}
		var got []string
		for _, b := range c.Blocks {
			names := fmt.Sprint(b.Index)
			for _, step := range b.Steps {
				names += " " + step.Name
			}
			got = append(got, names)
		}
		if want := "0 2.0 2.1|1 0.0 0.1|2 1.0 1.1|3 3.0 3.1|4 4.0 4.1"; strings.Join(got, "|") != want {
			t.Errorf("V2: the blocks are %s, want %s", strings.Join(got, "|"), want)
		}
	}

	s, w := newStreamer(version(merlin.V1))
	_, err := s.NewEventManager(nil)
	check(t, err)
	if !strings.Contains(w.Body.String(), `"metadata":{"type":"HEADING"}`) {
		t.Errorf("no heading at construction:\n%s", w.Body)
	}
}

// A manager can be placed at a content index, which others may have too, and have frames
// of its own version. Steps have UUIDs, an index among their manager's, and a content index.
func TestStreamerPlacedManagers(t *testing.T) {
	t.Parallel()
	at := func(i int) *int { return &i }
	o := version(merlin.V2)
	o.ID = "answer-1"
	s, w := newStreamer(o)
	placed, err := s.NewEventManager(&merlin.EventOptions{Index: at(1), Name: "Plan"})
	check(t, err)
	first, err := placed.CreateEvent("first", "")
	check(t, err)
	say(t, s, delta(`{"content":"zero"}`)+stops, merlin.StreamConfig{})
	say(t, s, delta(`{"content":"one"}`)+stops, merlin.StreamConfig{})
	second, err := placed.CreateEvent("second", "")
	check(t, err)
	check(t, first.End())
	old, err := s.NewEventManager(&merlin.EventOptions{Version: merlin.V1, Name: "Old"})
	check(t, err)
	event, err := old.CreateEvent("flat", "")
	check(t, err)
	own, err := s.NewEventManager(nil)
	check(t, err)
	step, err := own.CreateEvent("own", "")
	check(t, err)
	say(t, s, delta(`{"content":"three"}`)+stops, merlin.StreamConfig{})
	check(t, s.End(nil))
	for i, e := range []*merlin.ProgressEvent{first, second, event, step} {
		index, known := e.ToolIndex()
		if want := []int{1, 1, 4, 2}[i]; !known || index != want || *e.Step().Index != []int{0, 1, 0, 0}[i] || e.Version() != []merlin.Version{2, 2, 1, 2}[i] {
			t.Errorf("step %d: %d, %v, index %d, version %d", i, index, known, *e.Step().Index, e.Version())
		}
		if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(e.Step().ID) || !strings.Contains(w.Body.String(), e.Step().ID) {
			t.Errorf("step %d has the id %s", i, e.Step().ID)
		}
	}
	c := read(t, w.Body.String())
	var got []string
	for _, b := range c.Blocks {
		got = append(got, fmt.Sprint(b.Index, b.Text))
		for _, x := range b.Steps {
			got = append(got, fmt.Sprint("  ", *x.Index, x.Name, x.Status))
		}
	}
	if want := []string{"0zero", "1one", "  0firstDONE", "  1secondIN_PROGRESS", "2", "  0ownIN_PROGRESS", "3three"}; !slices.Equal(got, want) {
		t.Errorf("the blocks are %q, want %q after\n%s", got, want, w.Body)
	}
	if len(c.Steps) != 1 || c.Steps[0].Name != "flat" || c.Heading == nil || c.Heading.Name != "Old" || c.Blocks[1].Heading.Name != "Plan" {
		t.Errorf("V1's steps are %+v under %+v", c.Steps, c.Heading)
	}
	if name, _ := placed.Heading(); name != "Plan" || len(placed.Events()) != 2 {
		t.Errorf("%s: %v", name, placed.Events())
	}

	s, w = newStreamer(version(merlin.V1))
	other, err := s.NewEventManager(&merlin.EventOptions{Version: merlin.V2})
	check(t, err)
	x, err := other.CreateEvent("x", "")
	check(t, err)
	if x.Step().ID == first.Step().ID || !strings.Contains(w.Body.String(), `"index":0,"type":"progress","progress":{"steps":{"index":0,`) || strings.Contains(w.Body.String(), "event: progress") {
		t.Errorf("V2 in a V1 answer: %s", w.Body)
	}
	for _, o := range []merlin.EventOptions{{Index: at(-1)}, {Version: 3}} {
		if _, err := s.NewEventManager(&o); !errors.Is(err, merlin.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A stream begins at the content index that it is given, but never at one that is taken.
func TestStreamerContentIndex(t *testing.T) {
	t.Parallel()
	s, w := newStreamer(merlin.StreamerOptions{Options: merlin.Options{FirstIndex: 2}})
	for i, want := range []struct{ given, next int }{{0, 3}, {7, 8}, {1, 9}} {
		said := say(t, s, delta(fmt.Sprintf(`{"content":"%d"}`, i))+stops, merlin.StreamConfig{ContentIndex: want.given})
		if got := s.ContentIndex(); got != want.next || len(said.Content) != 1 {
			t.Errorf("after stream %d the next index is %d, want %d", i, got, want.next)
		}
	}
	said := say(t, s, delta(`{"reasoning":"hm"}`)+stops, merlin.StreamConfig{ContentIndex: 20})
	if said.ReasoningContent[0].Index != 20 {
		t.Errorf("the caller's reasoning has the index %d", said.ReasoningContent[0].Index)
	}
	check(t, s.End(errors.New("no power")))
	if got := string(mustJSON(t, read(t, w.Body.String()).Blocks)); got != `[{"index":2,"text":"0"},{"index":7,"text":"1"},{"index":8,"text":"2"},{"index":20,"reasoning":"hm"}]` {
		t.Errorf("the blocks are %s", got)
	}
	if !strings.Contains(w.Body.String(), `"index":20,"type":"error"`) {
		t.Errorf("the error is elsewhere:\n%s", w.Body)
	}
}

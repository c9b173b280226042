package merlin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/merlin"
)

// Each case is one mend and its literal behaviour: what a projector sends for
// the chunks of a run, from their records' frames on.
func TestLiteral(t *testing.T) {
	t.Parallel()
	child := chunk.Base{AgentID: session + ".1", AgentType: "helper", RunID: "r"}
	thinking := []chunk.Chunk{
		&chunk.ToolStart{ToolCallID: "c", ToolName: "ask", Arguments: json.RawMessage(`{"a":1}`)},
		&chunk.SubAgentStart{SubAgentType: "helper", SubSessionID: session + ".1", CallID: "c"},
		&chunk.Thinking{Base: child, Content: "hm"}, &chunk.TextDelta{Base: child, Delta: "secret"},
	}
	quoting := []chunk.Chunk{
		&chunk.TextDelta{Delta: "x"},
		&chunk.Citation{SourceID: "a", URL: "u", Title: "T", CitedText: "one"},
		&chunk.Citation{SourceID: "a", URL: "u", Title: "T", CitedText: "two"},
	}
	calls := []chunk.Chunk{
		&chunk.ToolArgStreamStart{ToolCallID: "a", ToolName: "one"}, &chunk.ToolArgStreamEnd{ToolCallID: "a", Arguments: json.RawMessage(`{"n":1}`)},
		&chunk.ToolArgStreamStart{ToolCallID: "b", ToolName: "two"}, &chunk.ToolArgStreamEnd{ToolCallID: "b", Arguments: json.RawMessage(`{"n":2}`)},
	}
	bare := []chunk.Chunk{&chunk.ToolArgStreamStart{ToolCallID: "a", ToolName: "now"}, &chunk.ToolArgStreamEnd{ToolCallID: "a"}}
	nameless := []chunk.Chunk{&chunk.ToolArgStreamStart{ToolCallID: "a"}, &chunk.ToolArgStreamEnd{ToolCallID: "a"}}
	steps := []chunk.Chunk{
		&chunk.Progress{ID: "p", Label: "look", State: "running"}, &chunk.Progress{ID: "p", Label: "look", State: "done"},
		&chunk.Progress{ID: "p", Label: "look", State: "running"},
	}
	headed := []chunk.Chunk{
		&chunk.Progress{ID: "p", Label: "look"}, &chunk.Progress{ID: "h", Label: "Work", Data: json.RawMessage(`{"type":"HEADING"}`)},
		&chunk.Progress{ID: "h", Label: "More work", Data: json.RawMessage(`{"type":"HEADING","icon":"GLOBE"}`)},
	}
	failing := []chunk.Chunk{&chunk.RunFinished{Outcome: chunk.OutcomeFailed, Error: "no power", Code: "power"}}
	suppress := func(string) bool { return true }
	v1 := merlin.Options{Version: merlin.V1}
	for _, tt := range []struct {
		name    string
		chunks  []chunk.Chunk
		o       merlin.Options
		literal merlin.Literal
		mended  []string // what the data of the frames must hold, and no frame else
		want    []string // the same of the literal behaviour
	}{
		{"end", nil, merlin.Options{}, merlin.Literal{End: true}, []string{"event: end\ndata: {}\n"}, []string{`event: message` + "\n" + `data: {"type":"DONE"}`}},
		{"suppression", thinking, merlin.Options{Suppress: suppress}, merlin.Literal{Suppression: true},
			[]string{`"toolCalls"`, "end"}, []string{`"toolCalls"`, `"index":0,"type":"reasoning","reasoning":"hm"`, "end"}},
		{"sub-agent", thinking, merlin.Options{}, merlin.Literal{},
			[]string{`"toolCalls"`, `"reasoning":"hm"`, `"toolCallResult":{"index":0,"delta":"secret"}`, "end"},
			[]string{`"toolCalls"`, `"reasoning":"hm"`, `"toolCallResult":{"index":0,"delta":"secret"}`, "end"}},
		{"parallel calls", calls, merlin.Options{}, merlin.Literal{FirstCall: true},
			[]string{`"name":"one"`, `"name":"two"`, "end"}, []string{`"name":"one"`, "end"}},
		{"empty arguments", bare, merlin.Options{}, merlin.Literal{EmptyArguments: true},
			[]string{`"function":{"name":"now","arguments":"{}"}`, "end"}, []string{"end"}},
		{"nameless", nameless, merlin.Options{}, merlin.Literal{}, []string{"end"}, []string{"end"}},
		{"citations of V1", quoting, v1, merlin.Literal{Citations: true},
			[]string{"INIT", `"x"`, `"cited_text":["one","two"]`, "[citation: 1: 1]", "[citation: 1: 2]", "end"}, []string{"INIT", `"x"`, "end"}},
		{"citations of V1 before a later text", append(quoting[:3:3], &chunk.TextDelta{Delta: "y", PartID: "1"}), v1, merlin.Literal{Citations: true},
			[]string{"INIT", `"x"`, `"cited_text"`, "[citation: 1: 1]", "[citation: 1: 2]", `"y"`, "end"},
			[]string{"INIT", `"x"`, `"cited_text"`, "[citation: 1: 2]", `"y"`, "end"}},
		{"citations of V2", quoting, merlin.Options{}, merlin.Literal{Citations: true},
			[]string{`"x"`, `"attachments"`, `"document_index":0,"cited_text":"one"`, `"attachments"`, `"cited_text":"two"}`, "end"},
			[]string{`"x"`, `"attachments"`, `"attachments"`, "end"}},
		{"union", append([]chunk.Chunk{&chunk.TextDelta{Delta: "x"}}, calls[:2]...), merlin.Options{}, merlin.Literal{Union: true},
			[]string{`{"content":"","index":0,"type":"text","text":"x"}`, `"index":1,"type":"toolCalls"`, "end"},
			[]string{`{"content":"x","index":0,"type":"text"}`, `{"contentIndex":1,"type":"toolCalls"`, "end"}},
		{"progress", steps, merlin.Options{}, merlin.Literal{Progress: true},
			[]string{`"steps":{"index":0,`, `"steps":{"index":0,"tags":[],"id":"` + stepID("p") + `","name":"look","status":"DONE"`, `"steps":{"index":0,"tags":[],"id":"` + stepID("p") + `","name":"look","status":"IN_PROGRESS"`, "end"},
			[]string{`"steps":{"index":0,`, `"steps":{"tags":[],"id":"` + stepID("p") + `","name":"look","status":"DONE"`, `event: progress` + "\n" + `data: {"payload":{"id":"` + stepID("p") + `","name":"look","status":"IN_PROGRESS"`, "end"}},
		{"headings of V1", headed, v1, merlin.Literal{Progress: true},
			[]string{"INIT", `{"payload":{},"metadata":{"type":"HEADING"}}`, `{"payload":{"id":"` + stepID("p") + `"`, `{"payload":{"name":"Work"},"metadata"`, `{"payload":{"name":"More work","icon":"GLOBE"},"metadata"`, "end"},
			[]string{"INIT", `{"payload":{},"metadata":{"type":"HEADING"}}`, `{"payload":{"id":"` + stepID("p") + `"`,
				`{"content":"","index":0,"type":"progress","progress":{"name":"Work"}}`, `{"content":"","index":0,"type":"progress","progress":{"name":"More work","icon":"GLOBE"}}`, "end"}},
		{"failure", failing, merlin.Options{}, merlin.Literal{Errors: true},
			[]string{`"type":"error","error":{"message":"no power","code":"power"}`, "end"}, []string{"end"}},
		{"failure of V1", failing, v1, merlin.Literal{Errors: true},
			[]string{"INIT", `{"content":"","error":{"message":"no power","code":"power"}}`, "end"}, []string{"INIT", "end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			chunks := append([]chunk.Chunk{started(), &chunk.StepStarted{StepID: "s"}}, clone(t, tt.chunks)...)
			if last := chunks[len(chunks)-1]; last.ChunkType() != chunk.TypeRunFinished {
				chunks = append(chunks, finished())
			}
			records := log(t, chunks...)
			expect(t, "mended", records, tt.o, tt.mended)
			o := tt.o
			o.Literal = tt.literal
			expect(t, "literal", records, o, tt.want)
		})
	}
}

// Every name of a flag is one member of its own, and all is every one.
func TestParseLiteral(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]merlin.Literal{
		"end": {End: true}, "suppression": {Suppression: true}, "first-call": {FirstCall: true}, "empty-arguments": {EmptyArguments: true},
		"citations": {Citations: true}, "union": {Union: true}, "progress": {Progress: true}, "errors": {Errors: true}, "all": literal,
	} {
		if l, err := merlin.ParseLiteral([]string{name}); err != nil || l != want {
			t.Errorf("%s is %+v, %v", name, l, err)
		}
	}
	if l, err := merlin.ParseLiteral([]string{"union", "end"}); err != nil || l != (merlin.Literal{Union: true, End: true}) {
		t.Errorf("two are %+v, %v", l, err)
	}
	if l, err := merlin.ParseLiteral([]string{"end", "nonsense"}); err == nil || l != (merlin.Literal{}) ||
		err.Error() != "nonsense: want end, suppression, first-call, empty-arguments, citations, union, progress, errors or all" {
		t.Errorf("nonsense is %+v, %v", l, err)
	}
}

func clone(t *testing.T, chunks []chunk.Chunk) []chunk.Chunk {
	t.Helper()
	var list []chunk.Chunk
	for _, c := range chunks {
		data, err := chunk.Append(nil, c)
		check(t, err)
		c, err := chunk.Decode(data)
		check(t, err)
		list = append(list, c)
	}
	return list
}

func expect(t *testing.T, what string, records []chunk.Record, o merlin.Options, want []string) {
	t.Helper()
	_, frames := project(t, records, &o)
	if len(frames) != len(want) {
		t.Fatalf("%s: %d frames, want %d:\n%s", what, len(frames), len(want), text(frames))
	}
	for i, f := range frames {
		if !strings.Contains(string(f.Data), want[i]) {
			t.Errorf("%s: frame %d is %s, want %s in it", what, i+1, f.Data, want[i])
		}
	}
}

// A sub-agent's model phase that is discarded is taken back without a cut: the
// result so far is sent again.
func TestSubAgentDiscards(t *testing.T) {
	t.Parallel()
	child := chunk.Base{AgentID: session + ".1", AgentType: "helper", RunID: "r"}
	_, frames := project(t, log(t,
		started(), &chunk.StepStarted{StepID: "s"},
		&chunk.ToolStart{ToolCallID: "c", ToolName: "ask", Arguments: json.RawMessage(`{}`)},
		&chunk.SubAgentStart{SubAgentType: "helper", SubSessionID: session + ".1", CallID: "c"},
		&chunk.RunStarted{Base: child, TurnID: "c", MessageID: "m", Mode: "start"},
		&chunk.StepStarted{Base: child, StepID: "1"}, &chunk.TextDelta{Base: child, Delta: "wrong"},
		&chunk.StepDiscarded{Base: child, StepID: "1", Reason: "crash_recovery"},
		&chunk.StepStarted{Base: child, StepID: "2"}, &chunk.TextDelta{Base: child, Delta: "right"},
	), nil)
	for _, f := range frames {
		if f.Cut {
			t.Fatalf("a cut: %s", text(frames))
		}
	}
	c := read(t, text(frames))
	if len(c.Blocks) != 1 || len(c.Blocks[0].Results) != 1 || c.Blocks[0].Results[0].Text != "right" {
		t.Errorf("the client has %+v after\n%s", c.Blocks, text(frames))
	}
}

// What a sub-agent's own sub-agents say stands where it has called them, with
// their progress, until the call of the session's agent has its result.
func TestGrandchildren(t *testing.T) {
	t.Parallel()
	child := chunk.Base{AgentID: session + ".1", AgentType: "lead", RunID: "r1"}
	grand := chunk.Base{AgentID: session + ".1.1", AgentType: "scout", RunID: "r11"}
	chunks := func() []chunk.Chunk {
		return []chunk.Chunk{
			started(), &chunk.StepStarted{StepID: "s"},
			&chunk.ToolStart{ToolCallID: "c", ToolName: "lead", Arguments: json.RawMessage(`{"a":1}`)},
			&chunk.SubAgentStart{SubAgentType: "lead", SubSessionID: child.AgentID, CallID: "c"},
			&chunk.TextDelta{Base: child, Delta: "I ask. "},
			&chunk.ToolStart{Base: child, ToolCallID: "d", ToolName: "scout", Arguments: json.RawMessage(`{}`)},
			&chunk.SubAgentStart{Base: child, SubAgentType: "scout", SubSessionID: grand.AgentID, CallID: "d"},
			&chunk.Thinking{Base: grand, Content: "hm"},
			&chunk.Progress{Base: grand, ID: "look", Label: "Looking", State: "running"},
			&chunk.TextDelta{Base: grand, Delta: "So it "}, &chunk.TextDelta{Base: grand, Delta: "is. "},
			&chunk.Progress{Base: grand, ID: "look", Label: "Looking", State: "done"},
			&chunk.ToolEnd{Base: child, ToolCallID: "d", ToolName: "scout", Result: json.RawMessage(`"So it is. "`), Success: true},
			&chunk.StepStarted{Base: child, StepID: "s.2"},
			&chunk.TextDelta{Base: child, Delta: "It is so."},
		}
	}
	end := func() []chunk.Chunk {
		return []chunk.Chunk{
			&chunk.ToolEnd{ToolCallID: "c", ToolName: "lead", Result: json.RawMessage(`"It is so."`), Success: true},
			&chunk.StepCommitted{StepID: "s"}, finished(),
		}
	}
	for _, tt := range []struct {
		name            string
		o               merlin.Options
		said, reasoning string
		steps           int
	}{
		{"shown", merlin.Options{}, "I ask. So it is. It is so.", "hm", 1},
		{"the sub-agent is suppressed", merlin.Options{Suppress: func(kind string) bool { return kind == "lead" }}, "", "", 1},
		{"its sub-agent is suppressed", merlin.Options{Suppress: func(kind string) bool { return kind == "scout" }}, "I ask. It is so.", "", 1},
		{"its sub-agent is suppressed literally", merlin.Options{Suppress: func(kind string) bool { return kind == "scout" }, Literal: merlin.Literal{Suppression: true}}, "I ask. It is so.", "hm", 1},
		{"V1 shows progress alone", merlin.Options{Version: merlin.V1}, "", "", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, frames := project(t, log(t, chunks()...), &tt.o)
			for _, stream := range []string{text(frames), text(plan(t, p))} {
				c := read(t, stream)
				said, reasoning, steps := "", "", len(c.Steps)
				for _, b := range c.Blocks {
					reasoning += b.Reasoning
					steps += len(b.Steps)
					for _, r := range b.Results {
						said += r.Text
					}
				}
				if said != tt.said || reasoning != tt.reasoning || steps != tt.steps {
					t.Errorf("the client has %q, %q and %d steps, want %q, %q and %d:\n%s", said, reasoning, steps, tt.said, tt.reasoning, tt.steps, stream)
				}
			}
			if tt.o.Version == merlin.V1 {
				return
			}
			_, frames = project(t, log(t, append(chunks(), end()...)...), &tt.o)
			if c := read(t, text(frames)); c.Blocks[0].Results[0].Text != "It is so." {
				t.Errorf("the result is %q", c.Blocks[0].Results[0].Text)
			}
		})
	}
}

func TestCollected(t *testing.T) {
	t.Parallel()
	signed := &chunk.Thinking{Content: "Hm.", IsComplete: true, PartID: "r", ProviderMetadata: json.RawMessage(`{"anthropic":{"signature":"sig"}}`)}
	records := log(t, started(), &chunk.StepStarted{StepID: "1"}, signed,
		&chunk.TextDelta{Delta: "a", PartID: "0"}, &chunk.TextDelta{Delta: "b", PartID: "0"},
		&chunk.Citation{SourceID: "s", URL: "u", CitedText: "q"}, &chunk.TextDelta{Delta: "c", PartID: "1"},
		&chunk.ToolArgStreamStart{ToolCallID: "c1", ToolName: "now"}, &chunk.ToolArgStreamEnd{ToolCallID: "c1"},
		&chunk.ToolArgStreamStart{ToolCallID: "c2", ToolName: "half"}, &chunk.ToolArgStreamDelta{ToolCallID: "c2", Delta: `{"a`},
		&chunk.UsageReport{Usage: chunk.Usage{InputTokens: 3, OutputTokens: 1}}, &chunk.RunSuspended{Kind: "interrupted"},
		started(), &chunk.UsageReport{Usage: chunk.Usage{InputTokens: 5, OutputTokens: 1}}, &chunk.UsageReport{Usage: chunk.Usage{InputTokens: 7, OutputTokens: 2}},
	)
	for v, content := range map[merlin.Version]string{merlin.V1: `["ab","[citation: 1: 1]","c"]`, merlin.V2: `["ab","c"]`} {
		p, _ := project(t, records, &merlin.Options{Version: v})
		want := `{"content":` + content + `,"reasoningContent":[{"text":"Hm.","index":0,"id":"r","signature":"sig"}],` +
			`"citations":[{"document_index":0,"cited_text":"q"}],"toolCalls":[{"type":"function","function":{"name":"now","arguments":"{}"},"id":"c1"}],` +
			`"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}}`
		if got := string(mustJSON(t, p.Collected())); got != want {
			t.Errorf("V%d: got %s\nwant %s", v, got, want)
		}
	}
	if got := string(mustJSON(t, merlin.NewProjector("t", nil).Collected())); got != `{"content":[],"reasoningContent":[],"citations":[]}` {
		t.Errorf("before the start: %s", got)
	}
}

func TestEventManager(t *testing.T) {
	t.Parallel()
	var sent []string
	var last *chunk.Progress
	m, err := merlin.NewEventManager(func(p *chunk.Progress) error {
		last = p
		sent = append(sent, string(mustJSON(t, []any{p.ID, p.Parent, p.Label, p.State, p.Data})))
		return nil
	}, nil)
	check(t, err)
	e, err := m.CreateEvent("read", "")
	check(t, err)
	check(t, e.Send(merlin.Value{Type: "LINK", Value: json.RawMessage(`{"url":"u"}`)}))
	check(t, e.End())
	check(t, m.End()) // there is no heading
	check(t, m.UpdateName("Work", merlin.IconGlobe))
	same, err := m.GetOrCreateLatestEvent("read", "X")
	check(t, err)
	other, err := m.GetOrCreateLatestEvent("write", "PEN")
	check(t, err)
	check(t, m.End())
	if same != e || other == e || e.Step().Status != merlin.InProgress || other.Step().Icon != "PEN" {
		t.Errorf("the manager took up %+v and %+v", same.Step(), other.Step())
	}
	want := []string{
		`["events/1","events","read","running",{"icon":"DEFAULT"}]`,
		`["events/1","events","read","running",{"icon":"DEFAULT","values":[{"type":"LINK","value":{"url":"u"}}]}]`,
		`["events/1","events","read","done",{"icon":"DEFAULT","values":[{"type":"LINK","value":{"url":"u"}}]}]`,
		`["events","","Work","running",{"type":"HEADING","icon":"GLOBE"}]`,
		`["events/1","events","read","running",{"icon":"DEFAULT","values":[{"type":"LINK","value":{"url":"u"}}]}]`,
		`["events/2","events","write","running",{"icon":"PEN"}]`,
		`["events","","Work","done",{"type":"HEADING","icon":"GLOBE"}]`,
	}
	if got := strings.Join(sent, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("sent\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	full := errors.New("full")
	if _, err := merlin.NewEventManager(func(*chunk.Progress) error { return full }, &merlin.EventOptions{Name: "x"}); !errors.Is(err, full) {
		t.Errorf("the emitter's error became %v", err)
	}
	check(t, e.AddTags("new"))
	_, frames := project(t, log(t, started(), last), &merlin.Options{Version: merlin.V1})
	if got, want := text(frames), `{"id":"`+stepID("events/1")+`","name":"read","status":"IN_PROGRESS",`+
		`"values":[{"type":"TEXT","value":"{\"url\":\"u\"}"},{"type":"TEXT","value":"new"}],"icon":"DEFAULT"}`; !strings.Contains(got, want) {
		t.Errorf("V1 has %s, want %s in it", got, want)
	}
}

// A citation in a log that only counts documents is of the link with that index, among
// those that came before it.
func TestCitationsByIndex(t *testing.T) {
	t.Parallel()
	link := func(id, url string) chunk.Chunk { return &chunk.Citation{SourceID: id, URL: url, Title: url} }
	quote := func(id string, doc int, filename string) chunk.Chunk {
		return &chunk.Citation{SourceID: id, Title: fmt.Sprint("Document ", doc+1), Filename: filename, CitedText: id, DocumentIndex: &doc}
	}
	records := log(t, started(), &chunk.StepStarted{StepID: "s"}, &chunk.TextDelta{Delta: "Tea."},
		quote("early", 1, ""), link("x", "https://x.example"), link("y", "https://y.example"), quote("q1", 1, ""), quote("q2", 0, "tea.pdf"), quote("q3", 0, ""), finished())
	for _, v := range []merlin.Version{merlin.V1, merlin.V2} {
		p, stream := project(t, records, &merlin.Options{Version: v})
		for what, frames := range map[string]string{"stream": text(stream), "plan": text(plan(t, p))} {
			c := read(t, frames)
			if got := string(mustJSON(t, c.Attachments)); got != `[{"url":"","title":"Document 2","cited_text":["early"]},{"url":"https://x.example","title":"https://x.example","cited_text":["q3"]},`+
				`{"url":"https://y.example","title":"https://y.example","cited_text":["q1"]},{"url":"","title":"Document 1","cited_text":["q2"]}]` {
				t.Errorf("V%d, %s: the attachments are %s", v, what, got)
			}
			if v == merlin.V1 && c.Content != "Tea.[citation: 1: 1][citation: 3: 1][citation: 4: 1][citation: 2: 1]" {
				t.Errorf("%s: the content is %q", what, c.Content)
			}
		}
	}
}

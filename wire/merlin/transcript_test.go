package merlin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/wire/merlin"
)

var update = flag.Bool("update", false, "write the transcripts again")

const session = "s1"

// log makes records of chunks: of the agent s1, or of whom they name.
func log(t *testing.T, chunks ...chunk.Chunk) []chunk.Record {
	t.Helper()
	var list []chunk.Record
	for i, c := range chunks {
		b := c.ChunkBase()
		if b.AgentID == "" {
			b.AgentID, b.AgentType, b.RunID = session, "assistant", "run-1"
		}
		b.Timestamp = 1763730000000
		data, err := chunk.Append(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, chunk.Record{Seq: uint64(i + 1), Type: c.ChunkType(), Agent: b.AgentID, Time: b.Timestamp, Class: chunk.ClassOf(c), Data: data})
	}
	return list
}

func project(t *testing.T, records []chunk.Record, o *merlin.Options) (*merlin.Projector, []spool.Frame) {
	t.Helper()
	p := merlin.NewProjector("turn-1", o)
	var frames []spool.Frame
	for _, r := range records {
		var err error
		if frames, err = p.Apply(frames, r); err != nil {
			t.Fatal(err)
		}
	}
	return p, frames
}

func plan(t *testing.T, p *merlin.Projector) []spool.Frame {
	t.Helper()
	frames, err := p.Plan()
	check(t, err)
	return frames
}

func text(frames []spool.Frame) string {
	var b strings.Builder
	for _, f := range frames {
		b.Write(f.Data)
	}
	return b.String()
}

func started() *chunk.RunStarted {
	return &chunk.RunStarted{TurnID: "turn-1", MessageID: "m1", Mode: "start"}
}

func finished() *chunk.RunFinished {
	return &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"}
}

// search is a turn with everything that the protocol shows: reasoning, parallel
// calls, one of them a sub-agent's, progress, text with citations, a file.
func search(t *testing.T) []chunk.Record {
	t.Helper()
	chunks := []chunk.Chunk{
		started(), &chunk.StepStarted{StepID: "step-1"},
		&chunk.Thinking{Content: "The user "}, &chunk.Thinking{Content: "asks about tea."},
		&chunk.Thinking{Content: "The user asks about tea.", IsComplete: true},
		&chunk.TextDelta{Delta: "Let me look."},
		&chunk.ToolArgStreamStart{ToolCallID: "call-1", ToolName: "web_search"},
		&chunk.ToolArgStreamDelta{ToolCallID: "call-1", Delta: `{"query":`}, &chunk.ToolArgStreamDelta{ToolCallID: "call-1", Delta: `"tea"}`},
		&chunk.ToolArgStreamEnd{ToolCallID: "call-1"},
		&chunk.ToolArgStreamStart{ToolCallID: "call-2", ToolName: "researcher"}, &chunk.ToolArgStreamEnd{ToolCallID: "call-2"},
		&chunk.ToolStart{ToolCallID: "call-1", ToolName: "web_search", Arguments: json.RawMessage(`{"query":"tea"}`)},
		&chunk.ToolStart{ToolCallID: "call-2", ToolName: "researcher", Arguments: json.RawMessage(`{}`)},
	}
	events, err := merlin.NewEventManager(func(p *chunk.Progress) error {
		c := *p
		c.ID, c.Parent = "call-1/"+p.ID, qualified(p.Parent)
		chunks = append(chunks, &c)
		return nil
	}, &merlin.EventOptions{Name: "Web search", Icon: merlin.IconGlobe})
	check(t, err)
	step, err := events.CreateEvent("Searching web...", merlin.IconGlobe)
	check(t, err)
	check(t, step.Send(merlin.Text("Found 10 results")))
	child := chunk.Base{AgentID: session + ".1", AgentType: "researcher", RunID: "run-1.1"}
	chunks = append(chunks,
		&chunk.SubAgentStart{SubAgentType: "researcher", SubSessionID: session + ".1", CallID: "call-2"},
		&chunk.RunStarted{Base: child, TurnID: "call-2", MessageID: "m1.1", Mode: "start"},
		&chunk.StepStarted{Base: child, StepID: "step-1.1"},
		&chunk.TextDelta{Base: child, Delta: "Tea is "}, &chunk.TextDelta{Base: child, Delta: "a plant."},
		&chunk.RunFinished{Base: child, Outcome: chunk.OutcomeCompleted, FinishReason: "stop"},
		&chunk.SubAgentEnd{SubAgentType: "researcher", SubSessionID: session + ".1", CallID: "call-2"},
		&chunk.ToolEnd{ToolCallID: "call-2", ToolName: "researcher", Result: json.RawMessage(`"Tea is a plant."`), Success: true},
	)
	check(t, step.AddTags("tea"))
	check(t, step.End())
	chunks = append(chunks, &chunk.ToolEnd{ToolCallID: "call-1", ToolName: "web_search", Result: json.RawMessage(`{"hits":2}`), Success: true})
	again, err := events.GetOrCreateLatestEvent("Searching web...", "")
	check(t, err)
	check(t, again.End())
	check(t, events.UpdateName("Searched", ""))
	chunks = append(chunks,
		&chunk.StepCommitted{StepID: "step-1"}, &chunk.StepStarted{StepID: "step-2"},
		&chunk.TextDelta{Delta: "Tea is old.", PartID: "0"},
		&chunk.Citation{SourceID: "a", URL: "https://a.example/tea", Title: "A", CitedText: "old"},
		&chunk.Citation{SourceID: "b", URL: "https://b.example/tea", Title: "B", CitedText: "very old"},
		&chunk.TextDelta{Delta: " And hot.", PartID: "1"},
		&chunk.Citation{SourceID: "a", URL: "https://a.example/tea", Title: "A", CitedText: "hot"},
		&chunk.File{URL: "data:text/plain,tea", MediaType: "text/plain", Filename: "tea.txt"},
		&chunk.StepCommitted{StepID: "step-2"}, finished(),
	)
	return log(t, chunks...)
}

func qualified(parent string) string {
	if parent == "" {
		return ""
	}
	return "call-1/" + parent
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTranscripts(t *testing.T) {
	t.Parallel()
	for _, p := range []struct {
		name string
		o    merlin.Options
	}{
		{"v1", merlin.Options{Version: merlin.V1}},
		{"v2", merlin.Options{}},
		{"v2-suppressed", merlin.Options{Suppress: func(agent string) bool { return agent == "researcher" }}},
		{"v1-literal", merlin.Options{Version: merlin.V1, Literal: literal}},
		{"v2-literal", merlin.Options{Literal: literal}},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			_, frames := project(t, search(t), &p.o)
			got := text(frames)
			file := filepath.Join("testdata", p.name+".sse")
			if *update {
				check(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			check(t, err)
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if !strings.HasSuffix(p.name, "literal") {
				checkShapes(t, frames)
			}
		})
	}
}

// shapes are the members of each frame, as the protocol's description writes
// them. A name in brackets may be missing.
var shapes = map[string][]string{
	"INIT_MESSAGE_CONTENT":            {},
	"end":                             {},
	"message":                         {"content"},
	"message text":                    {"content", "index", "type", "text"},
	"message reasoning":               {"content", "index", "type", "reasoning"},
	"message toolCalls":               {"content", "index", "type", "toolCalls"},
	"message toolCalls.toolCalls":     {"type", "function", "id"},
	"message toolCallResult":          {"content", "index", "type", "toolCallResult"},
	"message toolCallResult delta":    {"index", "delta"},
	"message toolCallResult result":   {"index", "result", "toolCallId", "function"},
	"message citation":                {"content", "index", "type", "citation"},
	"message citation.citation":       {"document_index", "cited_text"},
	"message attachments":             {"content", "index", "type", "attachments"},
	"message attachments.attachments": {"url", "title", "[cited_text]", "[mediaType]"},
	"message progress":                {"content", "index", "type", "progress"},
	"message progress.progress":       {"[steps]", "[name]", "[icon]"},
	"message progress.steps":          {"index", "tags", "id", "name", "status", "values", "icon"},
	"message progress.steps.values":   {"type", "value"},
	"progress":                        {"payload", "[metadata]"},
	"progress payload":                {"id", "name", "status", "values", "icon"},
	"progress payload heading":        {"[name]", "[icon]"},
	"progress metadata":               {"type"},
	"attachments":                     {"payload"},
	"attachments payload":             {"url", "title", "[cited_text]", "[mediaType]"},
	"message toolCalls.function":      {"name", "arguments"},
	"message toolCallResult.function": {"name"},
}

func checkShapes(t *testing.T, frames []spool.Frame) {
	t.Helper()
	r := sse.NewReader(strings.NewReader(text(frames)), nil)
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		check(t, err)
		var m map[string]any
		check(t, json.Unmarshal(e.Data, &m))
		name := string(e.Name)
		if kind, ok := m["type"].(string); ok {
			name += " " + kind
		}
		shape(t, name, m)
		switch name {
		case "message toolCalls":
			for _, c := range m["toolCalls"].([]any) {
				shape(t, name+".toolCalls", c.(map[string]any))
				shape(t, name+".function", c.(map[string]any)["function"].(map[string]any))
			}
		case "message toolCallResult":
			in := m["toolCallResult"].(map[string]any)
			if _, ok := in["delta"]; ok {
				shape(t, name+" delta", in)
			} else {
				shape(t, name+" result", in)
				shape(t, name+".function", in["function"].(map[string]any))
			}
		case "message citation":
			shape(t, name+".citation", m["citation"].(map[string]any))
		case "message attachments":
			for _, a := range m["attachments"].([]any) {
				shape(t, name+".attachments", a.(map[string]any))
			}
		case "message progress":
			in := m["progress"].(map[string]any)
			shape(t, name+".progress", in)
			if steps, ok := in["steps"].(map[string]any); ok {
				shape(t, name+".steps", steps)
				for _, v := range steps["values"].([]any) {
					shape(t, name+".steps.values", v.(map[string]any))
				}
			}
		case "progress":
			if meta, ok := m["metadata"].(map[string]any); ok {
				shape(t, "progress metadata", meta)
				shape(t, "progress payload heading", m["payload"].(map[string]any))
			} else {
				shape(t, "progress payload", m["payload"].(map[string]any))
			}
		case "attachments":
			for _, a := range m["payload"].([]any) {
				shape(t, "attachments payload", a.(map[string]any))
			}
		}
	}
}

func shape(t *testing.T, name string, m map[string]any) {
	t.Helper()
	want, ok := shapes[name]
	if !ok {
		t.Errorf("the protocol has no %s: %v", name, m)
	}
	for key := range maps.Keys(m) {
		if !slices.Contains(want, key) && !slices.Contains(want, "["+key+"]") {
			t.Errorf("%s has a %s: %v", name, key, m)
		}
	}
	for _, key := range want {
		if _, has := m[key]; !has && key[0] != '[' {
			t.Errorf("%s lacks %s: %v", name, key, m)
		}
	}
}

// Whatever the version, a client that reads the transcript has the answer, and
// so has one that attaches at the end.
func TestClient(t *testing.T) {
	t.Parallel()
	records := search(t)
	for _, tt := range []struct {
		version merlin.Version
		text    string
	}{
		{merlin.V1, "Let me look.Tea is old.[citation: 1: 1][citation: 2: 1] And hot.[citation: 1: 2]"},
		{merlin.V2, "Let me look.Tea is old. And hot."},
	} {
		p, frames := project(t, records, &merlin.Options{Version: tt.version})
		for _, stream := range []string{text(frames), text(plan(t, p))} {
			c := read(t, stream)
			if c.Text() != tt.text || !c.Ended || c.Error != nil {
				t.Errorf("V%d: the client has %q, ended %v, %v", tt.version, c.Text(), c.Ended, c.Error)
			}
			want := []merlin.Attachment{
				{URL: "https://a.example/tea", Title: "A", CitedText: []string{"old", "hot"}},
				{URL: "https://b.example/tea", Title: "B", CitedText: []string{"very old"}},
				{URL: "data:text/plain,tea", Title: "tea.txt", MediaType: "text/plain"},
			}
			if got, want := string(mustJSON(t, c.Attachments)), string(mustJSON(t, want)); got != want {
				t.Errorf("V%d: attachments %s, want %s", tt.version, got, want)
			}
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	check(t, err)
	return data
}

func read(t *testing.T, stream string) *merlin.Client {
	t.Helper()
	r := merlin.NewReader(bytes.NewReader([]byte(stream)))
	var c merlin.Client
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return &c
		}
		check(t, err)
		c.Apply(e)
	}
}

func transcript(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".sse"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/anthropic"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/scripted"
)

// message runs an agent of these answers and returns what the log says it said.
// The kept records alone must say the same.
func message(t *testing.T, steps ...scripted.Step) (*chunk.Message, *answers, *memLog) {
	t.Helper()
	m := &answers{steps: steps}
	r, l := begin(t, "go")
	result, err := run(t.Context(), &agent.Agent{Name: "a", Model: m}, r)
	if err != nil || result.Outcome != chunk.OutcomeCompleted {
		t.Fatalf("%+v, %v", result, err)
	}
	kept := fold.New("s")
	for i, c := range l.chunks {
		if chunk.ClassOf(c) != chunk.Kept {
			continue
		}
		raw, err := chunk.Append(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := kept.Apply(chunk.Record{Seq: uint64(i + 1), Type: c.ChunkType(), Class: chunk.Kept, Data: raw}); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := json.Marshal(l.fold.Messages)
	want, _ := json.Marshal(kept.Messages)
	if string(got) != string(want) {
		t.Errorf("with trace %s\nkept alone %s", got, want)
	}
	return l.fold.Message("m1"), m, l
}

// partsOf lists a message's parts in short.
func partsOf(m *chunk.Message) string {
	var list []string
	for _, p := range m.Parts {
		s := string(p.Type)
		switch {
		case p.Tool != nil:
			s += " " + p.Tool.Name + string(p.Tool.Input) + "=" + string(p.Tool.Output) + " " + string(p.Tool.State)
			if p.Tool.ProviderExecuted {
				s += " by provider"
			}
		case p.Type == chunk.PartSource, p.Type == chunk.PartFile:
			s += " " + p.URL + " " + p.Title
		case p.Text != "":
			s += " " + p.Text
		}
		list = append(list, strings.TrimSpace(s))
	}
	return strings.Join(list, "; ")
}

func corpusStep(t *testing.T, name string) scripted.Step {
	t.Helper()
	f, err := os.Open(filepath.Join("../model/modeltest/testdata/anthropic", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parts, err := modeltest.Collect(anthropic.Ingest(f, nil))
	return scripted.Step{Parts: parts, Err: err}
}

func TestSourcesFilesAndUsage(t *testing.T) {
	m, _, l := message(t, parts(
		model.TextDelta{ID: "t", Delta: "See "},
		model.Source{ID: "s1", URL: "https://a.example", Title: "A", CitedText: "a"},
		model.TextDelta{ID: "t", Delta: "this"},
		model.Source{ID: "s2", Title: "Doc", MediaType: "application/pdf", Filename: "d.pdf"},
		model.File{URL: "data:image/png;base64,AA==", MediaType: "image/png", Filename: "a.png"},
		model.UsageUpdate{Usage: chunk.Usage{InputTokens: 3, OutputTokens: 1}},
		model.UsageUpdate{Usage: chunk.Usage{InputTokens: 3, OutputTokens: 4, CachedInputTokens: 2}},
		finish))
	if got, want := partsOf(m), "step; text See this; source https://a.example A; source  Doc; file data:image/png;base64,AA=="; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if s := m.Parts[3]; s.MediaType != "application/pdf" || s.Filename != "d.pdf" || m.Parts[2].Text != "a" || m.Parts[4].Filename != "a.png" {
		t.Errorf("%+v", m.Parts)
	}
	want := chunk.Usage{InputTokens: 3, OutputTokens: 4, CachedInputTokens: 2}
	if l.fold.Usage != want || *find[*chunk.AssistantMessage](l)[0].Usage != want {
		t.Errorf("usage %+v", l.fold.Usage)
	}
}

// A citation that only counts documents becomes one of the user's file, so that every
// reader of the log knows what is cited. Pictures are no documents.
func TestCitationsOfTheUsersFiles(t *testing.T) {
	file := func(url, media, name string) chunk.Part {
		return chunk.Part{Type: chunk.PartFile, URL: url, MediaType: media, Filename: name}
	}
	r, l := begin(t, "go", file("data:image/png;base64,AA==", "image/png", "a.png"),
		file("data:application/pdf;base64,AA==", "application/pdf", "tea.pdf"), file("https://a.example/notes", "text/plain", ""))
	cites := func(id string, doc int) model.Source {
		return model.Source{ID: id, Title: fmt.Sprint("Document ", doc+1), MediaType: "text/plain", CitedText: "q" + id, Document: &doc}
	}
	m := &answers{steps: []scripted.Step{parts(model.TextDelta{ID: "t", Delta: "See"}, cites("a", 0), cites("b", 1), cites("c", 5),
		model.Source{ID: "d", URL: "https://b.example"}, finish)}}
	if result, err := run(t.Context(), &agent.Agent{Name: "a", Model: m}, r); err != nil || result.Outcome != chunk.OutcomeCompleted {
		t.Fatalf("%+v, %v", result, err)
	}
	var got []string
	for _, p := range l.fold.Message("m1").Parts {
		if p.Type == chunk.PartSource {
			index := "-"
			if p.DocumentIndex != nil {
				index = fmt.Sprint(*p.DocumentIndex)
			}
			got = append(got, fmt.Sprintf("%s: %s %q %s %s %s", index, p.URL, p.Title, p.Filename, p.MediaType, p.Text))
		}
	}
	want := []string{`0:  "tea.pdf" tea.pdf application/pdf qa`, `1: https://a.example/notes "Document 2"  text/plain qb`,
		`5:  "Document 6"  text/plain qc`, `-: https://b.example ""   `}
	if !slices.Equal(got, want) {
		t.Errorf("the citations are\n%q\nwant\n%q", got, want)
	}
}

// Sources of several answers in one message have ids of their own.
func TestSourceIDs(t *testing.T) {
	source := model.Source{ID: "source-1", URL: "https://a.example"}
	call := toolCall("a", "f", "{}")
	call.Parts = append([]model.Part{source}, call.Parts...)
	m, _, _ := message(t, call, parts(source, finish))
	ids := map[string]bool{}
	for _, p := range m.Parts {
		if p.Type == chunk.PartSource {
			ids[p.ID] = true
		}
	}
	if len(ids) != 2 {
		t.Errorf("%v", ids)
	}
}

// Whatever a model calls a tool, the log takes it and the model is told.
func TestToolNamesThatNoLogTakes(t *testing.T) {
	for _, name := range []string{"", "a\x00b", strings.Repeat("n", 300), "\xff"} {
		m, asked, l := message(t, toolCall("a", name, "{}"), text("ok"))
		if c := m.Parts[1].Tool; c.State != chunk.ToolFailed || c.Name != "unknown" || len(asked.requests) != 2 {
			t.Errorf("%q: %+v", name, c)
		}
		for _, c := range l.chunks {
			if err := chunk.Validate(c); err != nil && !strings.Contains(err.Error(), "agent") {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

func TestProviderExecutedTools(t *testing.T) {
	m, _, _ := message(t, corpusStep(t, "server-tool.sse"))
	if got := partsOf(m); !strings.HasPrefix(got, `step; text I search.; tool web_search{"query":"go"}={"type":"web_search_tool_result"`) ||
		!strings.HasSuffix(got, `completed by provider; source https://a.example A; text Go is fun; source https://a.example A; text .`) {
		t.Error(got)
	}
	m, _, _ = message(t, corpusStep(t, "server-tool-failed.sse"))
	if c := m.Parts[1].Tool; c.State != chunk.ToolFailed || c.Error != "max_uses_exceeded" {
		t.Errorf("%+v", c)
	}
}

// A paused answer is asked for again, and the outcome that comes then is the
// earlier call's.
func TestPausedAnswerGoesOn(t *testing.T) {
	m, asked, _ := message(t, corpusStep(t, "pause-turn.sse"), corpusStep(t, "server-tool-of-earlier-answer.sse"))
	if len(asked.requests) != 2 {
		t.Fatalf("%d requests", len(asked.requests))
	}
	history := asked.requests[1].Messages
	if last := history[len(history)-1]; last.Role != chunk.RoleAssistant || !strings.Contains(partsOf(&last), `web_search{"query":"x"}= pending by provider`) {
		t.Errorf("asked again with %s", partsOf(&last))
	}
	if got := partsOf(m); !strings.Contains(got, `step; text Wait; tool web_search{"query":"x"}={"type":"web_search_tool_result"`) || !strings.HasSuffix(got, "completed by provider; step; text Found") {
		t.Error(got)
	}
}

// What a provider said before it began again is retracted, not shown twice.
func TestProviderBeginsAgain(t *testing.T) {
	second := corpusStep(t, "restart.sse")
	again := corpusStep(t, "restart.sse")
	for i, p := range again.Parts {
		if _, ok := p.(model.Restart); ok {
			again.Parts = again.Parts[i+1:]
			break
		}
	}
	if reflect.DeepEqual(second, again) {
		t.Fatal("the stream does not begin again")
	}
	done := text("ok")
	m, _, l := message(t, second, done)
	if got, want := partsOf(m), `step; text Hello again; tool f{}= error; step; text ok`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n := len(find[*chunk.StepDiscarded](l)); n != 1 {
		t.Errorf("%d discards", n)
	}
	undisturbed, _, _ := message(t, again, done)
	if got := partsOf(undisturbed); got != partsOf(m) {
		t.Errorf("undisturbed: %s", got)
	}
}

// Signatures and redacted blocks go through the log and back intact.
func TestReasoningGoesBack(t *testing.T) {
	m, _, _ := message(t, corpusStep(t, "thinking-redacted.sse"), text("ok"))
	var meta []string
	for _, p := range m.Parts {
		if p.Type == chunk.PartReasoning {
			meta = append(meta, p.Text+string(p.ProviderMetadata))
		}
	}
	want := []string{`{"anthropic":{"redactedData":"b64=="}}`, `More{"anthropic":{"signature":"S2"}}`, `{"anthropic":{"redactedData":"c64=="}}`}
	if !reflect.DeepEqual(meta, want) {
		t.Errorf("%q", meta)
	}
}

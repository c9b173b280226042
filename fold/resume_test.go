package fold_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/wire/wiretest"
)

var sameContent = cmp.Options{cmpopts.IgnoreUnexported(chunk.Part{}), cmpopts.EquateEmpty()}

// Back at any checkpoint of any log, messages and state are what they were there,
// and the kept records alone say the same.
func TestContentOfACheckpoint(t *testing.T) {
	t.Parallel()
	records := wiretest.Corpus()
	whole := foldRecords(t, records)
	for _, cp := range whole.Checkpoints {
		then := foldRecords(t, records[:cp.Seq])
		next := append(slices.Clone(records), commandRecords(t, uint64(len(records)), rollback(then, cp.ID, "back")...)...)
		f, kept := foldRecords(t, next), foldRecords(t, wiretest.KeptOnly(next))
		if diff := cmp.Diff(then.Messages, f.Messages, sameContent); diff != "" {
			t.Errorf("back at %s (-then +now):\n%s", cp.ID, diff)
		}
		if string(f.State) != string(then.State) || f.CheckpointID != cp.ID || len(f.Checkpoints) != len(whole.Checkpoints) {
			t.Errorf("back at %s: state %s, was %s; at %s", cp.ID, f.State, then.State, f.CheckpointID)
		}
		if f.Owed().Goes() != f.Live() || f.Status != chunk.StatusEnded {
			t.Errorf("back at %s: goes %v, live %v, %s", cp.ID, f.Owed().Goes(), f.Live(), f.Status)
		}
		kept.Seq = f.Seq
		if a, b := asJSON(t, f), asJSON(t, kept); a != b {
			t.Errorf("back at %s, kept records say something else:\n%s\n%s", cp.ID, a, b)
		}
		if _, err := f.Save(); err != nil {
			t.Error(err)
		}
	}
}

// A history of any size goes into a series whose records fit, and comes out of it
// whole, whichever process writes another one meanwhile; one that lacks a record counts for
// nothing.
func TestContentInSeries(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	long := func(n int) string { return strings.Repeat("<é\"\n> long words ", n/17) }
	var messages []chunk.Message
	for i := range 10 {
		m := chunk.Message{ID: fmt.Sprint("m", i), Role: chunk.RoleAssistant, Time: int64(i), TurnID: "t", Metadata: json.RawMessage(`{"n":1}`)}
		for j := range random.IntN(6) {
			first := uint64(100*i + j + 1)
			switch random.IntN(4) {
			case 0:
				m.Parts = append(m.Parts, chunk.Part{Type: chunk.PartText, First: first, Text: long(1 << random.IntN(19)), ProviderMetadata: json.RawMessage(`{"s":1}`)})
			case 1:
				m.Parts = append(m.Parts, chunk.Part{Type: chunk.PartStep, First: first, ID: fmt.Sprint("s", i, j)})
			case 2:
				m.Parts = append(m.Parts, chunk.Part{Type: chunk.PartTool, First: first, Tool: &chunk.ToolPart{CallID: fmt.Sprint("c", i, j), Name: "t",
					State: chunk.ToolCompleted, Input: json.RawMessage(`{"a":1}`), Output: json.RawMessage(`"` + strings.Repeat("x", random.IntN(60<<10)) + `"`)}})
			case 3: // all of one producer's message were opened by one record
				m.Parts = append(m.Parts, chunk.Part{Type: chunk.PartText, First: 7, Text: long(60 << 10)}, chunk.Part{Type: chunk.PartText, First: 7, Text: long(70 << 10)})
			}
		}
		messages = append(messages, m)
	}
	base := []chunk.Chunk{
		&chunk.UserMessage{CommandID: "u", Message: chunk.Message{ID: "u", Role: chunk.RoleUser}},
		&chunk.RunStarted{Base: chunk.Base{RunID: "r"}, TurnID: "u", MessageID: "m", Mode: "start", Commands: []string{"u"}},
		&chunk.CheckpointCreated{Base: chunk.Base{RunID: "r"}, CheckpointID: "cp", StepCount: 1},
		&chunk.RunFinished{Base: chunk.Base{RunID: "r"}, Outcome: chunk.OutcomeCompleted, FinishReason: "stop"},
	}
	then := fold.New("s")
	for i := range messages {
		then.Messages = append(then.Messages, &messages[i])
	}
	then.State = json.RawMessage(`{"big":"` + strings.Repeat("y", 60<<10) + `"}`)
	series := rollback(then, "cp", "a")
	if len(series) < 6 {
		t.Fatalf("%d records", len(series))
	}
	for _, c := range series {
		if data, err := chunk.Append(nil, c); err != nil || len(data) > chunk.MaxRecordBytes-1024 {
			t.Errorf("a %s of %d bytes, %v", c.ChunkType(), len(data), err)
		}
		if err := chunk.Validate(c); err != nil {
			t.Error(err)
		}
	}
	state := func(chunks ...chunk.Chunk) *fold.Fold {
		t.Helper()
		return foldRecords(t, commandRecords(t, 0, append(slices.Clone(base), chunks...)...))
	}
	want := state(series...)
	if diff := cmp.Diff(then.Messages, want.Messages, sameContent); diff != "" {
		t.Fatal(diff)
	}
	if string(want.State) != string(then.State) {
		t.Error("the state is not the same")
	}
	last := len(series) - 1
	other := rollback(then, "cp", "b")
	var mixed []chunk.Chunk
	for i := range series[:last-1] {
		mixed = append(mixed, series[i], series[i], other[i]) // sent again, and another's between
	}
	if diff := cmp.Diff(want.Messages, state(append(mixed, series[last-1:]...)...).Messages, sameContent); diff != "" {
		t.Errorf("with another series between:\n%s", diff)
	}
	for _, lost := range []int{0, last / 2, last - 1} {
		f := state(append(slices.Clone(series[:lost]), series[lost+1:]...)...)
		if f.Message("u") == nil || f.CheckpointID != "cp" || len(f.Messages) != 2 || f.Live() {
			t.Errorf("without record %d: %d messages", lost, len(f.Messages))
		}
		if v := f.Verdict("go-a"); v.State != fold.VerdictRefused || v.Code != fold.RefusedCheckpoint {
			t.Errorf("without record %d: %+v", lost, v)
		}
	}
	for _, n := range []int{1, last / 2, last - 1} { // its writer died
		if f := state(series[:n]...); f.Message("u") == nil || f.Live() {
			t.Errorf("after %d records: %d messages", n, len(f.Messages))
		}
	}
}

// rollback returns what goes back to a checkpoint, whose fold this is.
func rollback(then *fold.Fold, checkpoint, id string) (chunks []chunk.Chunk) {
	for _, c := range then.Owed().Content(id, checkpoint) {
		chunks = append(chunks, c)
	}
	return append(chunks, &chunk.ResumeRequested{CommandID: "go-" + id, Mode: chunk.ModeFromCheckpoint, CheckpointID: checkpoint, NoRun: !then.Owed().Goes()})
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func foldRecords(t *testing.T, records []chunk.Record) *fold.Fold {
	t.Helper()
	session := "s"
	if len(records) > 0 {
		session = chunk.RootID(records[0].Agent)
	}
	f := fold.New(session)
	for _, r := range records {
		if err := f.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// commandRecords encodes chunks as the records after a sequence.
func commandRecords(t *testing.T, after uint64, chunks ...chunk.Chunk) (records []chunk.Record) {
	t.Helper()
	for i, c := range chunks {
		agent := "s"
		if after > 0 {
			agent = wiretest.Session
		}
		c.ChunkBase().AgentID = agent
		data, err := chunk.Append(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, chunk.Record{Seq: after + uint64(i) + 1, Type: c.ChunkType(), Agent: agent, Class: chunk.ClassOf(c), Data: data})
	}
	return records
}

// The calls of a history that is no more are told apart from those of the one
// that took its place, though a provider names them the same.
func TestCallsAreRetired(t *testing.T) {
	t.Parallel()
	records := wiretest.Corpus()
	whole := foldRecords(t, records)
	now := map[string]bool{}
	for _, m := range whole.Messages {
		for _, p := range m.Parts {
			if p.Tool != nil {
				now[p.Tool.CallID] = true
			}
		}
	}
	for _, r := range records {
		c, err := chunk.Decode(r.Data)
		if err != nil {
			t.Fatal(err)
		}
		if end, ok := c.(*chunk.ToolEnd); ok && r.Agent == wiretest.Session && !now[end.ToolCallID] && !slices.Contains(whole.Retired, end.ToolCallID) {
			t.Errorf("call %s is forgotten", end.ToolCallID)
		}
	}
	if len(whole.Retired) == 0 {
		t.Error("no call is retired")
	}
}

// Bringing back what the log holds as references keeps them references.
func TestContentKeepsLargeValues(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	logs := spool.NewLogs(store, nil)
	defer logs.Close()
	g, err := logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("large ", 20_000)
	if _, err := g.Command(t.Context(), spool.Row{}, &chunk.UserMessage{CommandID: "u", Message: chunk.Message{ID: "u", Role: chunk.RoleUser,
		Parts: []chunk.Part{{Type: chunk.PartText, Text: text}, {Type: chunk.PartFile, URL: "data:," + text, MediaType: "text/plain"}}}}); err != nil {
		t.Fatal(err)
	}
	lease, err := logs.Claim(t.Context(), spool.Claim{Owner: "test", Session: "s"})
	if err != nil {
		t.Fatal(err)
	}
	w := g.Writer(lease, spool.WriterOptions{RunID: "r"})
	tool := &chunk.ToolPart{CallID: "c", Name: "t"}
	if _, err := w.Commit(t.Context(), spool.Row{Status: chunk.StatusEnded}, &spool.Settle{Seen: 1},
		&chunk.RunStarted{TurnID: "u", MessageID: "m", Mode: "start", Commands: []string{"u"}}, &chunk.StepStarted{StepID: "s1"},
		&chunk.AssistantMessage{MessageID: "m", StepID: "s1", Parts: []chunk.Part{{Type: chunk.PartTool, Tool: tool}}},
		&chunk.ToolEnd{ToolCallID: "c", ToolName: "t", Success: true, Result: json.RawMessage(`{"$blob":"mine","text":"` + text + `"}`)},
		&chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "add", Path: "/$blob", Value: json.RawMessage(`"` + text + `"`)}}},
		&chunk.StepCommitted{StepID: "s1", CheckpointID: "cp"}, &chunk.CheckpointCreated{CheckpointID: "cp", StepCount: 1},
		&chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"}); err != nil {
		t.Fatal(err)
	}
	h, err := g.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	then, err := g.FoldAt(t.Context(), h.Seq)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Command(t.Context(), spool.Row{}, rollback(then, "cp", "a")...); err != nil {
		t.Fatal(err)
	}
	err = g.View(t.Context(), func(f *fold.Fold) error {
		if diff := cmp.Diff(then.Messages, f.Messages, sameContent); diff != "" {
			t.Error(diff)
		}
		if string(f.State) != string(then.State) || len(f.State) < len(text) {
			t.Errorf("state of %d bytes, was %d", len(f.State), len(then.State))
		}
		if v := f.Verdict("go-a"); v.State != fold.VerdictWaiting {
			t.Errorf("%+v", v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

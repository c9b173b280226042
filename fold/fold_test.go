package fold

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// logOf numbers chunks into records, as a store would.
type logOf struct {
	t       *testing.T
	records []chunk.Record
	fold    *Fold
}

func newLogOf(t *testing.T) *logOf { return &logOf{t: t, fold: New("s")} }

func (l *logOf) add(chunks ...chunk.Chunk) *logOf {
	l.t.Helper()
	for _, c := range chunks {
		b := c.ChunkBase()
		if b.AgentID == "" {
			b.AgentID = "s"
		}
		if b.RunID == "" && l.fold.OpenRun() != nil && !chunk.IsCommand(c.ChunkType()) {
			b.RunID = l.fold.OpenRun().ID
		}
		b.Timestamp = int64(len(l.records) + 1)
		data, err := chunk.Append(nil, c)
		if err != nil {
			l.t.Fatal(err)
		}
		r := chunk.Record{Seq: uint64(len(l.records) + 1), Type: c.ChunkType(), Agent: b.AgentID, Time: b.Timestamp, Class: chunk.ClassOf(c), Data: data}
		l.records = append(l.records, r)
		if err := l.fold.Apply(r); err != nil {
			l.t.Fatal(err)
		}
	}
	return l
}

func (l *logOf) refold(keep func(chunk.Record) bool) *Fold {
	l.t.Helper()
	f := New("s")
	for _, r := range l.records {
		if keep(r) {
			if err := f.Apply(r); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	return f
}

func user(id, text string) *chunk.UserMessage {
	return &chunk.UserMessage{CommandID: id, Message: chunk.Message{ID: id, Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}}
}

func started(run, turn string, commands ...string) *chunk.RunStarted {
	return &chunk.RunStarted{Base: chunk.Base{RunID: run, AgentType: "demo"}, TurnID: turn, MessageID: "m-" + turn, Mode: "start", Commands: commands}
}

func step(n int) *chunk.StepStarted {
	return &chunk.StepStarted{Base: chunk.Base{Step: n}, StepID: fmt.Sprint("step", n)}
}

var sameMessages = cmp.Options{cmpopts.IgnoreUnexported(chunk.Part{}), cmpopts.EquateEmpty()}

// toolsTurn writes a turn with reasoning, two parallel calls, progress, state
// and custom data, closed by the fold itself.
func (l *logOf) toolsTurn() *logOf {
	l.add(user("u1", "hi"), started("r1", "u1", "u1"), step(1),
		&chunk.Thinking{Content: "let me "}, &chunk.Thinking{Content: "let me see", IsComplete: true},
		&chunk.TextDelta{Delta: "I "}, &chunk.TextDelta{Delta: "look"},
		&chunk.ToolArgStreamStart{ToolCallID: "a", ToolName: "weather"}, &chunk.ToolArgStreamDelta{ToolCallID: "a", Delta: `{"city":`},
		&chunk.ToolArgStreamDelta{ToolCallID: "a", Delta: `"Lisbon"}`}, &chunk.ToolArgStreamEnd{ToolCallID: "a"},
		&chunk.ToolArgStreamStart{ToolCallID: "b", ToolName: "notes"}, &chunk.ToolArgStreamEnd{ToolCallID: "b"})
	l.add(l.fold.Owed().CloseModelPhase("tool-calls", &chunk.Usage{InputTokens: 3, OutputTokens: 4})...)
	l.add(&chunk.ToolStart{ToolCallID: "a", ToolName: "weather", Arguments: json.RawMessage(`{"city":"Lisbon"}`), EffectID: "e"},
		&chunk.ToolStart{ToolCallID: "b", ToolName: "notes", Arguments: json.RawMessage(`{}`)},
		&chunk.Progress{ID: "p", Label: "looking"},
		&chunk.Custom{EventName: "seen", Data: json.RawMessage(`1`)},
		&chunk.Custom{EventName: "count", ID: "c", Data: json.RawMessage(`1`)},
		&chunk.Custom{EventName: "flash", Transient: true, Data: json.RawMessage(`1`)},
		&chunk.StatePatch{ToolCallID: "a", Patches: []chunk.PatchOperation{{Op: "add", Path: "/n", Value: json.RawMessage(`1`)}}},
		&chunk.Custom{EventName: "count", ID: "c", Data: json.RawMessage(`2`)},
		&chunk.ToolEnd{ToolCallID: "b", ToolName: "notes", Result: json.RawMessage(`"x"`), Success: true},
		&chunk.ToolEnd{ToolCallID: "a", ToolName: "weather", Error: "no"})
	l.add(l.fold.Owed().CloseStep("cp1")...)
	l.add(&chunk.CheckpointCreated{CheckpointID: "cp1", StepCount: 1}, step(2), &chunk.TextDelta{Delta: "Done"})
	l.add(l.fold.Owed().CloseModelPhase("stop", nil)...)
	l.add(l.fold.Owed().CloseStep("cp2")...)
	return l.add(&chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"})
}

func TestKeptRecordsFoldIntoTheSameState(t *testing.T) {
	l := newLogOf(t).toolsTurn()
	kept := l.refold(func(r chunk.Record) bool { return r.Class == chunk.Kept })
	if len(kept.Messages) != 2 || len(kept.Messages[1].Parts) != 10 {
		t.Fatalf("unexpected message: %s", jsonenc.Must(kept.Messages))
	}
	if diff := cmp.Diff(l.fold.Messages, kept.Messages, sameMessages); diff != "" {
		t.Errorf("messages differ (-all +kept):\n%s", diff)
	}
	if diff := cmp.Diff(string(l.fold.State), string(kept.State)); diff != "" {
		t.Error(diff)
	}
	if l.fold.Status != chunk.StatusEnded || l.fold.Live() || l.fold.Usage.OutputTokens != 4 {
		t.Errorf("status %s, live %v, usage %+v", l.fold.Status, l.fold.Live(), l.fold.Usage)
	}
}

// Whatever record a run dies behind, the settling list closes it, the list grows
// shorter as it is written, and the kept records say what was shown.
func TestSettlingAtEveryRecord(t *testing.T) {
	whole := newLogOf(t).toolsTurn()
	for k := 2; k < len(whole.records); k++ {
		full := settleFrom(t, whole.records[:k], -1)
		for crash := range len(full.records) - k {
			again := settleFrom(t, whole.records[:k], crash)
			if got := failures(again.records[k:]); got != 1 {
				t.Fatalf("cut %d, crash after %d settling records: %d errors", k, crash, got)
			}
			if diff := cmp.Diff(full.fold.Messages, again.fold.Messages, sameMessages); diff != "" {
				t.Fatalf("cut %d, crash after %d settling records: messages differ:\n%s", k, crash, diff)
			}
		}
		kept := full.refold(func(r chunk.Record) bool { return r.Class == chunk.Kept })
		if diff := cmp.Diff(full.fold.Messages, kept.Messages, sameMessages); diff != "" {
			t.Fatalf("cut %d: kept records say something else:\n%s", k, diff)
		}
		if string(kept.State) != string(full.fold.State) {
			t.Fatalf("cut %d: state %s, from kept records %s", k, full.fold.State, kept.State)
		}
		if full.fold.Status != chunk.StatusFailed || full.fold.Live() {
			t.Fatalf("cut %d: status %s", k, full.fold.Status)
		}
		for _, p := range full.fold.Messages[1].Parts {
			if p.Open || (p.Tool != nil && !p.Tool.State.Done()) {
				t.Fatalf("cut %d: part left open: %s", k, jsonenc.Must(p))
			}
		}
		if before, after := shown(whole.records[:k]), full.fold.Messages[1].Text(); before != after {
			t.Fatalf("cut %d: shown %q, kept %q", k, before, after)
		}
	}
}

// settleFrom replays records, then settles; with crash >= 0 it stops after that
// many settling records and lets a new fold settle the rest.
func settleFrom(t *testing.T, records []chunk.Record, crash int) *logOf {
	l := newLogOf(t)
	l.records = append(l.records, records...)
	l.fold = l.refold(func(chunk.Record) bool { return true })
	write := func(limit int) {
		chunks := l.fold.Owed().Settle(&chunk.RunFinished{Outcome: chunk.OutcomeFailed, FinishReason: "error", Error: "lost", Code: "executor_lost", Recoverable: true})
		if limit >= 0 && limit < len(chunks) {
			chunks = chunks[:limit]
		}
		l.add(chunks...)
	}
	if crash >= 0 {
		write(crash)
		l.fold = l.refold(func(chunk.Record) bool { return true })
	}
	write(-1)
	return l
}

// failures counts the classified errors of failed runs.
func failures(records []chunk.Record) int {
	n := 0
	for _, r := range records {
		c, _ := chunk.Decode(r.Data)
		if e, ok := c.(*chunk.ErrorChunk); ok && e.Fatal && e.Error == "lost" && e.Code == "executor_lost" && e.Recoverable {
			n++
		}
	}
	return n
}

func shown(records []chunk.Record) string {
	m := NewMessageFold("s")
	for _, r := range records {
		c, _ := chunk.Decode(r.Data)
		m.Apply(r, c)
	}
	return m.Message().Text()
}

func TestLongTextSpansRecords(t *testing.T) {
	l := newLogOf(t).add(user("u", "x"), started("r", "u", "u"), step(1))
	text := strings.Repeat("<é\"\n> words ", 40_000)
	for i := 0; i < len(text); i += 1000 {
		l.add(&chunk.TextDelta{Delta: text[i:min(i+1000, len(text))]})
	}
	chunks := Split(l.fold.Owed().CloseModelPhase("stop", nil))
	if len(chunks) < 5 {
		t.Fatalf("%d records", len(chunks))
	}
	for i, c := range chunks {
		data, _ := chunk.Append(nil, c)
		if len(data) > chunk.MaxRecordBytes {
			t.Errorf("record %d has %d bytes", i, len(data))
		}
	}
	shown := l.fold.Messages[1].Text()
	l.add(chunks...)
	kept := l.refold(func(r chunk.Record) bool { return r.Class == chunk.Kept })
	if got := kept.Messages[1].Text(); got != shown {
		t.Errorf("%d bytes kept, %d shown", len(got), len(shown))
	}
	// An unfinished series counts as absent.
	cut := l.refold(func(r chunk.Record) bool { return r.Class == chunk.Kept && r.Seq < l.records[len(l.records)-1].Seq })
	if got := cut.Messages[1].Text(); got != "" {
		t.Errorf("an unfinished series shows %d bytes", len(got))
	}
}

func TestCommands(t *testing.T) {
	l := newLogOf(t).add(user("u1", "one"))
	if v := l.fold.Verdict("u1"); v.State != VerdictWaiting || !l.fold.Live() {
		t.Fatalf("%+v", v)
	}
	l.add(user("u2", "two"))
	if v := l.fold.Verdict("u2"); v.State != VerdictRefused || v.Code != RefusedBusy {
		t.Fatalf("busy: %+v", v)
	}
	l.add(started("r1", "u1", "u1"))
	queued := user("u3", "three")
	queued.WhenBusy = chunk.BusyQueue
	l.add(queued, user("u1", "repeat"))
	if got := len(l.fold.Messages); got != 2 {
		t.Fatalf("%d messages while u3 is queued", got)
	}
	l.add(&chunk.StopRequested{CommandID: "s1"}, &chunk.StopRequested{CommandID: "s1"})
	if l.fold.Stop == nil || l.fold.Verdict("s1").RunID != "r1" {
		t.Fatal("the stop was not taken")
	}
	l.add(&chunk.RunFinished{Outcome: chunk.OutcomeStopped, FinishReason: "other"})
	if l.fold.Stop != nil || !l.fold.Live() {
		t.Fatalf("stop %v, live %v", l.fold.Stop, l.fold.Live())
	}
	l.add(started("r2", "u3", "u3"), &chunk.RunFinished{Base: chunk.Base{RunID: "r2"}, Outcome: chunk.OutcomeCompleted})
	if got := texts(l.fold); got != "one||three|" {
		t.Fatalf("messages %q", got)
	}
	l.add(&chunk.StopRequested{CommandID: "s2"})
	if v := l.fold.Verdict("s2"); v.Code != RefusedNothingToStop {
		t.Fatalf("%+v", v)
	}

	// An edit is one append; its effect waits for the run to end.
	l.add(&chunk.HistoryRewound{CommandID: "e1", AfterMessageID: "m-u1", Trigger: "edit", WhenBusy: chunk.BusyInterrupt}, user("u4", "edited"))
	if got := texts(l.fold); got != "one||edited" {
		t.Fatalf("after the edit: %q", got)
	}
	l.add(started("r3", "u4", "u4"))
	if v := l.fold.Verdict("e1"); v.State != VerdictAccepted || v.RunID != "r3" {
		t.Fatalf("the edit: %+v", v)
	}
	l.add(&chunk.HistoryRewound{CommandID: "g1", AfterMessageID: "u4", Trigger: "regenerate", WhenBusy: chunk.BusyInterrupt})
	if len(l.fold.Waiting) != 1 || len(l.fold.Messages) != 4 {
		t.Fatalf("regenerate took effect while a run was open: %s", jsonenc.Must(l.fold))
	}
	l.add(&chunk.RunFinished{Outcome: chunk.OutcomeStopped}, started("r4", "g1", "g1"), step(1), &chunk.TextDelta{Delta: "again"})
	if got := texts(l.fold); got != "one||edited|again" {
		t.Fatalf("after regenerate: %q", got)
	}
	l.add(&chunk.HistoryRewound{CommandID: "g2", AfterMessageID: "nobody", Trigger: "regenerate", WhenBusy: chunk.BusyInterrupt})
	if v := l.fold.Verdict("g2"); v.Code != RefusedUnknown {
		t.Fatalf("%+v", v)
	}
}

func texts(f *Fold) string {
	var s []string
	for _, m := range f.Messages {
		s = append(s, m.Text())
	}
	return strings.Join(s, "|")
}

func TestLiveAt(t *testing.T) {
	l := newLogOf(t).add(user("u1", "one"), started("r1", "u1", "u1"), &chunk.RunFinished{Outcome: chunk.OutcomeCompleted},
		user("u2", "two"), started("r2", "u2", "u2"), &chunk.RunFinished{Base: chunk.Base{RunID: "r2"}, Outcome: chunk.OutcomeCompleted}, user("u3", "three"))
	want := []struct {
		turn string
		live bool
	}{{"", false}, {"u1", true}, {"u1", true}, {"u1", false}, {"u2", true}, {"u2", true}, {"u2", false}, {"u3", true}}
	for n, w := range want {
		if turn, live := l.fold.LiveAt(uint64(n)); turn != w.turn || live != w.live {
			t.Errorf("at %d: %s %v, want %s %v", n, turn, live, w.turn, w.live)
		}
	}
}

func TestSavedFold(t *testing.T) {
	l := newLogOf(t).toolsTurn()
	data, err := l.fold.Save()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(data)
	if err != nil {
		t.Fatal(err)
	}
	next := []chunk.Chunk{user("u2", "more"), started("r2", "u2", "u2"), step(1), &chunk.TextDelta{Delta: "yes"},
		&chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "replace", Path: "/n", Value: json.RawMessage(`2`)}}}}
	l.add(next...)
	for _, r := range l.records {
		if err := loaded.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(l.fold.Snapshot(SnapshotOptions{}), loaded.Snapshot(SnapshotOptions{}), sameMessages); diff != "" {
		t.Error(diff)
	}
	if _, err := l.fold.Save(); err == nil {
		t.Error("a fold with an open run was saved")
	}
}

func TestDiscardedStepLeavesNothing(t *testing.T) {
	l := newLogOf(t).add(user("u", "x"), started("r", "u", "u"), step(1), &chunk.Custom{EventName: "n", ID: "1", Data: json.RawMessage(`1`)})
	l.add(l.fold.Owed().CloseModelPhase("stop", nil)...)
	l.add(l.fold.Owed().CloseStep("c")...)
	before := l.fold.Snapshot(SnapshotOptions{})
	l.add(step(2), &chunk.TextDelta{Delta: "gone"}, &chunk.Custom{EventName: "n", ID: "1", Data: json.RawMessage(`2`)},
		&chunk.Custom{EventName: "m", ID: "1", Data: json.RawMessage(`2`)},
		&chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "add", Path: "/x", Value: json.RawMessage(`1`)}}},
		&chunk.StepDiscarded{StepID: "step2", Reason: "crash_recovery"})
	after := l.fold.Snapshot(SnapshotOptions{})
	after.StreamSequence = before.StreamSequence
	if diff := cmp.Diff(before, after, sameMessages); diff != "" {
		t.Error(diff)
	}
}

// A producer of its own may run a call before it closes the model phase.
func TestOutcomeBeforeTheModelPhaseCloses(t *testing.T) {
	l := newLogOf(t).add(user("u", "x"), started("r", "u", "u"), step(1),
		&chunk.ToolArgStreamStart{ToolCallID: "a", ToolName: "t"}, &chunk.ToolArgStreamEnd{ToolCallID: "a"}, &chunk.TextDelta{Delta: "and"},
		&chunk.ToolStart{ToolCallID: "a", ToolName: "t", Arguments: json.RawMessage(`{}`)},
		&chunk.ToolEnd{ToolCallID: "a", ToolName: "t", Result: json.RawMessage(`1`), Success: true})
	l.add(l.fold.Owed().CloseModelPhase("tool-calls", nil)...)
	kept := l.refold(func(r chunk.Record) bool { return r.Class == chunk.Kept })
	if diff := cmp.Diff(l.fold.Messages, kept.Messages, sameMessages); diff != "" {
		t.Errorf("kept records say something else:\n%s", diff)
	}
	parts := l.fold.Messages[1].Parts
	if len(parts) != 3 || parts[1].Tool == nil || parts[1].Tool.State != chunk.ToolCompleted {
		t.Errorf("the outcome was lost: %s", jsonenc.Must(parts))
	}
}

// A call's changes stay when the call that made what holds them is taken back.
func TestStateOfACallOutlivesAnothers(t *testing.T) {
	patch := func(call, path, value string) *chunk.StatePatch {
		return &chunk.StatePatch{ToolCallID: call, Patches: []chunk.PatchOperation{{Op: "add", Path: path, Value: json.RawMessage(value)}}}
	}
	l := newLogOf(t).add(user("u", "x"), started("r", "u", "u"), step(1),
		&chunk.ToolArgStreamStart{ToolCallID: "a", ToolName: "t"}, &chunk.ToolArgStreamEnd{ToolCallID: "a"},
		&chunk.ToolArgStreamStart{ToolCallID: "b", ToolName: "t"}, &chunk.ToolArgStreamEnd{ToolCallID: "b"})
	l.add(l.fold.Owed().CloseModelPhase("tool-calls", nil)...)
	l.add(&chunk.ToolStart{ToolCallID: "a", ToolName: "t", Arguments: json.RawMessage(`{}`)},
		&chunk.ToolStart{ToolCallID: "b", ToolName: "t", Arguments: json.RawMessage(`{}`)},
		patch("a", "/done", `{"a":1}`), patch("b", "/done/b", `1`), patch("a", "/list", `[1]`), patch("b", "/list/-", `2`),
		&chunk.ToolEnd{ToolCallID: "b", ToolName: "t", Result: json.RawMessage(`1`), Success: true})
	l.add(l.fold.Owed().Unsettled("lost")...)
	if got, want := string(l.fold.State), `{"done":{"b":1},"list":[2]}`; got != want {
		t.Errorf("state %s, want %s", got, want)
	}
}

// A block of reasoning may be closed with its whole text, with nothing, or with a
// last piece: none of them says anything twice.
func TestCompleteThinking(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ streamed, content, want string }{
		{"let me ", "let me see", "see"}, {"let me see", "let me see", ""}, {"let me see", "", ""}, {"", "let me see", "let me see"}, {"let me ", "see", "see"},
	} {
		if rest := chunk.CompleteThinking(tt.streamed, tt.content); rest != tt.want {
			t.Errorf("%q behind %q adds %q, want %q", tt.content, tt.streamed, rest, tt.want)
		}
	}
}

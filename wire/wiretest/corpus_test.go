package wiretest

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

func TestCorpusHoldsEveryChunkType(t *testing.T) {
	t.Parallel()
	if missing := missingTypes(Corpus()); len(missing) != 0 {
		t.Errorf("the corpus has no %v", missing)
	}
	var without []chunk.Record
	for _, r := range Corpus() {
		if r.Type != chunk.TypeCitation {
			without = append(without, r)
		}
	}
	if missing := missingTypes(without); !slices.Equal(missing, []chunk.Type{chunk.TypeCitation}) {
		t.Errorf("missingTypes without citations = %v", missing)
	}
}

func TestCorpusIsALog(t *testing.T) {
	t.Parallel()
	isALog(t, Corpus)
	isALog(t, Agents)
}

func isALog(t *testing.T, make func() []chunk.Record) {
	t.Helper()
	log := make()
	if !reflect.DeepEqual(log, make()) {
		t.Error("two corpora differ")
	}
	for i, r := range log {
		c, err := chunk.Decode(r.Data)
		if err != nil {
			t.Fatalf("record %d: %v", r.Seq, err)
		}
		again, _ := chunk.Append(nil, c)
		b := c.ChunkBase()
		switch {
		case r.Seq != uint64(i)+1:
			t.Errorf("record %d has sequence %d", i+1, r.Seq)
		case r.Type != c.ChunkType() || r.Agent != b.AgentID || r.Time != b.Timestamp || r.Class != chunk.ClassOf(c):
			t.Errorf("record %d does not repeat its chunk: %+v", r.Seq, r)
		case string(again) != string(r.Data):
			t.Errorf("record %d encodes again as %s", r.Seq, again)
		}
		if chunk.ClassOf(c) == chunk.Kept && !chunk.IsCommand(r.Type) && b.RunID == "" && r.Type != "hologram" {
			t.Errorf("record %d, a %s, has no run", r.Seq, r.Type)
		}
	}
}

// The corpus keeps the law that makes trimming possible: its kept records alone
// fold to the same conversation.
func TestCorpusFoldsTheSameWithoutTrace(t *testing.T) {
	t.Parallel()
	foldsTheSame(t, Corpus())
	foldsTheSame(t, Agents())
}

func foldsTheSame(t *testing.T, log []chunk.Record) {
	t.Helper()
	whole, kept := foldLog(t, log), foldLog(t, KeptOnly(log))
	if w, k := asJSON(t, whole.Messages), asJSON(t, kept.Messages); w != k {
		t.Errorf("messages of the whole log\n%s\nand of its kept records\n%s", w, k)
	}
	for i := range whole.Children {
		if w, k := asJSON(t, whole.Children[i]), asJSON(t, kept.Children[i]); w != k {
			t.Errorf("a child of the whole log\n%s\nand of its kept records\n%s", w, k)
		}
	}
	if string(whole.State) != string(kept.State) || whole.Status != kept.Status {
		t.Errorf("state %s and %s, status %s and %s", whole.State, kept.State, whole.Status, kept.Status)
	}
	for _, end := range ends(log) {
		w, k := foldLog(t, log[:end]), foldLog(t, KeptOnly(log[:end]))
		if w, k := asJSON(t, w.Messages), asJSON(t, k.Messages); w != k {
			t.Errorf("messages at %d\n%s\nand of the kept records\n%s", end, w, k)
		}
	}
}

func TestCorpusHoldsEveryEnd(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, r := range Corpus() {
		c, _ := chunk.Decode(r.Data)
		switch c := c.(type) {
		case *chunk.RunFinished:
			found[string(c.Outcome)] = true
		case *chunk.RunSuspended:
			found[c.Kind] = true
		}
	}
	for _, want := range []string{"completed", "stopped", "steered", "limit", "failed", "interrupted", "awaiting_approval", "awaiting_client_tool"} {
		if !found[want] {
			t.Errorf("no run of the corpus is %s", want)
		}
	}
	f := foldLog(t, Corpus())
	for id, want := range map[string]fold.VerdictState{
		"cmd-1": fold.VerdictAccepted, "cmd-busy": fold.VerdictRefused, "cmd-2": fold.VerdictAccepted,
		"cmd-5": fold.VerdictRefused, "cmd-8": fold.VerdictAccepted, "cmd-9": fold.VerdictAccepted,
		"cmd-11": fold.VerdictAccepted, "cmd-12": fold.VerdictAccepted, "cmd-14": fold.VerdictAccepted,
	} {
		if got := f.Verdict(id).State; got != want {
			t.Errorf("verdict on %s is %q, want %q", id, got, want)
		}
	}
	if len(f.Waiting) != 0 || f.Live() {
		t.Errorf("at the end, %d commands wait, live is %v", len(f.Waiting), f.Live())
	}
}

func foldLog(t *testing.T, log []chunk.Record) *fold.Fold {
	t.Helper()
	f := fold.New(Session)
	for _, r := range log {
		if err := f.Apply(r); err != nil {
			t.Fatalf("record %d: %v", r.Seq, err)
		}
	}
	return f
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAgentsHoldEveryFate(t *testing.T) {
	f := foldLog(t, Agents())
	for _, tt := range []struct {
		session string
		runs    int // of its first turn
		status  chunk.Status
		reason  string
	}{
		{Session + ".1", 1, chunk.StatusEnded, "completed"},
		{Session + ".1.1", 1, chunk.StatusEnded, "completed"},
		{Session + ".2", 1, chunk.StatusFailed, "failed"},
		{Session + ".3", 2, chunk.StatusEnded, "completed"},
		{Session + ".4.1", 2, chunk.StatusEnded, "completed"},
		{Session + ".6.1", 1, chunk.StatusEnded, "stopped"},
		{Session + ".7", 1, chunk.StatusEnded, "completed"},
	} {
		c := f.Child(tt.session)
		if c == nil {
			t.Errorf("there is no child %s", tt.session)
			continue
		}
		if got := len(c.Turns[0].Runs); got != tt.runs || c.Status != tt.status || c.Reason != tt.reason || len(c.Waiting) > 0 {
			t.Errorf("%s has %d runs and is %s (%s)", tt.session, got, c.Status, c.Reason)
		}
	}
	if n := len(f.Child(Session + ".7").Turns); n != 2 {
		t.Errorf("the companion has %d turns", n)
	}
	for id, want := range map[string]fold.VerdictState{
		"cmd-3": fold.VerdictAccepted, "cmd-4": fold.VerdictAccepted, "cmd-5": fold.VerdictRefused, "cmd-6": fold.VerdictAccepted,
	} {
		if got := f.Verdict(id).State; got != want {
			t.Errorf("verdict on %s is %q, want %q", id, got, want)
		}
	}
	if f.Live() || f.Status != chunk.StatusEnded {
		t.Errorf("at the end it is %s", f.Status)
	}
}

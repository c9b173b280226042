package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// turn writes a turn with n deltas, and returns its text.
func turn(t testing.TB, g *Log, w *Writer, id string, n int) string {
	t.Helper()
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	command, err := g.Command(ctx, Row{}, say(id, "q "+id))
	must(err)
	w.SetRun("run-" + id)
	w.SetStep(1)
	started, err := w.Commit(ctx, Row{Status: chunk.StatusActive}, nil,
		&chunk.RunStarted{TurnID: id, MessageID: "m-" + id, Mode: "start", Commands: []string{id}}, &chunk.StepStarted{StepID: "step-" + id})
	must(err)
	var whole string
	for i := range n {
		s := fmt.Sprint(id, i, " ")
		whole += s
		must(w.Append(ctx, text(s)))
	}
	must(w.Append(ctx, &chunk.AssistantMessage{MessageID: "m-" + id, StepID: "step-" + id, FinishReason: "stop",
		Parts: []chunk.Part{{Type: chunk.PartText, First: started.Last + 1, Text: whole}}}))
	must(w.Append(ctx, &chunk.StepCommitted{StepID: "step-" + id}))
	_, err = w.Commit(ctx, Row{Status: chunk.StatusEnded}, &Settle{Seen: command.Last}, &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"})
	must(err)
	return whole
}

// plainFold is the fold of all records, without any of this package's caches.
func plainFold(t testing.TB, recs []chunk.Record) string {
	t.Helper()
	f := fold.New("s")
	for _, r := range recs {
		if err := f.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	return asJSON(t, f)
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func viewJSON(t testing.TB, g *Log) string {
	t.Helper()
	var s string
	if err := g.View(context.Background(), func(f *fold.Fold) error { s = asJSON(t, f); return nil }); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestViewIsTheFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		ctx := context.Background()
		if err := g.View(ctx, func(*fold.Fold) error { return nil }); !errors.Is(err, ErrNotFound) {
			t.Errorf("view of nothing: %v", err)
		}
		w := g.Writer(store.claim("s"), WriterOptions{})
		turn(t, g, w, "a", 5)
		first := uint64(len(store.log("s")))
		if got, want := viewJSON(t, g), plainFold(t, store.log("s")); got != want {
			t.Errorf("view %s\nwant %s", got, want)
		}
		turn(t, g, w, "b", 2100)
		if got, want := viewJSON(t, g), plainFold(t, store.log("s")); got != want {
			t.Error("the view differs after a second turn")
		}
		synctest.Wait()
		if n := store.called("savefold"); n != 1 {
			t.Fatalf("%d folds saved", n)
		}
		turn(t, g, w, "c", 5)
		want := plainFold(t, store.log("s"))

		// Another process begins with the saved fold.
		elsewhere := NewLogs(store, nil)
		defer elsewhere.Close()
		reads := store.called("read")
		if got := viewJSON(t, mustLog(t, elsewhere)); got != want {
			t.Errorf("from the saved fold\n%s\nwant\n%s", got, want)
		}
		if n := store.called("read") - reads; n > 2 {
			t.Errorf("%d reads although a fold was saved", n)
		}
		f, err := g.FoldAt(ctx, first)
		if err != nil || asJSON(t, f) != plainFold(t, store.log("s")[:first]) {
			t.Errorf("fold at %d: %v", first, err)
		}
		if _, err := g.FoldAt(ctx, 1<<40); !errors.Is(err, ErrCursorAhead) {
			t.Errorf("fold beyond the head: %v", err)
		}
		failure := errors.New("mine")
		if err := g.View(ctx, func(*fold.Fold) error { return failure }); err != failure {
			t.Error(err)
		}
	})
}

// Trimming trace of settled turns does not change the fold, whether it is read
// again or was half folded before.
func TestViewOfTrimmedLog(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	turn(t, g, w, "a", 50)
	half := NewLogs(store, nil)
	defer half.Close()
	viewJSON(t, mustLog(t, half))
	turn(t, g, w, "b", 50)
	turn(t, g, w, "c", 50)
	want := plainFold(t, store.log("s"))
	head, err := g.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Trim(ctx, "s", head.Seq, 0); err != nil {
		t.Fatal(err)
	}
	fresh := NewLogs(store, nil)
	defer fresh.Close()
	for name, logs := range map[string]*Logs{"fresh": fresh, "half folded": half, "own": g.logs} {
		if got := viewJSON(t, mustLog(t, logs)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	f, err := mustLog(t, fresh).FoldAt(ctx, head.Seq)
	if err != nil || asJSON(t, f) != want {
		t.Errorf("fold at the head: %v", err)
	}
}

// A saved fold of another incarnation or version is ignored.
func TestForeignSavedFoldIsIgnored(t *testing.T) {
	store, g := newTestLog(t, nil)
	w := g.Writer(store.claim("s"), WriterOptions{})
	turn(t, g, w, "a", 5)
	want := plainFold(t, store.log("s"))
	for _, saved := range []SavedFold{
		{Version: fold.Version + 1, Incarnation: 1, Seq: 5, Data: []byte(`{"session":"s","seq":5}`)},
		{Version: fold.Oldest, Incarnation: 1, Seq: 5, Data: []byte(`{"session":"s","seq":5}`)},
		{Version: fold.Oldest - 1, Incarnation: 1, Seq: 5, Data: []byte(`{"session":"s","seq":5}`)},
		{Version: fold.Version, Incarnation: 2, Seq: 5, Data: []byte(`{"session":"s","seq":5}`)},
		{Version: fold.Version, Incarnation: 1, Seq: 5000, Data: []byte(`{"session":"s","seq":5000}`)},
		{Version: fold.Version, Incarnation: 1, Seq: 5, Data: []byte(`nonsense`)},
	} {
		if err := store.SaveFold(context.Background(), "s", FoldName, saved); err != nil {
			t.Fatal(err)
		}
		logs := NewLogs(store, nil)
		if got := viewJSON(t, mustLog(t, logs)); got != want {
			t.Errorf("with %+v: %s", saved, got)
		}
		logs.Close()
	}
}

// Where kept records are gone, a saved fold of an earlier version is all that is left of
// them, and is used.
func TestSavedFoldOfGoneRecords(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	turn(t, g, w, "a", 5)
	f := fold.New("s")
	for _, r := range store.log("s") {
		if err := f.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	data, err := f.Save()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.SaveFold(ctx, "s", FoldName, SavedFold{Version: fold.Oldest, Incarnation: 1, Seq: f.Seq, Data: data}); err != nil {
		t.Fatal(err)
	}
	turn(t, g, w, "b", 5)
	want := plainFold(t, store.log("s"))
	if err := store.Trim(ctx, "s", f.Seq, f.Seq); err != nil {
		t.Fatal(err)
	}
	logs := NewLogs(store, nil)
	defer logs.Close()
	if got := viewJSON(t, mustLog(t, logs)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

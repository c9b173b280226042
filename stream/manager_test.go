package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
)

func newManager(t *testing.T) (*stream.Manager, *spool.Logs) {
	t.Helper()
	store := memstore.New(nil)
	logs := spool.NewLogs(store, nil)
	t.Cleanup(func() { _ = logs.Close() })
	return stream.NewManager(logs, nil), logs
}

func write(t *testing.T, w *stream.Writer, chunks ...chunk.Chunk) {
	t.Helper()
	for _, c := range chunks {
		if err := w.Write(t.Context(), c); err != nil {
			t.Fatalf("Write(%T): %v", c, err)
		}
	}
}

func create(t *testing.T, m *stream.Manager, body, agent string) *stream.Writer {
	t.Helper()
	w, err := m.CreateWriter(t.Context(), body, agent, "writer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func types(chunks []stream.StoredChunk) []chunk.Type {
	var list []chunk.Type
	for _, c := range chunks {
		list = append(list, c.Chunk.ChunkType())
	}
	return list
}

func info(t *testing.T, m *stream.Manager, body string) *stream.Info {
	t.Helper()
	i, err := m.GetStreamInfo(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func view(t *testing.T, logs *spool.Logs, body string, fn func(*fold.Fold)) {
	t.Helper()
	g, err := logs.Log(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.View(t.Context(), func(f *fold.Fold) error { fn(f); return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestStreamManagerLife(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	if i := info(t, m, "s"); i != nil {
		t.Fatalf("info of no stream: %+v", i)
	}
	w := create(t, m, "s", "s")
	write(t, w,
		&chunk.TextDelta{Delta: "Hel"}, &chunk.TextDelta{Delta: "lo"},
		&chunk.ToolArgStreamStart{ToolCallID: "c", ToolName: "t"},
		&chunk.ToolArgStreamDelta{ToolCallID: "c", Delta: `{"a":1}`},
		&chunk.ToolArgStreamEnd{ToolCallID: "c"},
		&chunk.ToolStart{ToolCallID: "c", ToolName: "t", Arguments: json.RawMessage(`{"a":1}`)},
		&chunk.ToolEnd{ToolCallID: "c", ToolName: "t", Result: json.RawMessage(`1`), Success: true})
	if i := info(t, m, "s"); i.Status != chunk.StatusActive || i.TotalChunks != 10 || i.LatestSequence != 10 {
		t.Errorf("info of an open stream: %+v", i)
	}
	if err := m.EndStream(t.Context(), "s", json.RawMessage(`{"answer":42}`)); err != nil {
		t.Fatal(err)
	}
	if i := info(t, m, "s"); i.Status != chunk.StatusEnded || i.Error != "" {
		t.Errorf("info of an ended stream: %+v", i)
	}
	all, err := m.GetAllChunks(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		b := c.Chunk.ChunkBase()
		if c.Sequence != uint64(i+1) || b.AgentID != "s" || b.RunID == "" || b.Timestamp == 0 {
			t.Errorf("chunk %d: sequence %d, base %+v", i+1, c.Sequence, b)
		}
	}
	got := types(all)
	if got[0] != chunk.TypeRunStarted || got[len(got)-1] != chunk.TypeRunFinished || !slices.Contains(got, chunk.TypeOutput) || !slices.Contains(got, chunk.TypeAssistantMessage) {
		t.Errorf("the log holds %v", got)
	}
	view(t, logs, "s", func(f *fold.Fold) {
		if f.Live() || len(f.Messages) != 1 || f.Messages[0].Text() != "Hello" {
			t.Errorf("the fold: live %v, messages %s", f.Live(), mustJSON(f.Messages))
		}
		if call := f.Messages[0].Parts[2].Tool; call == nil || call.State != chunk.ToolCompleted || string(call.Output) != "1" || string(call.Input) != `{"a":1}` {
			t.Errorf("the call: %s", mustJSON(call))
		}
	})
	if err := w.Write(t.Context(), &chunk.TextDelta{Delta: "late"}); !errors.Is(err, spool.ErrClosed) {
		t.Errorf("a write after the end: %v", err)
	}
	if err := m.EndStream(t.Context(), "s", nil); err != nil {
		t.Errorf("a second end: %v", err)
	}
	text, err := stream.CollectText(m.CreateReader(t.Context(), "s"))
	if err != nil || text != "Hello" {
		t.Errorf("the reader's text: %q, %v", text, err)
	}
}

func TestStreamManagerTurns(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	write(t, create(t, m, "s", ""), &chunk.TextDelta{Base: chunk.Base{Step: 1}, Delta: "one"})
	if err := m.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	before := info(t, m, "s").LatestSequence
	w := create(t, m, "s", "")
	write(t, w, &chunk.TextDelta{Base: chunk.Base{Step: 1}, Delta: "two"}, &chunk.TextDelta{Base: chunk.Base{Step: 2}, Delta: "three"}, &chunk.TextDelta{Base: chunk.Base{Step: 3}, Delta: "four"})
	since, err := m.GetChunksFromSequence(t.Context(), "s", before)
	if err != nil || len(since) != 11 || since[0].Sequence != before+1 {
		t.Errorf("the second turn: %v, %v", types(since), err)
	}
	if got, err := m.GetChunksFromStep(t.Context(), "s", 2); err != nil || len(got) != 6 || got[0].Sequence != before+6 {
		t.Errorf("from step 2: %v, %v", got, err)
	}
	if got, err := m.GetChunksFromStep(t.Context(), "s", 9); err != nil || len(got) != 0 {
		t.Errorf("from step 9: %v, %v", got, err)
	}
	view(t, logs, "s", func(f *fold.Fold) {
		if len(f.Turns) != 2 || f.Turns[0].ID == f.Turns[1].ID {
			t.Errorf("turns: %s", mustJSON(f.Turns))
		}
	})
}

func TestStreamManagerFails(t *testing.T) {
	t.Parallel()
	m, _ := newManager(t)
	write(t, create(t, m, "s", "s"), &chunk.TextDelta{Delta: "Hel"})
	r, err := m.CreateResumableReader(t.Context(), "s", 0)
	if err != nil || r.Status() != chunk.StatusActive {
		t.Fatalf("%v, %v", r, err)
	}
	if err := m.FailStream(t.Context(), "s", "boom"); err != nil {
		t.Fatal(err)
	}
	if i := info(t, m, "s"); i.Status != chunk.StatusFailed || i.Error != "boom" {
		t.Errorf("info of a failed stream: %+v", i)
	}
	for {
		_, err := r.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.End() != nil {
			t.Fatal("an end before the end")
		}
	}
	if end := r.End(); end == nil || *end != (stream.EndSentinel{Status: chunk.StatusFailed, Error: "boom"}) {
		t.Errorf("the end: %+v", end)
	}
	if got := mustJSON(r.End()); got != `{"__streamEnd":true,"status":"failed","error":"boom"}` {
		t.Errorf("the sentinel: %s", got)
	}
	if _, err := r.Next(t.Context()); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	for _, body := range []string{"s", "none"} {
		if r, err := m.CreateResumableReader(t.Context(), body, 0); r != nil || err != nil {
			t.Errorf("a resumable reader of %s: %v, %v", body, r, err)
		}
	}
}

func TestStreamManagerPauses(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	w := create(t, m, "s", "s")
	write(t, w, &chunk.TextDelta{Delta: "May I?"},
		&chunk.ToolArgStreamStart{ToolCallID: "c", ToolName: "t"}, &chunk.ToolArgStreamEnd{ToolCallID: "c", Arguments: json.RawMessage(`{}`)},
		&chunk.ToolApprovalRequest{ApprovalID: "a", ToolCallID: "c", ToolName: "t", Input: json.RawMessage(`{}`)})
	if err := m.PauseStream(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if i := info(t, m, "s"); i.Status != chunk.StatusPaused {
		t.Errorf("info of a paused stream: %+v", i)
	}
	r, err := m.CreateResumableReader(t.Context(), "s", 2)
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.Next(t.Context())
	if err != nil || first.Sequence != 3 || r.CurrentSequence() != 3 || r.TotalChunks() != info(t, m, "s").TotalChunks {
		t.Errorf("the first chunk after 2: %+v, %v; at %d of %d", first, err, r.CurrentSequence(), r.TotalChunks())
	}
	for _, err := range r.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if end := r.End(); end == nil || end.Status != chunk.StatusPaused {
		t.Errorf("the end of a paused stream: %+v", end)
	}
	if err := w.Write(t.Context(), &chunk.TextDelta{Delta: "x"}); !errors.Is(err, spool.ErrClosed) {
		t.Errorf("a write while paused: %v", err)
	}
	if err := m.ResumeStream(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	write(t, create(t, m, "s", "s"), &chunk.TextDelta{Delta: " Thanks."})
	if err := m.ResumeStream(t.Context(), "s"); err != nil {
		t.Errorf("resuming an open stream: %v", err)
	}
	if err := m.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	view(t, logs, "s", func(f *fold.Fold) {
		if len(f.Turns) != 1 || len(f.Turns[0].Runs) != 2 || f.Turns[0].Runs[0].Suspended != "awaiting_approval" || f.Messages[0].Text() != "May I? Thanks." {
			t.Errorf("the fold: turns %s, messages %s", mustJSON(f.Turns), mustJSON(f.Messages))
		}
	})
	if err := m.ResumeStream(t.Context(), "s"); !errors.Is(err, chunk.ErrInvalid) {
		t.Errorf("resuming an ended stream: %v", err)
	}
	if err := m.ResumeStream(t.Context(), "none"); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("resuming no stream: %v", err)
	}
}

// Two processes: the later claim wins, goes on with the same run, and the loser
// writes no more.
func TestStreamManagerIsFenced(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	one, two := spool.NewLogs(store, nil), spool.NewLogs(store, nil)
	t.Cleanup(func() { _ = one.Close(); _ = two.Close() })
	m1, m2 := stream.NewManager(one, nil), stream.NewManager(two, nil)
	w1 := create(t, m1, "s", "s")
	write(t, w1, &chunk.TextDelta{Delta: "a"})
	w2 := create(t, m2, "s", "s")
	write(t, w2, &chunk.TextDelta{Delta: "b"})
	if err := w1.Write(t.Context(), &chunk.TextDelta{Delta: "c"}); !errors.Is(err, spool.ErrSuperseded) {
		t.Errorf("the loser's write: %v", err)
	}
	write(t, create(t, m1, "s", "s"), &chunk.TextDelta{Delta: "d"}) // it may take the stream back
	if err := m1.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	all, err := m2.GetAllChunks(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	want := []chunk.Type{chunk.TypeRunStarted, chunk.TypeStepStarted, chunk.TypeTextDelta, chunk.TypeExecutorSuperseded, chunk.TypeTextDelta, chunk.TypeExecutorSuperseded, chunk.TypeTextDelta, chunk.TypeAssistantMessage}
	if got := types(all); !reflect.DeepEqual(got[:len(want)], want) {
		t.Errorf("the log holds %v", got)
	}
}

func TestStreamManagerAnswersACommand(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	g, err := logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Command(t.Context(), spool.Row{}, &chunk.UserMessage{CommandID: "cmd", Message: chunk.Message{ID: "u", Role: chunk.RoleUser, Parts: []chunk.Part{}}}); err != nil {
		t.Fatal(err)
	}
	write(t, create(t, m, "s", "s"), &chunk.TextDelta{Delta: "yes"})
	if err := m.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	view(t, logs, "s", func(f *fold.Fold) {
		if v := f.Verdict("cmd"); v.State != fold.VerdictAccepted || f.LastTurn().ID != "cmd" {
			t.Errorf("verdict %+v, turn %s", v, f.LastTurn().ID)
		}
	})
	if h, err := g.Head(t.Context()); err != nil || h.Due != 0 {
		t.Errorf("head %+v, %v: still due", h, err)
	}
}

func TestStreamManagerReaderFollows(t *testing.T) {
	t.Parallel()
	m, _ := newManager(t)
	w := create(t, m, "s", "s")
	write(t, w, &chunk.TextDelta{Delta: "a"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan string)
	go func() {
		defer close(got)
		for c, err := range stream.FilterByType(m.CreateReader(ctx, "s"), chunk.TypeTextDelta) {
			if err != nil {
				return
			}
			got <- c.(*chunk.TextDelta).Delta
		}
	}()
	for _, s := range []string{"a", "b", "c"} {
		if s != "a" {
			write(t, w, &chunk.TextDelta{Delta: s})
		}
		if g := <-got; g != s {
			t.Errorf("read %q, want %q", g, s)
		}
	}
	if err := m.EndStream(ctx, "s", nil); err != nil {
		t.Fatal(err)
	}
	if s, open := <-got; open {
		t.Errorf("read %q after the end", s)
	}
}

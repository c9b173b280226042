package stream_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/stream"
)

// TestStateStore: the state of a session is what its log says, while a stream is
// written and after.
func TestStateStore(t *testing.T) {
	t.Parallel()
	m, logs := newManager(t)
	states := stream.NewStateStore(logs)
	ctx := t.Context()

	if s, err := states.LoadState(ctx, "s"); s != nil || err != nil {
		t.Errorf("state of no session: %+v, %v", s, err)
	}
	if r, err := states.GetCurrentRun(ctx, "s"); r != nil || err != nil {
		t.Errorf("run of no session: %+v, %v", r, err)
	}
	if ok, err := states.SessionExists(ctx, "s"); ok || err != nil {
		t.Errorf("no session exists: %v, %v", ok, err)
	}
	if p, err := states.GetMessages(ctx, "s", 0, 0); len(p.Messages) != 0 || p.HasMore || err != nil {
		t.Errorf("messages of no session: %+v, %v", p, err)
	}
	if err := states.DeleteSession(ctx, "s"); err != nil {
		t.Errorf("deleting no session: %v", err)
	}

	for _, text := range []string{"one", "two"} {
		write(t, create(t, m, "s", "s"), &chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "add", Path: "", Value: json.RawMessage(`{"last":"` + text + `"}`)}}},
			&chunk.TextDelta{Delta: text})
		if text == "one" {
			if err := m.EndStream(ctx, "s", nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	run, err := states.GetCurrentRun(ctx, "s")
	if err != nil || run == nil || run.Status != chunk.StatusActive || run.Mode != "external" || run.EndTime != 0 || run.AgentType != "writer" {
		t.Fatalf("the open run: %+v, %v", run, err)
	}
	// Its StartSequence selects the chunks of its turn and no others.
	chunks, err := m.GetChunksFromSequence(ctx, "s", run.StartSequence)
	if err != nil || len(chunks) == 0 || chunks[0].Sequence != run.StartSequence+1 || !chunk.Is(chunks[0].Chunk, chunk.TypeRunStarted) {
		t.Errorf("the turn's chunks: %v, %v", types(chunks), err)
	}
	for _, c := range chunks {
		if id := c.Chunk.ChunkBase().RunID; id != run.RunID {
			t.Errorf("chunk %d is of run %s, not %s", c.Sequence, id, run.RunID)
		}
	}
	if s, err := states.LoadState(ctx, "s"); err != nil || s.Status != chunk.StatusActive || len(s.Messages) != 2 || s.Messages[1].Text() != "two" || string(s.State) != `{"last":"two"}` || s.StreamSequence != info(t, m, "s").LatestSequence {
		t.Errorf("the state of an open stream: %s, %v", mustJSON(s), err)
	}

	if err := m.FailStream(ctx, "s", "boom"); err != nil {
		t.Fatal(err)
	}
	if run, err = states.GetCurrentRun(ctx, "s"); err != nil || run.Status != chunk.StatusFailed || run.Reason != "failed" || run.EndTime == 0 {
		t.Errorf("the failed run: %+v, %v", run, err)
	}
	s, err := states.LoadState(ctx, "s")
	if err != nil || s.Status != chunk.StatusFailed || s.Error == nil || s.Error.Error != "boom" || s.StartSequence != run.StartSequence {
		t.Errorf("the state of a failed stream: %s, %v", mustJSON(s), err)
	}
	for _, tt := range []struct {
		offset, limit int
		want          string
		more          bool
	}{{0, 0, "one two", false}, {0, 1, "one", true}, {1, 1, "two", false}, {2, 1, "", false}, {9, 9, "", false}} {
		p, err := states.GetMessages(ctx, "s", tt.offset, tt.limit)
		got := ""
		for i := range p.Messages {
			if i > 0 {
				got += " "
			}
			got += p.Messages[i].Text()
		}
		if err != nil || got != tt.want || p.HasMore != tt.more {
			t.Errorf("messages from %d, at most %d: %q, more %v, %v", tt.offset, tt.limit, got, p.HasMore, err)
		}
	}
	if _, err := states.GetMessages(ctx, "s", -1, 0); !errors.Is(err, chunk.ErrInvalid) {
		t.Errorf("a negative offset: %v", err)
	}

	if err := states.DeleteSession(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if ok, err := states.SessionExists(ctx, "s"); ok || err != nil {
		t.Errorf("a deleted session exists: %v, %v", ok, err)
	}
	for _, err := range []error{states.DeleteSession(ctx, "a/b"), func() error { _, err := states.LoadState(ctx, "a/b"); return err }()} {
		if !errors.Is(err, chunk.ErrInvalidID) {
			t.Errorf("a bad id: %v", err)
		}
	}
}

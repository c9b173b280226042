package spool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
)

func TestWriterToReader(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	if _, err := g.Command(ctx, Row{}, say("c1", "hello")); err != nil {
		t.Fatal(err)
	}
	w := g.Writer(store.claim("s"), WriterOptions{AgentType: "chat", RunID: "r1"})
	defer w.Close()
	w.SetStep(1)
	if _, err := w.Commit(ctx, Row{Status: chunk.StatusActive}, nil, &chunk.RunStarted{TurnID: "c1", MessageID: "m1"}); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := w.Append(ctx, text(fmt.Sprint(i, " "))); err != nil {
			t.Fatal(err)
		}
	}
	res, err := w.Commit(ctx, Row{Status: chunk.StatusEnded}, &Settle{Seen: 1}, &chunk.StepCommitted{}, &chunk.RunFinished{Outcome: chunk.OutcomeCompleted})
	if err != nil {
		t.Fatal(err)
	}
	if res.First != 53 || res.Last != 54 || res.Head.Status != chunk.StatusEnded || res.Head.Due != 0 {
		t.Fatalf("commit answered %+v", res)
	}
	recs := readAll(t, g, Cursor{})
	if len(recs) != 54 {
		t.Fatalf("%d records, want 54", len(recs))
	}
	contiguous(t, recs, 0)
	c, err := chunk.Decode(recs[2].Data)
	if err != nil {
		t.Fatal(err)
	}
	if b := c.ChunkBase(); b.AgentID != "s" || b.AgentType != "chat" || b.RunID != "r1" || b.Step != 1 || b.Timestamp == 0 {
		t.Errorf("base fields %+v", b)
	}
	if recs[2].Agent != "s" || recs[2].Class != chunk.Trace || recs[2].Type != chunk.TypeTextDelta || recs[2].Time != c.ChunkBase().Timestamp {
		t.Errorf("record %+v", recs[2])
	}
	if r := recs[53]; r.Class != chunk.Kept || r.Type != chunk.TypeRunFinished {
		t.Errorf("last record %+v", r)
	}
	if n := len(readAll(t, g, Cursor{Seq: 54})); n != 0 {
		t.Errorf("%d records after the head", n)
	}
	if got := readAll(t, g, Cursor{Seq: 20}); len(got) != 34 {
		t.Errorf("%d records after 20, want 34", len(got))
	}
}

func TestWriterGroupsWhatArrivesMeanwhile(t *testing.T) {
	store, g := newTestLog(t, nil)
	store.gate = make(chan struct{}, 100)
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	defer w.Close()
	for i := range 100 {
		if err := w.Append(ctx, text(fmt.Sprint(i, " "))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Append(ctx, &chunk.StepCommitted{}, text("after"), text("wards")); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		store.gate <- struct{}{}
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	// The first append may have left with one record; trace, kept and trace follow.
	if n := store.called("append"); n > 4 {
		t.Errorf("%d appends", n)
	}
	recs := store.log("s")
	if len(recs) != 103 || recs[100].Type != chunk.TypeStepCommitted {
		t.Fatalf("%d records", len(recs))
	}
}

func TestCommitKeepsItsChunksTogether(t *testing.T) {
	store, g := newTestLog(t, &Options{BatchRecords: 4})
	store.gate = make(chan struct{}, 100)
	var sizes []int
	store.fault = func(a Append) (error, error) { sizes = append(sizes, len(a.Records)); return nil, nil }
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	defer w.Close()
	step := func() chunk.Chunk { return &chunk.StepCommitted{} }
	if err := w.Append(ctx, step(), step(), step(), step()); err != nil { // occupies the first append
		t.Fatal(err)
	}
	if err := w.Append(ctx, step(), step()); err != nil {
		t.Fatal(err)
	}
	done := make(chan Appended, 1)
	go func() {
		res, err := w.Commit(ctx, Row{Status: chunk.StatusEnded}, nil, step(), step(), step())
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	for range 10 {
		store.gate <- struct{}{}
	}
	if res := <-done; res.First != 7 || res.Last != 9 {
		t.Errorf("commit at %d..%d, want 7..9", res.First, res.Last)
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	if fmt.Sprint(sizes) != "[4 2 3]" {
		t.Errorf("appends of %v records, want [4 2 3]", sizes)
	}
}

func TestCommitWithoutChunks(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	defer w.Close()
	res, err := w.Commit(ctx, Row{Status: chunk.StatusPaused}, &Settle{Next: 7})
	if err != nil || res.Head.Status != chunk.StatusPaused || res.Head.Due != 7 || res.First <= res.Last {
		t.Fatalf("commit answered %+v, %v", res, err)
	}
}

func TestSupersededSticks(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	defer w.Close()
	if err := w.Append(ctx, text("mine")); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	store.claim("s")
	if _, err := w.Commit(ctx, Row{}, nil, text("lost")); !errors.Is(err, ErrSuperseded) {
		t.Fatalf("commit under an old epoch: %v", err)
	}
	calls := store.called("append")
	for range 3 {
		if err := w.Append(ctx, text("lost too")); !errors.Is(err, ErrSuperseded) {
			t.Fatalf("append after it: %v", err)
		}
	}
	if n := store.called("append"); n != calls {
		t.Error("the writer tried again")
	}
	if got := deltas(t, store.log("s")); got != "mine" {
		t.Errorf("log says %q", got)
	}
}

// A store that loses every other request or answer ends with each chunk once.
func TestUnknownOutcomesAreSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, &Options{BatchRecords: 3})
		lost := errors.New("connection lost")
		n := 0
		store.fault = func(Append) (error, error) {
			n++
			switch n % 5 {
			case 1, 2:
				return nil, lost
			case 3:
				return lost, nil
			}
			return nil, nil
		}
		ctx := context.Background()
		w := g.Writer(store.claim("s"), WriterOptions{})
		defer w.Close()
		var want strings.Builder
		for i := range 200 {
			s := fmt.Sprint(i, " ")
			want.WriteString(s)
			if err := w.Append(ctx, text(s)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if got := deltas(t, store.log("s")); got != want.String() {
			t.Errorf("log says %q", got)
		}
		if got := deltas(t, readAll(t, g, Cursor{})); got != want.String() {
			t.Errorf("a reader sees %q", got)
		}
	})
}

// A writer repeats an append of unknown outcome for as long as that takes, and
// [Log.Append] for the lease's TTL.
func TestUnknownOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		lease := store.claim("s")
		w := g.Writer(lease, WriterOptions{})
		defer w.Close()
		var back atomic.Bool
		store.fault = func(Append) (error, error) {
			if back.Load() {
				return nil, nil
			}
			return errors.New("connection lost"), nil
		}
		begun := time.Now()
		_, err := g.Append(t.Context(), lease, Entry{Writer: "direct", Ordinal: 1, Chunks: []chunk.Chunk{text("x")}})
		if !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		if d := time.Since(begun); d < lease.TTL || d > lease.TTL+2*time.Second {
			t.Errorf("gave up after %v", d)
		}
		long, cancel := context.WithTimeout(t.Context(), 10*lease.TTL)
		defer cancel()
		if _, err := w.Commit(long, Row{}, nil, text("y")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the writer: %v", err)
		}
		back.Store(true)
		if err := w.Flush(t.Context()); err != nil {
			t.Errorf("when the store is back: %v", err)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		store.gate = make(chan struct{})
		w := g.Writer(store.claim("s"), WriterOptions{QueueBytes: 10_000})
		defer w.Close()
		queued := 0
		blocked, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			for {
				if err := w.Append(blocked, text(strings.Repeat("x", 900))); err != nil {
					done <- err
					return
				}
				queued++
			}
		}()
		synctest.Wait()
		if queued < 8 || queued > 10 {
			t.Errorf("%d chunks of about 1000 bytes went into a queue of 10000", queued)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(store.gate)
		if err := w.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := len(store.log("s")); n != queued {
			t.Errorf("%d stored of %d", n, queued)
		}
	})
}

func TestLargeTextIsSplitAtRunes(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	defer w.Close()
	long := strings.Repeat("aé€😀\x01", 60_000)
	if err := w.Append(ctx, text(long)); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(ctx, &chunk.StepStarted{StepID: strings.Repeat("x", chunk.MaxRecordBytes)}); !errors.Is(err, chunk.ErrTooLarge) || !strings.Contains(err.Error(), "step_started") {
		t.Errorf("a large step id: %v", err)
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	recs := store.log("s")
	if len(recs) < 2 || deltas(t, recs) != long {
		t.Errorf("%d records do not add up to the text", len(recs))
	}
	for _, r := range recs {
		if len(r.Data) > chunk.MaxRecordBytes {
			t.Errorf("a record of %d bytes", len(r.Data))
		}
	}
}

func TestUnknownChunkIsFilled(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{RunID: "r"})
	defer w.Close()
	c, err := chunk.Decode([]byte(`{"type":"x_new","agentType":"mine","n":1} `))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(ctx, Row{}, nil, c); err != nil {
		t.Fatal(err)
	}
	r := store.log("s")[0]
	got, err := chunk.Decode(r.Data)
	if err != nil {
		t.Fatal(err)
	}
	if b := got.ChunkBase(); b.AgentID != "s" || b.AgentType != "mine" || b.RunID != "r" || b.Timestamp != r.Time || r.Time == 0 {
		t.Errorf("%s", r.Data)
	}
}

func TestTwoWritersOfALease(t *testing.T) {
	store, g := newTestLog(t, &Options{BatchRecords: 2})
	lease := store.claim("s")
	ctx := context.Background()
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		w := g.Writer(lease, WriterOptions{Name: name, AgentID: "s." + name})
		defer w.Close()
		wg.Go(func() {
			for i := range 100 {
				if err := w.Append(ctx, text(fmt.Sprint(i, " "))); err != nil {
					t.Error(err)
				}
			}
			if err := w.Flush(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	recs := readAll(t, g, Cursor{})
	contiguous(t, recs, 0)
	by := map[string][]chunk.Record{}
	for _, r := range recs {
		by[r.Agent] = append(by[r.Agent], r)
	}
	for agent, recs := range by {
		if got := deltas(t, recs); len(recs) != 100 || !strings.HasPrefix(got, "0 1 2 ") || !strings.HasSuffix(got, "98 99 ") {
			t.Errorf("%s wrote %q", agent, got)
		}
	}
}

func TestClosedWriterAndLogs(t *testing.T) {
	store := newFakeStore()
	logs := NewLogs(store, nil)
	g := mustLog(t, logs)
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	w.Close()
	if err := w.Append(ctx, text("x")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	r := g.Reader(ReadOptions{Follow: true})
	waits := make(chan error)
	go func() {
		_, err := r.Next(ctx)
		waits <- err
	}()
	w2 := g.Writer(store.claim("s"), WriterOptions{})
	logs.Close()
	if err := <-waits; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := w2.Append(ctx, text("x")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := logs.Log("s"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

package spool

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// newTestLog returns a store and a log of the logs of one process over it.
func newTestLog(t testing.TB, o *Options) (*fakeStore, *Log) {
	t.Helper()
	store := newFakeStore()
	logs := NewLogs(store, o)
	t.Cleanup(func() { logs.Close() })
	return store, mustLog(t, logs)
}

func mustLog(t testing.TB, logs *Logs) *Log {
	t.Helper()
	g, err := logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func text(s string) *chunk.TextDelta { return &chunk.TextDelta{Delta: s} }

func say(id, s string) *chunk.UserMessage {
	return &chunk.UserMessage{CommandID: id, Message: chunk.Message{ID: id, Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: s}}}}
}

// readAll reads to the log's quiet.
func readAll(t testing.TB, g *Log, after Cursor) []chunk.Record {
	t.Helper()
	var out []chunk.Record
	for r, err := range g.Records(context.Background(), ReadOptions{After: after}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func deltas(t testing.TB, recs []chunk.Record) string {
	t.Helper()
	var b strings.Builder
	for _, r := range recs {
		c, err := chunk.Decode(r.Data)
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := c.(*chunk.TextDelta); ok {
			b.WriteString(d.Delta)
		}
	}
	return b.String()
}

func contiguous(t testing.TB, recs []chunk.Record, after uint64) {
	t.Helper()
	for i, r := range recs {
		if want := after + 1 + uint64(i); r.Seq != want {
			t.Fatalf("record %d has sequence %d, want %d", i, r.Seq, want)
		}
	}
}

// lateHead is a store whose answer about the head arrives after something else happened.
type lateHead struct {
	*fakeStore
	meanwhile func()
}

func (l *lateHead) Head(ctx context.Context, session string) (Head, error) {
	h, err := l.fakeStore.Head(ctx, session)
	if fn := l.meanwhile; fn != nil {
		l.meanwhile = nil
		fn()
	}
	return h, err
}

// A session that is created while somebody asks whether it exists is not forgotten when the
// answer comes: what its creator does next sees it.
func TestCreatedWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lateHead{fakeStore: newFakeStore()}
		logs := NewLogs(store, nil)
		defer logs.Close()
		g, err := logs.Log("s")
		if err != nil {
			t.Fatal(err)
		}
		var made Appended
		store.meanwhile = func() {
			if made, err = g.Command(t.Context(), Row{}, say("c1", "hi")); err != nil {
				t.Error(err)
			}
		}
		if _, err := g.Head(t.Context()); !errors.Is(err, ErrNotFound) {
			t.Fatalf("the answer from before: %v", err)
		}
		if g.Known() != made.Head {
			t.Errorf("known is %+v, and stored is %+v", g.Known(), made.Head)
		}
		if err := g.ViewAt(t.Context(), made.Head, func(f *fold.Fold) error { return nil }); err != nil {
			t.Errorf("its creator's view: %v", err)
		}
	})
}

// If a store says that nothing was stored, who waits for the append learns it at once, and
// a run's writer goes on trying.
func TestNotStoredIsKnown(t *testing.T) {
	full := ErrUnavailable.Because("the disk is full").With("", ErrNotStored)
	full.Hint = "free disk space"
	check := func(t *testing.T, err error) {
		t.Helper()
		if e, ok := errors.AsType[*chunk.Error](err); !ok || e.Hint != full.Hint || e.Message != full.Message || !errors.Is(err, ErrNotStored) {
			t.Errorf("the error is %v", err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		lease := store.claim("s")
		tries, failing, first := 0, 1<<30, error(nil)
		var mu sync.Mutex
		store.fault = func(Append) (error, error) {
			mu.Lock()
			defer mu.Unlock()
			if tries++; tries == 1 && first != nil {
				return nil, first
			}
			if tries <= failing {
				return full, nil
			}
			return nil, nil
		}
		_, err := g.Command(t.Context(), Row{}, say("c1", "hi"))
		check(t, err)
		_, err = g.Append(t.Context(), lease, Entry{Writer: "w", Ordinal: 1, Chunks: []chunk.Chunk{text("x")}})
		check(t, err)
		if tries != 2 {
			t.Errorf("two appends were tried %d times", tries)
		}

		w := g.Writer(lease, WriterOptions{})
		defer w.Close()
		tries, failing = 0, 4
		if _, err := w.Commit(t.Context(), Row{}, nil, text("a")); err != nil || tries != 5 {
			t.Errorf("a writer whose disk was full for a while: %v after %d attempts", err, tries)
		}
		failing = 1 << 30
		long, cancel := context.WithTimeout(t.Context(), 10*lease.TTL)
		defer cancel()
		if _, err := w.Commit(long, Row{}, nil, text("b")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a writer whose disk stays full: %v", err)
		}
		mu.Lock()
		tries, failing = 0, 1
		mu.Unlock()
		if err := w.Flush(t.Context()); err != nil {
			t.Errorf("a writer whose disk has room again: %v", err)
		}

		// An attempt whose answer was lost may have been stored, whatever the next one says.
		tries, first, failing = 0, errors.New("answer lost"), 3
		if _, err := g.Command(t.Context(), Row{}, say("c2", "hi")); err != nil || tries != 4 {
			t.Errorf("%v after %d attempts", err, tries)
		}
	})
}

func TestCommandIsRepeatedUntilItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		n := 0
		store.fault = func(Append) (error, error) {
			if n++; n < 3 {
				return nil, errors.New("answer lost")
			}
			return nil, nil
		}
		res, err := g.Command(context.Background(), Row{}, say("c1", "hi"))
		if err != nil {
			t.Fatal(err)
		}
		if res.Head.Due == 0 || len(store.log("s")) != 3 {
			t.Errorf("%+v, %d records", res, len(store.log("s")))
		}
	})
}

func TestCommandRefuses(t *testing.T) {
	_, g := newTestLog(t, nil)
	ctx := context.Background()
	for name, test := range map[string]struct {
		c    chunk.Chunk
		want error
	}{
		"no command": {text("x"), chunk.ErrInvalidChunk},
		"bad id":     {say("a\nb", "x"), chunk.ErrInvalidID},
		"no id":      {say("", "x"), chunk.ErrInvalidID},
		"too large":  {manyParts("c", 10, chunk.MaxInlineBytes), chunk.ErrTooLarge},
	} {
		if _, err := g.Command(ctx, Row{}, test.c); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := g.Command(ctx, Row{}); !errors.Is(err, chunk.ErrInvalid) {
		t.Errorf("none: %v", err)
	}
}

// manyParts is a message of parts that are each just too small for a blob.
func manyParts(id string, n, size int) *chunk.UserMessage {
	m := say(id, "")
	for range n {
		m.Message.Parts = append(m.Message.Parts, chunk.Part{Type: chunk.PartText, Text: strings.Repeat("x", size)})
	}
	return m
}

// Append is one append, made where it is called; what does not fit is refused
// before anything is stored.
func TestAppendIsOneAppend(t *testing.T) {
	store, g := newTestLog(t, nil)
	lease := store.claim("s")
	before := store.calls["append"]
	res, err := g.Append(t.Context(), lease, Entry{Writer: "w", Ordinal: 1, Base: chunk.Base{RunID: "r"}, Row: Row{Status: chunk.StatusActive},
		Chunks: []chunk.Chunk{text("a"), &chunk.StepCommitted{StepID: "x"}, text("b")}})
	if err != nil || res.First != 1 || res.Last != 3 || res.Head.Status != chunk.StatusActive || store.calls["append"] != before+1 {
		t.Errorf("%+v, %v after %d appends", res, err, store.calls["append"]-before)
	}
	if g.Known() != res.Head {
		t.Errorf("known %+v, want %+v", g.Known(), res.Head)
	}
	large := text(strings.Repeat("x", 200<<10))
	_, err = g.Append(t.Context(), lease, Entry{Writer: "w", Ordinal: 4, Chunks: []chunk.Chunk{large, large, large}})
	if !errors.Is(err, chunk.ErrTooLarge) || store.calls["append"] != before+1 {
		t.Errorf("what is too large: %v after %d appends", err, store.calls["append"]-before)
	}
	store.claim("s")
	if _, err = g.Append(t.Context(), lease, Entry{Writer: "w", Ordinal: 4, Chunks: []chunk.Chunk{text("c")}}); !errors.Is(err, ErrSuperseded) {
		t.Errorf("under an old epoch: %v", err)
	}
}

// Two processes write on behalf of the same claim. What the store answers a repeat
// with is the other's: readers here see that, and not what was not stored.
func TestRepeatedAppendIsRead(t *testing.T) {
	store, g := newTestLog(t, nil)
	other := NewLogs(store, nil)
	defer other.Close()
	lease := store.claim("s")
	if _, err := mustLog(t, other).Append(t.Context(), lease, Entry{Writer: "w", Ordinal: 1, Chunks: []chunk.Chunk{text("theirs")}}); err != nil {
		t.Fatal(err)
	}
	res, err := g.Append(t.Context(), lease, Entry{Writer: "w", Ordinal: 1, Chunks: []chunk.Chunk{text("ours"), text(" too")}})
	if err != nil || !res.Repeated || res.Last != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := deltas(t, readAll(t, g, Cursor{})); got != "theirs" {
		t.Errorf("readers see %q", got)
	}
}

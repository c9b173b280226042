package spool

import (
	"errors"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
)

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

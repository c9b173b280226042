package spool

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
)

// bursts is a log that grows by more than its projection keeps, again and again.
type bursts struct {
	t     *testing.T
	store *fakeStore
	w     *Writer
	p     *Projection
	made  int // projectors
}

func newBursts(t *testing.T) *bursts {
	store, g := newTestLog(t, &Options{TailBytes: 2000})
	b := &bursts{t: t, store: store, w: g.Writer(store.claim("s"), WriterOptions{})}
	activate(t, b.w, chunk.StatusActive)
	b.p = g.Projection(ProjectionOptions{Key: "lines", New: func() Projector { b.made++; return &lines{} }})
	return b
}

// grow returns what a follower at the present end has to get of the growth.
func (b *bursts) grow(n int, f *Follower) string {
	b.t.Helper()
	for i := range 20 {
		put(b.t, b.w, fmt.Sprint(n, " ", i, strings.Repeat("x", 300)))
	}
	return sse(b.t, b.store.log("s"), f.At())
}

// drain reads to the head.
func (b *bursts) drain(f *Follower) string {
	b.t.Helper()
	var got strings.Builder
	for {
		batch, err := f.Poll(context.Background())
		if err != nil {
			b.t.Fatal(err)
		}
		if len(batch.Frames) == 0 {
			return got.String()
		}
		got.Write(batch.Bytes)
	}
}

// A follower that falls behind again continues with its own projector, and does not
// project the log from its start each time. Only a few of a projection's do: what they
// keep does not grow with the number of readers.
func TestFollowersThatFallBehindAgain(t *testing.T) {
	const readers, rounds = keptProjectors + 2, 10
	b := newBursts(t)
	var followers [readers]*Follower
	for i := range followers {
		followers[i] = b.p.Follow(Head{}, 0)
		b.drain(followers[i])
	}
	for round := range rounds {
		want := b.grow(round, followers[0])
		for i, f := range followers {
			if got := b.drain(f); got != want {
				t.Fatalf("round %d, reader %d: %d bytes, want %d", round, i, len(got), len(want))
			}
		}
	}
	if want := 1 + keptProjectors + (readers-keptProjectors)*rounds; b.made != want {
		t.Errorf("%d projectors were made, want %d", b.made, want)
	}
	for i, f := range followers {
		if kept := f.own != nil; kept != (i < keptProjectors) {
			t.Errorf("reader %d keeps a projector: %v", i, kept)
		}
	}
}

// What is trimmed while a follower is in the shared frames is no loss to it, although its
// own projector has not seen it.
func TestKeptProjectorBehindTrimmedTrace(t *testing.T) {
	b := newBursts(t)
	f := b.p.Follow(Head{}, 0)
	b.drain(f)
	b.grow(0, f)
	b.drain(f)
	if f.own == nil || !f.own.kept {
		t.Fatal("the follower keeps no projector")
	}
	for n := range 4 { // small enough to be read from the shared frames
		put(t, b.w, fmt.Sprint("small ", n))
		b.drain(f)
	}
	if _, err := b.w.Commit(context.Background(), Row{Status: chunk.StatusActive}, nil, &chunk.StepCommitted{}); err != nil {
		t.Fatal(err)
	}
	b.drain(f)
	if err := b.store.Trim(context.Background(), "s", f.At(), 0); err != nil {
		t.Fatal(err)
	}
	made := b.made
	want := b.grow(1, f)
	if got := b.drain(f); got != want || b.made != made+1 {
		t.Errorf("%d bytes, want %d; %d more projectors, want 1", len(got), len(want), b.made-made)
	}
}

package stream_test

import (
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/stream"
	"github.com/spool-run/spool/wire/aisdk"
)

var _ aisdk.Stored = stream.StoredChunk{}

// TestResumedReaderOnTheWire: what a reader gets from any position on becomes the frames
// of an AI SDK client, which take nothing back.
func TestResumedReaderOnTheWire(t *testing.T) {
	m, _ := newManager(t)
	w := create(t, m, "s", "")
	write(t, w, &chunk.TextDelta{Delta: "One "}, &chunk.TextDelta{Delta: "two "}, &chunk.TextDelta{Delta: "three."})
	if err := m.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	all, err := m.GetAllChunks(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	for after := range all {
		want := ""
		for _, s := range all[after:] {
			if delta, ok := s.Chunk.(*chunk.TextDelta); ok {
				want += delta.Delta
			}
		}
		r, err := m.CreateResumableReader(t.Context(), "s", uint64(after))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := aisdk.WriteStream(&b, aisdk.StoredToDataStream(r.All(t.Context()), nil)); err != nil {
			t.Fatal(err)
		}
		client := aisdk.Client{}
		if err := client.Write([]byte(b.String())); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range client.Message.Parts {
			got += p.Text
		}
		if got != want || !client.Done || strings.Contains(b.String(), "rollback") {
			t.Errorf("after %d: %q, want %q: %s", after, got, want, b.String())
		}
	}
}

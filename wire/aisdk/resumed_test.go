package aisdk_test

import (
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/aisdk"
)

type stored struct {
	c        chunk.Chunk
	sequence uint64
}

func (s stored) Stored() (chunk.Chunk, uint64) { return s.c, s.sequence }

// decoded returns the chunks of a log behind a sequence.
func decoded(t *testing.T, l *logOf, after uint64) (list []stored) {
	t.Helper()
	for _, r := range l.records {
		if r.Seq <= after {
			continue
		}
		c, err := chunk.Decode(r.Data)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, stored{c, r.Seq})
	}
	return list
}

// TestTransformerOfAResumedStream: a stream that is read from any position on becomes the
// frames of what follows, whether the chunks come with their sequences or without. What
// closes a phase, which has the whole phase, takes nothing back and repeats nothing.
func TestTransformerOfAResumedStream(t *testing.T) {
	l := toolsTurn(t)
	for after := range uint64(len(l.records)) {
		chunks := decoded(t, l, after)
		words := map[string]string{}
		for _, s := range chunks {
			switch c := s.c.(type) {
			case *chunk.TextDelta:
				words["text"] += c.Delta
			case *chunk.Thinking:
				if !c.IsComplete {
					words["reasoning"] += c.Content
				} else if after == 5 {
					words["reasoning"] = c.Content // all that is left of the block
				}
			}
		}
		at, counting := aisdk.NewTransformer(nil), aisdk.NewTransformer(nil)
		var own, counted []spool.Frame
		for _, s := range chunks {
			own = append(own, at.TransformAt(s.c, s.sequence)...)
			if at.TransformAt(s.c, s.sequence) != nil {
				t.Errorf("chunk %d is taken twice", s.sequence)
			}
			if c, ok := s.c.(*chunk.Thinking); after > 0 && ok && c.IsComplete && words["reasoning"] != c.Content {
				continue // without a position nothing says that this is not a last delta
			}
			frames, _ := counting.Transform(s.c)
			counted = append(counted, frames...)
		}
		for name, frames := range map[string][]spool.Frame{"own sequences": append(own, at.Finalize()...), "counted": append(counted, counting.Finalize()...)} {
			rd, err := read(&aisdk.Options{}, frames, true)
			if err != nil || rd.cut || !rd.client.Done {
				t.Fatalf("after %d, %s: %v, cut %v:\n%s", after, name, err, rd.cut, events(frames))
			}
			got := map[string]string{}
			for _, p := range rd.client.Message.Parts {
				if p.Text != "" {
					got[p.Type] += p.Text
				}
			}
			if _, delta := chunks[0].c.(*chunk.TextDelta); name == "counted" && after > 0 && !delta {
				continue // what was said before the position is not told from what was not streamed
			}
			if got["text"] != words["text"] || got["reasoning"] != words["reasoning"] {
				t.Errorf("after %d (%s), %s: %q, want %q", after, chunks[0].c.ChunkType(), name, got, words)
			}
		}
		for _, f := range own {
			if f.Seq != 0 && f.Seq <= after {
				t.Errorf("after %d: a frame has sequence %d", after, f.Seq)
			}
		}
	}
}

// TestStoredToDataStream: the frames carry the sequences of the stream.
func TestStoredToDataStream(t *testing.T) {
	l := newLog(t).user("t").start("r", "t", "t").begin().text("Hel", "lo")
	chunks := func(yield func(stored, error) bool) {
		for _, s := range decoded(t, l.said().commit().finish(chunk.OutcomeCompleted, "stop"), 4) {
			if !yield(s, nil) {
				return
			}
		}
	}
	var b strings.Builder
	if err := aisdk.WriteStream(&b, aisdk.StoredToDataStream(chunks, nil)); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, `id: 5`+"\n"+`data: {"type":"text-delta","id":"block-1","delta":"lo"}`) ||
		strings.Contains(got, "Hel") || strings.Contains(got, "resync") || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Error(got)
	}
}

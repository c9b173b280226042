package chat

import (
	"errors"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

func TestRunID(t *testing.T) {
	t.Parallel()
	for _, session := range []string{"s", "a~b", "a~0123456789abcdef"} {
		if s, run := SplitRunID(runID(session, "u1")); s != session || run != hash("u1") {
			t.Errorf("%q: %q %q", session, s, run)
		}
	}
	for _, id := range []string{"s", "a~b", "~0123456789abcdef", "a~0123456789abcdeg"} {
		if s, run := SplitRunID(id); s != id || run != "" {
			t.Errorf("%q: %q %q", id, s, run)
		}
	}
}

// FuzzDecide: whatever comes, it is a body or a malformed one, and what was
// read can be stored.
func FuzzDecide(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"message":"hi"}`, `{"id":"s","messages":[{"id":"u","role":"user","parts":[{"type":"text","text":"x"}]}]}`,
		`{"trigger":"regenerate-message","messageId":"a"}`, `{"message":{"content":[{"type":"text","text":"x"}]},"messages":[],"state":{}}`,
		`{"messages":[{"role":"assistant","parts":[{"type":"tool-x","toolCallId":"c","state":"output-available","output":1}]}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := aisdk.ParseBody(data)
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Fatalf("%v is not wire.ErrMalformed", err)
			}
			return
		}
		d := &Deps{Logs: spool.NewLogs(nil, nil), Options: Options{AllowOverrides: true}}
		dec, err := d.decide(fold.New("s"), b)
		if err != nil {
			if chunk.CodeOf(err) == "" {
				t.Fatalf("%v has no code", err)
			}
			return
		}
		if len(dec.follow) == 0 || len(dec.chunks) == 0 {
			t.Fatalf("nothing to append or to follow: %+v", dec)
		}
		for _, c := range dec.chunks {
			if id := chunk.CommandID(c); chunk.CheckID(id) != nil {
				t.Fatalf("command id %q", id)
			}
			if _, err := chunk.Append(nil, c); err != nil {
				t.Fatalf("%s cannot be stored: %v", c.ChunkType(), err)
			}
		}
	})
}

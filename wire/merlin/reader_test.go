package merlin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/wire/merlin"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, data string
		kind       merlin.Kind
	}{
		{"", `{"content":"x"}`, merlin.KindMessage},
		{"end", `{}`, merlin.KindEnd},
		{"message", `{"type":"DONE"}`, merlin.KindEnd},
		{"INIT_MESSAGE_CONTENT", `{}`, merlin.KindInit},
		{"attachments", `{"payload":[{"url":"u","title":"t"}]}`, merlin.KindAttachments},
		{"later", `[1]`, merlin.KindUnknown},
	} {
		if e := parse(t, tt.name, tt.data); e.Kind != tt.kind {
			t.Errorf("the %s %s is %+v", tt.name, tt.data, e)
		}
	}
	for _, data := range []string{`{`, `[]`, `{"index":"a"}`, `{"toolCalls":3}`} {
		if e, err := merlin.NewReader(strings.NewReader("data: " + data + "\n\n")).Next(); !errors.Is(err, chunk.ErrInvalidChunk) {
			t.Errorf("the message %s is %+v, %v; want ErrInvalidChunk", data, e, err)
		}
	}
	// Frames and union are the same to a client.
	var frames, union merlin.Client
	for c, list := range map[*merlin.Client][]string{
		&frames: {`{"content":"","index":1,"type":"text","text":"x"}`, `{"content":"","index":2,"type":"toolCalls","toolCalls":[{"type":"function","function":{"name":"n","arguments":"{}"},"id":"c"}]}`},
		&union:  {`{"type":"text","content":"x","index":1}`, `{"type":"toolCalls","contentIndex":2,"toolCalls":[{"type":"function","function":{"name":"n","arguments":"{}"},"id":"c"}]}`},
	} {
		for _, data := range list {
			c.Apply(parse(t, "message", data))
		}
	}
	if a, b := mustJSON(t, frames), mustJSON(t, union); !bytes.Equal(a, b) {
		t.Errorf("frames give %s, the union %s", a, b)
	}
}

// parse reads one event.
func parse(t *testing.T, name, data string) merlin.Event {
	t.Helper()
	e, err := merlin.NewReader(strings.NewReader("event: " + name + "\ndata: " + data + "\n\n")).Next()
	check(t, err)
	return e
}

// What grows by small pieces for ever is not copied for each.
func TestClientGrows(t *testing.T) {
	for name, event := range map[string]string{
		"V1":        `{"content":"a"}`,
		"text":      `{"index":1,"type":"text","text":"a"}`,
		"reasoning": `{"index":1,"type":"reasoning","reasoning":"a"}`,
		"result":    `{"index":1,"type":"toolCallResult","toolCallResult":{"index":0,"delta":"a"}}`,
	} {
		e := parse(t, "message", event)
		const n = 10000
		var c merlin.Client
		if got := testing.AllocsPerRun(1, func() {
			c = merlin.Client{}
			for range n {
				c.Apply(e)
			}
		}); got > n/10 {
			t.Errorf("%s: %v allocations for %d pieces", name, got, n)
		}
		if got := mustJSON(t, c); !bytes.Contains(got, []byte(`"`+strings.Repeat("a", n)+`"`)) {
			t.Errorf("%s: the client has %d bytes", name, len(got))
		}
	}
}

// Wherever a client is cut, it drops what came after the last id, and the rest
// makes the same of it as if it had stayed.
func TestClientDrops(t *testing.T) {
	t.Parallel()
	records := search(t)
	large := strings.Repeat("tea ", 100000) // several frames with one id
	records = append(records[:len(records)-1:len(records)-1], log(t, started(), &chunk.TextDelta{Delta: large}, &chunk.Thinking{Content: large},
		&chunk.ToolStart{ToolCallID: "c", ToolName: "get", Arguments: json.RawMessage(`{}`)},
		&chunk.ToolEnd{ToolCallID: "c", ToolName: "get", Result: mustJSON(t, large), Success: true},
		&chunk.Citation{SourceID: "z", URL: "z", CitedText: "z"}, finished())...)
	for _, p := range profiles {
		var events []merlin.Event
		_, frames := project(t, records, &p.o)
		for i, f := range frames {
			var stream []byte
			if f.Seq != 0 {
				stream = fmt.Appendf(nil, "id: %d\n", i+1)
			}
			e, err := merlin.NewReader(bytes.NewReader(append(stream, f.Data...))).Next()
			check(t, err)
			events = append(events, e)
		}
		var stayed merlin.Client
		for _, e := range events {
			stayed.Apply(e)
		}
		for cut := range matrix.Points(t, len(events), 9) {
			var c merlin.Client
			from := 0
			for i, e := range events[:cut] {
				if c.Apply(e); e.HasID {
					from = i + 1
				}
			}
			c.Drop()
			for _, e := range events[from:] {
				c.Apply(e)
			}
			if !bytes.Equal(mustJSON(t, c), mustJSON(t, stayed)) {
				t.Errorf("%s: cut after %d of %d events, from %d, the client differs", p.name, cut, len(events), from)
			}
		}
	}
}

// FuzzReader: whatever comes, the reader neither panics nor depends on how the
// input is cut.
func FuzzReader(f *testing.F) {
	for _, name := range []string{"v1", "v2", "v2-literal"} {
		for i, event := range strings.SplitAfter(transcript(f, name), "\n\n") {
			if len(event) < 200 { // the fuzzer minimises what it finds
				f.Add([]byte(event), uint8(i))
			}
		}
	}
	f.Add([]byte("event: progress\ndata: {\"payload\":{\"id\":\"a\",\"values\":null}}\n\n"), uint8(1))
	f.Add([]byte("data: {\"type\":\"toolCallResult\",\"index\":-3,\"toolCallResult\":{\"index\":9,\"delta\":\"x\"}}\n\n"), uint8(2))
	f.Fuzz(func(t *testing.T, stream []byte, cut uint8) {
		whole, err := collect(bytes.NewReader(stream))
		pieces, perr := collect(&slow{stream, int(cut%16) + 1})
		if (err == nil) != (perr == nil) || !bytes.Equal(mustJSON(t, whole), mustJSON(t, pieces)) {
			t.Fatalf("in pieces of %d: %s, %v; whole: %s, %v", cut%16+1, mustJSON(t, pieces), perr, mustJSON(t, whole), err)
		}
	})
}

func collect(src io.Reader) (*merlin.Client, error) {
	r := merlin.NewReader(src)
	c := &merlin.Client{}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		c.Apply(e)
	}
}

type slow struct {
	rest []byte
	n    int
}

func (s *slow) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.rest[:min(s.n, len(s.rest))])
	s.rest = s.rest[n:]
	return n, nil
}

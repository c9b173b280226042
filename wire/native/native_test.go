package native

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/wire"
)

func TestApplyCopies(t *testing.T) {
	t.Parallel()
	r := chunk.Record{Seq: 7, Type: "later", Data: json.RawMessage(`{"type":"later","x":"\u003c"}`)}
	for _, tt := range []struct {
		f    Framing
		want string
	}{
		{Bare, `data: {"type":"later","x":"\u003c"}` + "\n\n"},
		{Event, `data: {"type":"chunk","chunk":{"type":"later","x":"\u003c"},"sequence":7}` + "\n\n"},
	} {
		if got := string(render(nil, tt.f, 7, []byte("{\n\"type\":\r\n1\r}"))); strings.ContainsAny(strings.ReplaceAll(strings.TrimSuffix(got, "\n\n"), "\ndata: ", ""), "\r\n") {
			t.Errorf("framing %d: line ends are no data lines: %q", tt.f, got)
		}
		p := NewProjector(wire.Subject{}, &Options{Framing: tt.f})
		frames, err := p.Apply([]spool.Frame{{}}, r)
		if err != nil || len(frames) != 2 || string(frames[1].Data) != tt.want || frames[1].Seq != 7 || frames[1].Terminal {
			t.Errorf("framing %d: Apply = %v, %v; want %q", tt.f, frames, err, tt.want)
		}
		if plan, err := p.Plan(); len(plan) != 0 || err != nil {
			t.Errorf("framing %d: Plan = %v, %v", tt.f, plan, err)
		}
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status             chunk.Status
		reason, text, want string
		message            Message
	}{
		{chunk.StatusEnded, "completed", "", `{"type":"end"}`, Message{Kind: KindEnd, Status: chunk.StatusEnded}},
		{chunk.StatusEnded, "stopped", "", `{"type":"end","reason":"stopped"}`, Message{Kind: KindEnd, Status: chunk.StatusEnded, Reason: "stopped"}},
		{chunk.StatusPaused, "", "", `{"type":"end","status":"paused"}`, Message{Kind: KindEnd, Status: chunk.StatusPaused}},
		{chunk.StatusPaused, "awaiting_approval", "", `{"type":"end","status":"paused","reason":"awaiting_approval"}`, Message{Kind: KindEnd, Status: chunk.StatusPaused, Reason: "awaiting_approval"}},
		{chunk.StatusFailed, "failed", "a\nb", `{"type":"fail","error":"a\nb"}`, Message{Kind: KindFail, Status: chunk.StatusFailed, Error: "a\nb"}},
		{chunk.StatusFailed, "", "", `{"type":"fail","error":""}`, Message{Kind: KindFail, Status: chunk.StatusFailed}},
	} {
		got := Terminal(tt.status, tt.reason, tt.text)
		if string(got) != "data: "+tt.want+"\n\n" {
			t.Errorf("Terminal(%s, %s, %q) = %q, want %s", tt.status, tt.reason, tt.text, got, tt.want)
		}
		if m, err := NewReader(bytes.NewReader(got)).Next(); err != nil || !reflect.DeepEqual(m, tt.message) {
			t.Errorf("reading %q = %+v, %v; want %+v", got, m, err, tt.message)
		}
	}
	if got := Terminal(chunk.StatusActive, "", ""); got != nil {
		t.Errorf("Terminal(active) = %q", got)
	}
	if got := string(Resync("trimmed")); got != "data: {\"type\":\"resync\",\"reason\":\"trimmed\"}\n\n" {
		t.Errorf("Resync = %q", got)
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	for _, f := range []Framing{Bare, Event} {
		var body []byte
		body = sse.AppendComment(body, "hello")
		for i, data := range []string{`{"type":"text_delta","delta":"a"}`, `{"type":"later","chunk":1,"sequence":"x","error":{}}`} {
			seq := uint64(i + 5)
			body = sse.AppendID(body, spool.Cursor{Seq: seq, Incarnation: 2}.String())
			body = append(body, render(nil, f, seq, []byte(data))...)
		}
		body = append(body, Terminal(chunk.StatusEnded, "completed", "")...)
		r := NewReader(bytes.NewReader(body))
		var got []string
		var seqs []uint64
		for {
			m, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got, seqs = append(got, string(m.Chunk)), append(seqs, m.Seq)
		}
		want := []string{`{"type":"text_delta","delta":"a"}`, `{"type":"later","chunk":1,"sequence":"x","error":{}}`, ""}
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(seqs, []uint64{5, 6, 0}) {
			t.Errorf("framing %d: read %q %v", f, got, seqs)
		}
		if c := r.Cursor(); c != (spool.Cursor{Seq: 6, Incarnation: 2}) {
			t.Errorf("framing %d: cursor %v", f, c)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{``, `[]`, `{}`, `{"type":3}`, `[DONE]`, `{"type":"chunk"}`, `{"type":"chunk","chunk":[]}`, `{"type":"chunk","chunk":{},"sequence":-1}`, `{"type":"fail","error":5}`, `{"type":"end","status":[]}`} {
		if m, err := Parse([]byte(in)); !errors.Is(err, chunk.ErrInvalidChunk) {
			t.Errorf("Parse(%s) = %+v, %v; want ErrInvalidChunk", in, m, err)
		}
		if _, err := NewReader(strings.NewReader("data: " + in + "\n\n")).Next(); err == nil {
			t.Errorf("Next accepts %s", in)
		}
	}
}

// FuzzParse: what parses as a chunk is shown again in both framings and parses
// as the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"type":"text_delta","delta":"a"}`, `{"type":"chunk","chunk":{"type":"x"},"sequence":3}`, `{"type":"end","status":"paused"}`, `{"type":"fail","error":"e"}`, `{"type":"resync","reason":"trimmed"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data)
		if err != nil || m.Kind != KindChunk {
			return
		}
		c, err := chunk.Decode(m.Chunk)
		if err != nil {
			return // {"type":"chunk","chunk":{}}: what is inside is its reader's business
		}
		line, err := chunk.Append(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		if c.ChunkType() == "chunk" || c.ChunkType() == "end" || c.ChunkType() == "fail" || c.ChunkType() == "resync" {
			return // refused by ValidateChunk, never in a log
		}
		for _, framing := range []Framing{Bare, Event} {
			body := sse.AppendID(nil, "9")
			body = append(body, render(nil, framing, 9, line)...)
			again, err := NewReader(bytes.NewReader(body)).Next()
			if err != nil || again.Kind != KindChunk || again.Seq != 9 || !bytes.Equal(again.Chunk, line) {
				t.Fatalf("framing %d: %q read as %+v, %v", framing, body, again, err)
			}
		}
	})
}

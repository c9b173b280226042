package native_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/native"
	"github.com/spool-run/spool/wire/wiretest"
)

var profiles = map[string]native.Options{
	"bare":       {},
	"event":      {Framing: native.Event},
	"lean":       {Framing: native.Lean},
	"self":       {Self: true},
	"lean self":  {Framing: native.Lean, Self: true},
	"event self": {Framing: native.Event, Self: true},
}

func TestWire(t *testing.T) {
	t.Parallel()
	for name, o := range profiles {
		t.Run(name, func(t *testing.T) {
			wiretest.Run(t, wiretest.Wire{
				Profile: o.Profile(),
				Fold:    state,
				Truth: func(log []chunk.Record, _ *fold.Turn) (json.RawMessage, error) {
					return json.Marshal(shown(log, chunk.RootID(log[0].Agent), o.Self))
				},
			})
		})
	}
}

// state collects the chunks that a client reads.
func state(stream []byte) (json.RawMessage, error) {
	r := native.NewReader(bytes.NewReader(stream))
	chunks := []json.RawMessage{}
	for {
		m, err := r.Next()
		if err == io.EOF {
			return json.Marshal(chunks)
		}
		if err != nil {
			return nil, err
		}
		if m.Kind != native.KindChunk {
			return nil, fmt.Errorf("a message of kind %d", m.Kind)
		}
		chunks = append(chunks, m.Chunk)
	}
}

// shown are the chunks of a log that an agent's stream has.
func shown(log []chunk.Record, agent string, self bool) []json.RawMessage {
	chunks := []json.RawMessage{}
	for _, r := range log {
		below := strings.HasPrefix(r.Agent, agent+".")
		everybodys := chunk.RootID(agent) == agent && !self || r.Type == chunk.TypeExecutorSuperseded && chunk.RootID(agent) != agent
		if r.Agent == agent || below && !self || everybodys {
			chunks = append(chunks, r.Data)
		}
	}
	return chunks
}

// Each agent of a log has a stream of its own.
func TestAgents(t *testing.T) {
	t.Parallel()
	log := wiretest.Agents()
	log = append(log, chunk.Record{Seq: uint64(len(log) + 1), Type: "later", Agent: wiretest.Session + ".11", Data: json.RawMessage(`{"type":"later"}`)})
	lengths := map[int]bool{}
	for _, agent := range []string{"", ".1", ".1.1", ".2", ".4", ".7", ".11", ".99"} {
		agent = wiretest.Session + agent
		for name, o := range profiles {
			p := o.Profile().Projector(wire.Subject{Agent: agent})
			var stream []byte
			for _, r := range log {
				frames, err := p.Apply(nil, r)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range frames {
					stream = append(stream, f.Data...)
				}
			}
			got, err := state(stream)
			if err != nil {
				t.Fatal(err)
			}
			want := shown(log, agent, o.Self)
			lengths[len(want)] = true
			if data, _ := json.Marshal(want); !bytes.Equal(got, data) {
				t.Errorf("%s, %s:\ngot  %s\nwant %s", agent, name, got, data)
			}
		}
	}
	if len(lengths) < 8 {
		t.Errorf("the streams have the lengths %v", lengths)
	}
	all := native.Options{Self: true}.Profile().Projector(wire.Subject{})
	for _, r := range log {
		if frames, err := all.Apply(nil, r); err != nil || len(frames) != 1 {
			t.Fatalf("nobody's stream has %d frames of record %d, %v", len(frames), r.Seq, err)
		}
	}
}

func request(t *testing.T, query string) wire.Request {
	t.Helper()
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Request{Query: q, Header: http.Header{}}
}

func TestAskedProfiles(t *testing.T) {
	t.Parallel()
	w := native.Wire()
	for query, want := range map[string]struct {
		key    string
		follow bool
	}{
		"":                                 {"native/bare/tree", false},
		"framing=bare&agent=tree":          {"native/bare/tree", false},
		w.Follow + "&framing=event":        {"native/event/tree", true},
		"framing=lean":                     {"native/lean/tree", false},
		"agent=self":                       {"native/bare/self", false},
		"agent=self&framing=event&follow=": {"native/event/self", false},
	} {
		p, err := w.Profile(request(t, query))
		if err != nil || p.Key != want.key || p.Log.Follow != want.follow {
			t.Errorf("?%s: %q, %v", query, p.Key, err)
		}
	}
	for query, want := range map[string]string{
		"follow=turn":  "follow must be session, or be left out",
		"framing=json": "framing must be bare, event or lean",
		"agent=corpus": "agent must be self or tree",
	} {
		if _, err := w.Profile(request(t, query)); !errors.Is(err, chunk.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("?%s: %v", query, err)
		}
	}
}

func TestPrinted(t *testing.T) {
	t.Parallel()
	w := native.Wire()
	for data, want := range map[string]struct {
		line, err string
		last      bool
	}{
		`{"type":"text_delta"}`:                                          {line: `{"type":"text_delta"}`},
		`{"type":"chunk","chunk":{"a":1},"sequence":1}`:                  {line: `{"a":1}`},
		string(payload(native.Terminal(chunk.StatusEnded, "", ""))):      {last: true},
		string(payload(native.Terminal(chunk.StatusFailed, "", "busy"))): {last: true, err: "the run failed: busy"},
		string(payload(native.Resync("trimmed"))):                        {last: true, err: "spool: the position cannot be served: trimmed"},
	} {
		e := w.Read()("", []byte(data))
		if string(e.Line) != want.line || e.Last != want.last || (e.Err == nil) != (want.err == "") || e.Err != nil && e.Err.Error() != want.err {
			t.Errorf("%s: %+v", data, e)
		}
	}
	if e := w.Read()("", []byte("{")); !e.Last || e.Err == nil {
		t.Errorf("what is no event: %+v", e)
	}
}

func payload(event []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimPrefix(event, []byte("data: ")), []byte("\n\n"))
}

// Frames share buffers: few records need an allocation.
func TestApplyAllocatesNothingPerFrame(t *testing.T) {
	r := wiretest.Corpus()[0]
	for name, o := range profiles {
		p := o.Profile().Projector(wire.Subject{Agent: r.Agent})
		frames := make([]spool.Frame, 0, 1)
		if n := testing.AllocsPerRun(100, func() { frames, _ = p.Apply(frames[:0], r) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if data := frames[0].Data; len(data) != cap(data) {
			t.Errorf("%s: a frame of %d bytes in %d", name, len(data), cap(data))
		}
	}
}

func BenchmarkApply(b *testing.B) {
	log := wiretest.Corpus()
	for _, name := range []string{"bare", "event", "self"} {
		b.Run(name, func(b *testing.B) {
			o := profiles[name]
			p := o.Profile().Projector(wire.Subject{Agent: wiretest.Session})
			var frames []spool.Frame
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				frames, _ = p.Apply(frames[:0], log[i%len(log)])
				i++
			}
		})
	}
}

// What is rendered in place is what Apply makes frames of.
func TestRenderIsApply(t *testing.T) {
	t.Parallel()
	log := append(wiretest.Agents(), wiretest.Corpus()...)
	log = append(log, chunk.Record{Seq: 7, Type: "later", Agent: wiretest.Session, Data: json.RawMessage("{\n\"type\":\"later\"}")})
	for name, o := range profiles {
		for _, agent := range []string{"", ".1", ".1.1"} {
			p, q := native.NewProjector(wire.Subject{Agent: wiretest.Session + agent}, &o), native.NewProjector(wire.Subject{Agent: wiretest.Session + agent}, &o)
			for _, r := range log {
				frames, err := p.Apply(nil, r)
				if err != nil {
					t.Fatal(err)
				}
				want := "before"
				for _, f := range frames {
					want += string(f.Data)
				}
				if got := q.Render([]byte("before"), &r); string(got) != want {
					t.Errorf("%s, %s: %q, want %q", name, r.Type, got, want)
				}
			}
		}
	}
}

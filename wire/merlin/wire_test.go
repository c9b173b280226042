package merlin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/merlin"
)

func profileOf(t *testing.T, w wire.Wire, query string) wire.Profile {
	t.Helper()
	q, err := url.ParseQuery(query)
	check(t, err)
	p, err := w.Profile(wire.Request{Query: q})
	check(t, err)
	return p
}

// What a server is told of each version.
func TestWireOfAVersion(t *testing.T) {
	t.Parallel()
	for v, want := range map[merlin.Version]struct{ name, path, noRun string }{
		merlin.V1: {"merlin-v1", "/merlin/v1", "event: INIT_MESSAGE_CONTENT\ndata: {}\n\nevent: end\ndata: {}\n\n"},
		merlin.V2: {"merlin-v2", "/merlin/v2", "event: end\ndata: {}\n\n"},
	} {
		w := merlin.Wire(v, merlin.WireOptions{})
		one := want.path + "/{session}"
		if w.Name != want.name || !slices.Equal(w.Send, []string{want.path, one}) || !slices.Equal(w.Attach, []string{one}) {
			t.Errorf("V%d is %s, sends to %v, attaches to %v", v, w.Name, w.Send, w.Attach)
		}
		p := profileOf(t, w, "")
		if got := string(p.NoRun("m1", "tool-calls")); got != want.noRun {
			t.Errorf("V%d: an answer without a run is %q, want %q", v, got, want.noRun)
		}
		if (p.Wrap != nil) != (v == merlin.V1) {
			t.Errorf("V%d is paced: %v", v, p.Wrap != nil)
		}
		if unpaced := profileOf(t, merlin.Wire(v, merlin.WireOptions{Pacing: []merlin.Pace{}}), ""); unpaced.Wrap != nil {
			t.Errorf("V%d is paced by an empty table", v)
		}
	}
}

// V1 is paced by its own table, or by the server's.
func TestWirePaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		table []merlin.Pace
		want  time.Duration
	}{{nil, 15 * ms}, {[]merlin.Pace{{0, 5, time.Second}}, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			p := profileOf(t, merlin.Wire(merlin.V1, merlin.WireOptions{Pacing: tt.table}), "")
			s := p.Wrap(&script{start: time.Now(), end: io.EOF, batches: []batch{{0, []string{"abcdefg"}, false}}}, time.Now)
			begin := time.Now()
			var err error
			for err == nil {
				_, err = s.Next(context.Background())
			}
			if took := time.Since(begin); took != tt.want || !errors.Is(err, io.EOF) {
				t.Errorf("the second slice came after %v, want %v (%v)", took, tt.want, err)
			}
		})
	}
}

// Who asks for a summary gets nobody's words, whichever the server suppresses; what
// the wire cannot show is refused.
func TestWireAgents(t *testing.T) {
	t.Parallel()
	child := chunk.Base{AgentID: session + ".1", AgentType: "helper", RunID: "r"}
	records := log(t, started(), &chunk.StepStarted{StepID: "s"},
		&chunk.ToolStart{ToolCallID: "c", ToolName: "ask", Arguments: json.RawMessage(`{}`)},
		&chunk.SubAgentStart{SubAgentType: "helper", SubSessionID: child.AgentID, CallID: "c"},
		&chunk.TextDelta{Base: child, Delta: "a word"},
		&chunk.ToolEnd{ToolCallID: "c", ToolName: "ask", Result: json.RawMessage(`{"$blob":1}`), Success: true})
	silent := func(agent string) bool { return agent == "helper" }
	keys := map[string]string{}
	for _, tt := range []struct {
		query string
		o     merlin.WireOptions
		shown bool
		key   string
	}{
		{"", merlin.WireOptions{}, true, "nest"},
		{"agents=", merlin.WireOptions{}, true, "nest"},
		{"agents=nest", merlin.WireOptions{}, true, "nest"},
		{"agents=summary", merlin.WireOptions{}, false, "summary"},
		{"agents=nest", merlin.WireOptions{Suppress: silent, Literal: merlin.Literal{End: true}}, false, "suppressed"},
		{"agents=summary", merlin.WireOptions{Suppress: func(string) bool { return false }, Literal: merlin.Literal{End: true}}, false, "both"},
	} {
		p := profileOf(t, merlin.Wire(merlin.V2, tt.o), tt.query)
		proj := p.Projector(wire.Subject{Turn: "turn-1", Agent: session, Resolve: func(v json.RawMessage) (json.RawMessage, error) {
			if strings.Contains(string(v), "$blob") {
				return json.RawMessage(`"what was stored"`), nil
			}
			return v, nil
		}})
		var stream string
		for _, r := range records {
			frames, err := proj.Apply(nil, r)
			check(t, err)
			stream += text(frames)
		}
		if strings.Contains(stream, "a word") != tt.shown || !strings.Contains(stream, "what was stored") {
			t.Errorf("%q shows\n%s", tt.query, stream)
		}
		if was, known := keys[tt.key]; known && was != p.Key {
			t.Errorf("the keys of %s are %s and %s", tt.key, was, p.Key)
		}
		keys[tt.key] = p.Key
	}
	other := profileOf(t, merlin.Wire(merlin.V1, merlin.WireOptions{}), "")
	keys["another version"] = other.Key
	seen := map[string]string{}
	for name, key := range keys {
		if seen[key] != "" {
			t.Errorf("%s and %s have the same key", name, seen[key])
		}
		seen[key] = name
	}
}

func TestWireRefusesAgents(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"agents=flatten": "on the Merlin wires, agents must be nest or summary",
		"agents=x":       "agents must be nest, summary or flatten",
	} {
		q, err := url.ParseQuery(query)
		check(t, err)
		_, err = merlin.Wire(merlin.V1, merlin.WireOptions{}).Profile(wire.Request{Query: q})
		if !errors.Is(err, chunk.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}

// Programs that print streams print data, and the names of what is no message.
func TestWireRead(t *testing.T) {
	t.Parallel()
	read := merlin.Wire(merlin.V1, merlin.WireOptions{}).Read()
	for _, tt := range []struct {
		name, data, line string
		last             bool
	}{
		{"message", `{"content":"x"}`, `{"content":"x"}`, false},
		{"", `{"content":"x"}`, `{"content":"x"}`, false},
		{"progress", `{"payload":{}}`, `progress {"payload":{}}`, false},
		{"later", `[1]`, `later [1]`, false},
		{"end", `{}`, `end {}`, true},
		{"message", `{"type":"DONE"}`, `end {"type":"DONE"}`, true},
	} {
		if e := read(tt.name, []byte(tt.data)); string(e.Line) != tt.line || e.Last != tt.last || e.Err != nil {
			t.Errorf("%s %s is %q, last %v, %v", tt.name, tt.data, e.Line, e.Last, e.Err)
		}
	}
	if e := read("message", nil); !e.Last || !errors.Is(e.Err, chunk.ErrInvalidChunk) || e.Line != nil {
		t.Errorf("what is no event is %+v", e)
	}
}

package aisdk_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/wiretest"
)

func ask(t *testing.T, query string, header ...string) wire.Request {
	t.Helper()
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return wire.Request{Query: q, Header: h}
}

// A request has the profile that it asks for.
func TestAskedProfiles(t *testing.T) {
	t.Parallel()
	base := aisdk.Options{StaticTools: true}
	other := aisdk.Options{UI7: true, SubAgents: aisdk.Summary}
	for _, tt := range []struct {
		o             aisdk.Options
		query, header string
		want          aisdk.Options
	}{
		{base, "", "", base},
		{base, "ui=7", "", aisdk.Options{StaticTools: true, UI7: true}},
		{base, "ui=7", "6", aisdk.Options{StaticTools: true, UI7: true}},
		{base, "", "7", aisdk.Options{StaticTools: true, UI7: true}},
		{base, "ui=8", "7", base},
		{base, "agents=nest", "", base},
		{base, "agents=", "", base},
		{base, "agents=flatten", "", aisdk.Options{StaticTools: true, SubAgents: aisdk.Flatten}},
		{other, "", "", other},
		{other, "ui=5", "", other},
		{other, "ui=6&agents=flatten", "", aisdk.Options{SubAgents: aisdk.Flatten}},
	} {
		p, err := aisdk.Wire(tt.o).Profile(ask(t, tt.query, aisdk.HeaderUI, tt.header))
		if err != nil || p.Key != tt.want.Profile().Key {
			t.Errorf("%+v, ?%s, %s: %q, %v; want %q", tt.o, tt.query, tt.header, p.Key, err, tt.want.Profile().Key)
		}
		if want := (http.Header{"X-Vercel-Ai-Ui-Message-Stream": {"v1"}}); !reflect.DeepEqual(p.Header, want) || p.MediaType != "" || p.Log != nil {
			t.Errorf("?%s: %+v", tt.query, p)
		}
	}
	if _, err := aisdk.Wire(base).Profile(ask(t, "agents=all")); !errors.Is(err, chunk.ErrInvalid) {
		t.Errorf("agents=all: %v", err)
	}
}

// Profiles that differ have different keys, on every node the same ones.
func TestKeys(t *testing.T) {
	t.Parallel()
	all := map[string]string{}
	for name, o := range profiles {
		key := o.Profile().Key
		if all[key] != "" {
			t.Errorf("%s and %s have the key %q", name, all[key], key)
		}
		all[key] = name
		if again := o.Profile().Key; again != key {
			t.Errorf("%s: %q and %q", name, key, again)
		}
	}
	keep := aisdk.Options{ChunkFilter: func(chunk.Chunk) bool { return true }}
	drop := aisdk.Options{ChunkFilter: func(chunk.Chunk) bool { return false }}
	one, two := aisdk.Wire(keep), aisdk.Wire(drop)
	a, _ := one.Profile(ask(t, ""))
	b, _ := two.Profile(ask(t, ""))
	again, _ := one.Profile(ask(t, ""))
	if a.Key == b.Key || a.Key != again.Key || a.Key == (aisdk.Options{}).Profile().Key {
		t.Errorf("filters: %q, %q, again %q", a.Key, b.Key, again.Key)
	}
	if named := (aisdk.Options{BlockID: func(int) string { return "b" }}).Profile().Key; named == (aisdk.Options{}).Profile().Key {
		t.Error("other names of blocks have the default profile's key")
	}
}

func TestPositions(t *testing.T) {
	t.Parallel()
	w := aisdk.Wire(aisdk.Options{})
	for _, tt := range []struct {
		query, last string
		want        wire.Position
		err         error
	}{
		{"", "", wire.Position{}, nil},
		{"", "3", wire.Position{Kind: wire.Seen, Cursor: spool.Cursor{Seq: 3}}, nil},
		{"after=4", "3", wire.Position{Kind: wire.Seen, Cursor: spool.Cursor{Seq: 4}}, nil},
		{"startIndex=-2", "3", wire.Position{Kind: wire.Counted, Frames: -2}, nil},
		{"startIndex=0&after=4", "", wire.Position{Kind: wire.Counted}, nil},
		{"startIndex=", "", wire.Position{}, spool.ErrCursorMalformed},
		{"startIndex=1.5", "", wire.Position{}, spool.ErrCursorMalformed},
		{"startIndex=1&after=x", "", wire.Position{}, spool.ErrCursorMalformed},
	} {
		got, err := w.Position(ask(t, tt.query, wire.HeaderLastEventID, tt.last))
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("?%s, %q: %+v, %v", tt.query, tt.last, got, err)
		}
	}
}

// An answer without a run is a whole stream.
func TestNoRun(t *testing.T) {
	t.Parallel()
	p := aisdk.Options{}.Profile()
	for _, id := range []string{"", `m"<1>`} {
		for _, reason := range []string{"tool-calls", "other"} {
			c := &aisdk.Client{}
			if err := c.Write(p.NoRun(id, reason)); err != nil || c.Message.ID != id || c.FinishReason != reason || !c.Done {
				t.Errorf("%q, %s: %+v, %v", id, reason, c, err)
			}
		}
	}
	const want = "data: {\"type\":\"start\",\"messageId\":\"m\"}\n\ndata: {\"type\":\"finish\",\"finishReason\":\"other\"}\n\ndata: [DONE]\n\n"
	if got := string(p.NoRun("m", "other")); got != want {
		t.Errorf("%q", got)
	}
}

func TestPrinted(t *testing.T) {
	t.Parallel()
	w := aisdk.Wire(aisdk.Options{})
	for data, last := range map[string]bool{`{"type":"finish"}`: false, "[DONE]": true} {
		if e := w.Read()("", []byte(data)); string(e.Line) != data || e.Last != last || e.Err != nil {
			t.Errorf("%s: %+v", data, e)
		}
	}
}

// waiting is a turn whose run waits for three answers, and goes on with them.
func waiting(t *testing.T) *logOf {
	t.Helper()
	l := newLog(t).user("t").start("r", "t", "t").begin().call("c1", "book", `{}`).call("c2", "where", `{}`).call("c3", "cancel", `{}`).said()
	l.add(&chunk.ToolApprovalRequest{ApprovalID: "a1", ToolCallID: "c1", ToolName: "book", Input: json.RawMessage(`{}`)},
		&chunk.ToolStart{ToolCallID: "c2", ToolName: "where", Arguments: json.RawMessage(`{}`)},
		&chunk.ToolApprovalRequest{ApprovalID: "a3", ToolCallID: "c3", ToolName: "cancel", Input: json.RawMessage(`{}`)},
		&chunk.RunSuspended{Kind: "awaiting_approval", ToolCallIDs: []string{"c1", "c2", "c3"}, StepID: "r.1"})
	l.run = ""
	l.add(&chunk.ToolApprovalResponse{CommandID: "x1", ApprovalID: "a1", Approved: true},
		&chunk.ToolResultSubmitted{CommandID: "x2", ToolCallID: "c2", Result: json.RawMessage(`1`)},
		&chunk.ToolApprovalResponse{CommandID: "x3", ApprovalID: "a3"})
	return l.start("r2", "t", "x1", "x2", "x3").result("c1", "book", `true`)
}

// What a run's first record repeats of the answers that it goes on with, and
// nothing else, is an echo.
func TestEchoes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"default": {"tool-output-available"},
		"ui7":     {"tool-output-available"},
	} {
		o := profiles[name]
		frames, p := project(t, waiting(t), "t", &o)
		var got []string
		for _, f := range frames {
			if f.Echo {
				kind, _, _ := strings.Cut(strings.TrimPrefix(string(f.Data), `data: {"type":"`), `"`)
				got = append(got, kind)
			}
			if done := string(f.Data) == "data: [DONE]\n\n"; f.Uncounted != done {
				t.Errorf("%s: uncounted %v: %s", name, f.Uncounted, f.Data)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: echoes %q, want %q of\n%s", name, got, want, events(frames))
		}
		for _, f := range planOf(t, p) {
			if f.Echo {
				t.Errorf("%s: the plan echoes %s", name, f.Data)
			}
		}
	}
}

// A discarded phase takes back what was sent since it began, and a rollback
// everything.
func TestSince(t *testing.T) {
	t.Parallel()
	var got []uint64
	take := func(l *logOf) {
		frames, _ := project(t, l, "t", nil)
		for _, f := range frames {
			if f.Cut {
				got = append(got, f.Since)
			}
		}
	}
	// 1 user, 2 run, 3 step, 4 and 5 text, 6 discarded
	take(newLog(t).user("t").start("r", "t", "t").begin().text("Wr", "ong").add(&chunk.StepDiscarded{StepID: "r.1", Reason: "crash_recovery"}))
	// The phase after a pause takes the place of the empty step that closed it:
	// its start becomes no frame, so that who is cut stands at the run's.
	l := newLog(t).user("t").start("r", "t", "t").begin().call("c", "x", `{}`).said().dispatch("c", "x", `{}`).result("c", "x", `1`).commit()
	l.add(&chunk.RunSuspended{Kind: "interrupted"})
	l.start("r2", "t")
	run := uint64(len(l.records))
	take(l.begin().add(&chunk.StepDiscarded{StepID: "r2.1", Reason: "crash_recovery"}))
	// What was settled differs from what was said.
	l = newLog(t).user("t").start("r", "t", "t").begin().text("What was never", " said")
	take(l.add(&chunk.AssistantMessage{MessageID: "a-t", StepID: "r.1", Parts: []chunk.Part{{Type: chunk.PartText, First: 4, Text: "Other words"}}}))
	if want := []uint64{3, run, 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("cuts since %v, want %v", got, want)
	}
}

// A client that answers while a run is open is told of the outcomes of its step, and of
// the data, that it may lack.
func TestRejoin(t *testing.T) {
	t.Parallel()
	weather := func(id, sky string) chunk.Chunk {
		return &chunk.Custom{EventName: "weather", ID: id, Data: json.RawMessage(`"` + sky + `"`)}
	}
	l := newLog(t).user("t").start("r", "t", "t").begin().call("old", "x", `{}`).said().dispatch("old", "x", `{}`).
		add(weather("Rome", "grey")).result("old", "x", `0`).commit()
	l.begin().text("Now").call("c1", "x", `{}`).call("c2", "x", `{}`).call("c3", "x", `{}`).said().
		dispatch("c1", "x", `{}`).dispatch("c2", "x", `{}`).dispatch("c3", "x", `{}`).
		add(weather("Lisbon", "grey")).result("c1", "x", `1`).result("c2", "x", `2`).
		add(weather("Rome", "blue"), weather("", "loose"), &chunk.Custom{EventName: "weather", ID: "Oslo", Data: json.RawMessage(`0`), Transient: true})
	_, p := project(t, l, "t", nil)
	continued := (&aisdk.Options{}).Profile().Continuing().Projector(wire.Subject{Turn: "t", Agent: l.fold.Session, Resolve: l.resolve})
	for _, r := range l.records {
		if _, err := continued.Apply(nil, r); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		p              spool.Projector
		answered, want string
	}{
		{p, "", "start Rome=blue c1 c2 Lisbon=grey"},
		{p, "c2", "start Rome=blue c1 Lisbon=grey"},
		{p, "c3", "start Rome=blue c1 c2 Lisbon=grey"},
		{continued, "", "c1 c2 Lisbon=grey"},
	} {
		frames, err := tt.p.(spool.Rejoiner).Rejoin(func(call string) bool { return call == tt.answered })
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range frames {
			var e struct {
				Type, ToolCallID, MessageID, ID string
				Data                            json.RawMessage
			}
			err := json.Unmarshal(f.Data[len("data: "):], &e)
			switch {
			case err == nil && e.Type == "start" && e.MessageID == "a-t":
				got = append(got, "start")
			case err == nil && e.Type == "tool-output-available":
				got = append(got, e.ToolCallID)
			case err == nil && e.Type == "data-weather":
				got = append(got, e.ID+"="+strings.Trim(string(e.Data), `"`))
			default:
				t.Errorf("answered %q: %s", tt.answered, f.Data)
			}
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("answered %q: %s, want %s", tt.answered, got, tt.want)
		}
	}
	if frames, err := aisdk.NewProjector(wire.Subject{Turn: "t"}, nil).Rejoin(func(string) bool { return false }); err != nil || frames != nil {
		t.Errorf("before the turn: %v, %v", frames, err)
	}
}

// A value that cannot be had now fails whatever would have shown it; one that is
// gone is shown as it is stored.
func TestLackingValues(t *testing.T) {
	t.Parallel()
	gone, down := spool.ErrNotFound.With("x", nil), errors.New("the disk is off")
	for _, o := range []aisdk.Options{{}, {SubAgents: aisdk.Flatten}} {
		calls, failAt, seen := 0, -1, 0
		with := func(err error) spool.Projector {
			calls, seen = 0, 0
			return o.Profile().Projector(wire.Subject{Turn: "cmd-1", Agent: wiretest.Session, Resolve: func(v json.RawMessage) (json.RawMessage, error) {
				if calls++; failAt >= 0 && calls > failAt {
					seen++
					return nil, err
				}
				return v, nil
			}})
		}
		// run returns how often it failed, and whether each failure was told.
		run := func(p spool.Projector) (told int) {
			for _, r := range wiretest.Agents() {
				before := seen
				_, err := p.Apply(nil, r)
				if err == nil {
					_, err = p.Plan()
				}
				if err == nil {
					_, err = p.(spool.Rejoiner).Rejoin(func(string) bool { return false })
				}
				if (err != nil) != (seen > before) {
					t.Fatalf("record %d: %d values were lacking, %v", r.Seq, seen-before, err)
				}
				if err != nil {
					return 1
				}
			}
			return 0
		}
		if run(with(nil)) != 0 || calls == 0 {
			t.Fatalf("a sound store: %d values", calls)
		}
		all := calls
		for i := range matrix.Points(t, 40, 8) {
			failAt = all * i / 40
			if run(with(down)) != 1 {
				t.Errorf("value %d of %d was lacking, and nobody was told", failAt, all)
			}
		}
		failAt = 0
		p := with(gone)
		for _, r := range wiretest.Agents() {
			if _, err := p.Apply(nil, r); err != nil {
				t.Fatalf("record %d: %v", r.Seq, err)
			}
		}
		if _, err := p.Plan(); err != nil {
			t.Error(err)
		}
		failAt = -1
	}
}

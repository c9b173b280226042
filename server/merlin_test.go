package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/wire"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire/merlin"
	"github.com/spool-run/spool/wire/wiretest"
)

// merlinStream is a Merlin client's connection.
type merlinStream struct {
	k   *kit
	res *http.Response
	r   *merlin.Reader
	c   *merlin.Client
	ids []string // the cursor after each event

	longest int      // characters of the longest content that is no marker
	content []string // of V1
	deltas  []string // pieces of results
}

func (k *kit) merlin(method, path, body string, header ...string) *merlinStream {
	k.Helper()
	res := k.do(method, path, body, header...)
	if res.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(res.Body)
		k.Fatalf("%s %s: %s %s", method, path, res.Status, data)
	}
	if h := res.Header.Get("X-Vercel-AI-UI-Message-Stream"); h != "" {
		k.Errorf("%s %s says that it is an AI SDK stream", method, path)
	}
	return &merlinStream{k: k, res: res, r: merlin.NewReader(res.Body), c: &merlin.Client{}}
}

// next folds the next event; io.EOF at the clean end.
func (m *merlinStream) next() error {
	e, err := m.r.Next()
	if err == nil {
		m.c.Apply(e)
		if e.Message.Content != nil {
			m.content = append(m.content, *e.Message.Content)
		}
		if e.Message.Content != nil && !strings.HasPrefix(*e.Message.Content, "[citation: ") {
			m.longest = max(m.longest, utf8.RuneCountInString(*e.Message.Content))
		}
		if r := e.Message.ToolCallResult; r != nil && r.Delta != nil {
			m.deltas = append(m.deltas, *r.Delta)
		}
		m.ids = append(m.ids, m.r.Cursor().String())
	}
	return err
}

// all reads to the end, which must be the wire's.
func (m *merlinStream) all() *merlinStream {
	m.k.Helper()
	for {
		switch err := m.next(); {
		case errors.Is(err, io.EOF):
			if !m.c.Ended {
				m.k.Fatalf("the stream ended without an end; the client has %+v", m.c)
			}
			return m
		case err != nil:
			m.k.Fatalf("%v; the client has %+v", err, m.c)
		}
	}
}

// merlinRun answers a question by hand: a call with progress and a sub-agent,
// text, a citation.
func merlinRun(o *owner, command string) {
	o.k.Helper()
	o.start(command)
	child := chunk.Base{AgentID: o.g.Session() + ".1", AgentType: "helper", RunID: "run-child"}
	one := func(c chunk.Chunk) { o.k.Helper(); o.commit(spool.Row{}, nil, c) }
	one(&chunk.Thinking{Content: "Hm."})
	one(&chunk.ToolArgStreamStart{ToolCallID: "c1", ToolName: "ask"})
	one(&chunk.ToolArgStreamEnd{ToolCallID: "c1", Arguments: json.RawMessage(`{"q":1}`)})
	one(&chunk.AssistantMessage{MessageID: o.msg, StepID: o.stepID(), FinishReason: "tool-calls", Parts: []chunk.Part{
		{Type: chunk.PartReasoning, First: headOf(o) - 2, Text: "Hm."},
		{Type: chunk.PartTool, First: headOf(o) - 1, Tool: &chunk.ToolPart{CallID: "c1", Name: "ask", Input: json.RawMessage(`{"q":1}`)}},
	}})
	one(&chunk.ToolStart{ToolCallID: "c1", ToolName: "ask", Arguments: json.RawMessage(`{"q":1}`)})
	one(&chunk.Progress{ID: "c1/look", Label: "Looking", State: "running"})
	one(&chunk.SubAgentStart{SubAgentType: "helper", SubSessionID: child.AgentID, CallID: "c1"})
	one(&chunk.TextDelta{Base: child, Delta: "for"})
	one(&chunk.TextDelta{Base: child, Delta: "ty-two"})
	one(&chunk.Progress{ID: "c1/look", Label: "Looking", State: "done"})
	one(&chunk.ToolEnd{ToolCallID: "c1", ToolName: "ask", Result: json.RawMessage(`"forty-two"`), Success: true})
	o.settleStep()
	o.nextStep()
	o.text("It is ", "forty-two.")
	one(&chunk.Citation{SourceID: "s", URL: "https://a.example", Title: "A", CitedText: "42"})
	o.finish()
}

func headOf(o *owner) uint64 {
	h, err := o.g.Head(o.k.Context())
	if err != nil {
		o.k.Fatal(err)
	}
	return h.Seq
}

func TestMerlin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		version, text string
	}{
		{"v1", "It is forty-two.[citation: 1: 1]"},
		{"v2", "It is forty-two."},
	} {
		t.Run(tt.version, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, nil)
			path := "/merlin/" + tt.version
			live := k.merlin("POST", path+"/s", `{"message":"What is it?","commandId":"m1"}`)
			merlinRun(k.own("s"), "m1")
			live.all()
			if live.c.Text() != tt.text || len(live.c.Attachments) != 1 {
				t.Fatalf("the client has %+v", live.c)
			}
			if tt.version == "v2" {
				want := []merlin.Result{{Index: 0, Text: "forty-two"}}
				if b := live.c.Blocks; len(b) != 3 || !reflect.DeepEqual(b[1].Results, want) || len(b[1].Steps) != 1 || b[1].Steps[0].Status != merlin.Done {
					t.Errorf("the blocks are %+v", b)
				}
			}
			if tt.version == "v1" && !slices.Contains(live.content, "[citation: 1: 1]") {
				t.Errorf("the marker came in pieces: %q", live.content)
			}
			if tt.version == "v1" && live.longest > 5 {
				t.Errorf("content came in slices of %d characters", live.longest)
			}
			// The POST again is the same turn.
			again := k.merlin("POST", path+"/s", `{"message":"What is it?","commandId":"m1"}`).all()
			same(t, "the POST again", again.c, live.c)
			// Who comes with nothing has it all; who comes with any cursor goes on.
			same(t, "a newcomer", k.merlin("GET", path+"/s", "").all().c, live.c)
			for n := range again.ids {
				cut := k.merlin("POST", path+"/s", `{"message":"What is it?","commandId":"m1"}`)
				for range n + 1 {
					if err := cut.next(); err != nil {
						t.Fatal(err)
					}
				}
				id := cut.r.Cursor().String()
				cut.c.Drop()
				rest := k.do("GET", path+"/s", "", "Last-Event-ID", id)
				if rest.StatusCode == http.StatusNoContent {
					if !cut.c.Ended {
						t.Errorf("after event %d (%s) there is nothing", n+1, id)
					}
					continue
				}
				back := &merlinStream{k: k, res: rest, r: merlin.NewReader(rest.Body), c: cut.c}
				if back.all(); tt.version == "v1" && back.longest > 5 {
					t.Errorf("after event %d (%s) content came in slices of %d characters", n+1, id, back.longest)
				}
				if id != "0" { // before the first id a client begins again
					same(t, fmt.Sprintf("a client that came back after event %d (%s)", n+1, id), back.c, live.c)
				}
			}
			k.problem(409, "cursor_ahead", "GET", path+"/s", "", "Last-Event-ID", "9999")
			k.problem(400, "cursor_malformed", "GET", path+"/s?after=x", "")
			k.status(204, "GET", path+"/nobody", "")
			k.problem(405, "method_not_allowed", "DELETE", path+"/s", "")
		})
	}
}

func same(t *testing.T, who string, got, want *merlin.Client) {
	t.Helper()
	if g, w := mustJSON(got), mustJSON(want); g != w {
		t.Errorf("%s has %s, want %s", who, g, w)
	}
}

// What a tool shows reaches watching readers while the tool is still at it.
func TestMerlinProgressAtOnce(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		k := newKit(t, nil)
		post := k.merlin("POST", "/merlin/"+version+"/s", `{"message":"?","commandId":"m1"}`)
		o := k.own("s")
		o.start("m1")
		o.commit(spool.Row{}, nil, &chunk.ToolStart{ToolCallID: "c1", ToolName: "look", Arguments: json.RawMessage(`{"q":1}`)})
		events, err := merlin.NewEventManager(func(p *chunk.Progress) error {
			c := *p
			c.ID = "c1/" + c.ID
			o.commit(spool.Row{}, nil, &c)
			return nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		shown := func() string {
			steps := post.c.Steps
			for _, b := range post.c.Blocks {
				steps = append(steps, b.Steps...)
			}
			return mustJSON(steps)
		}
		step, err := events.CreateEvent("Looking", "")
		for _, next := range []struct {
			shows string
			then  func() error
		}{
			{`"IN_PROGRESS"`, func() error { return step.Send(merlin.Text("found it")) }},
			{`"found it"`, func() error { return step.End() }},
			{`"DONE"`, func() error { return nil }},
		} {
			for err == nil && !strings.Contains(shown(), next.shows) {
				err = post.next()
			}
			if err != nil {
				t.Fatalf("%s: %v before %s; the client has %s", version, err, next.shows, shown())
			}
			err = next.then()
		}
		o.commit(spool.Row{}, nil, &chunk.ToolEnd{ToolCallID: "c1", ToolName: "look", Result: json.RawMessage(`1`), Success: true})
		o.finish()
		post.all()
	}
}

// A newcomer in the middle gets the plan at once and then what follows; a
// client that was cut inside the plan gets the rest of it.
func TestMerlinAttach(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, nil)
			path := "/merlin/" + version + "/s"
			post := k.merlin("POST", path, `{"message":"?","commandId":"m1"}`)
			o := k.own("s")
			o.start("m1")
			o.text("one ", "two ")
			if p := k.problem(409, "busy", "POST", path, `{"message":"again?"}`); p.Attach != "./s" {
				t.Errorf("a busy session is to be followed at %s", p.Attach)
			}
			o.commit(spool.Row{}, nil, &chunk.File{URL: "https://f.example", MediaType: "text/plain"})
			late := k.merlin("GET", path, "")
			for late.c.Text() != "one two " || len(late.c.Attachments) == 0 {
				if err := late.next(); err != nil {
					t.Fatal(err)
				}
			}
			if len(late.ids) < 2 || !strings.HasPrefix(late.ids[0], "p1-") {
				t.Fatalf("the plan's ids are %v", late.ids)
			}
			rest := k.merlin("GET", path, "", "Last-Event-ID", late.ids[0])
			o.text("three")
			o.finish()
			late.all()
			same(t, "who came late", late.c, post.all().c)
			rest.all()
			if text := rest.c.Text(); !strings.HasSuffix("one two three", text) || len(text) < len("three") {
				t.Errorf("who was cut inside the plan got %q", text)
			}
		})
	}
}

// A discarded model phase cuts those who saw it; they begin again. A failure is
// told.
func TestMerlinRetracts(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Wires: wires.Options{Merlin: merlin.WireOptions{Pacing: []merlin.Pace{}}}})
	post := k.merlin("POST", "/merlin/v2/s", `{"message":"?","commandId":"m1"}`)
	o := k.own("s")
	o.start("m1")
	o.text("wrong")
	for post.c.Text() != "wrong" {
		if err := post.next(); err != nil {
			t.Fatal(err)
		}
	}
	o.commit(spool.Row{}, nil, &chunk.StepDiscarded{StepID: o.stepID(), Reason: "crash_recovery"})
	if err := post.next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("who saw a discarded phase was told %v", err)
	}
	k.problem(409, "cursor_retracted", "GET", "/merlin/v2/s", "", "Last-Event-ID", post.r.Cursor().String())
	again := k.merlin("GET", "/merlin/v1/s", "")
	o.nextStep()
	o.text("right")
	o.end(chunk.OutcomeFailed, "no power")
	again.all()
	if again.c.Text() != "right" || again.c.Error == nil || again.c.Error.Message != "no power" {
		t.Errorf("the client has %+v", again.c)
	}
}

// What a sub-agent thought and did not mean is taken back from those who saw it.
// Their cursor is refused, or they would be cut for ever.
func TestMerlinRetractsOfSubAgents(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	path := "/merlin/v2/s"
	post := k.merlin("POST", path, `{"message":"?","commandId":"m1"}`)
	o := k.own("s")
	o.start("m1")
	child := chunk.Base{AgentID: "s.1", AgentType: "helper", RunID: "run-child"}
	one := func(c chunk.Chunk) { t.Helper(); o.commit(spool.Row{}, nil, c) }
	one(&chunk.ToolStart{ToolCallID: "c1", ToolName: "ask", Arguments: json.RawMessage(`{"q":1}`)})
	one(&chunk.SubAgentStart{SubAgentType: "helper", SubSessionID: "s.1", CallID: "c1"})
	one(&chunk.StepStarted{Base: child, StepID: "s.1-1"})
	one(&chunk.Thinking{Base: child, Content: "wrong"})
	for len(post.c.Blocks) == 0 || post.c.Blocks[0].Reasoning != "wrong" {
		if err := post.next(); err != nil {
			t.Fatal(err)
		}
	}
	one(&chunk.StepDiscarded{Base: child, StepID: "s.1-1", Reason: "crash_recovery"})
	if err := post.next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("who saw a discarded phase was told %v", err)
	}
	one(&chunk.StepStarted{Base: child, StepID: "s.1-2"})
	one(&chunk.Thinking{Base: child, Content: "right"})
	k.problem(409, "cursor_retracted", "GET", path, "", "Last-Event-ID", post.r.Cursor().String())
	again := k.merlin("GET", path, "")
	for len(again.c.Blocks) == 0 || again.c.Blocks[0].Reasoning != "right" {
		if err := again.next(); err != nil {
			t.Fatal(err)
		}
	}
	back := k.merlin("GET", path, "", "Last-Event-ID", again.r.Cursor().String())
	one(&chunk.ToolEnd{ToolCallID: "c1", ToolName: "ask", Result: json.RawMessage(`"so"`), Success: true})
	o.finish()
	back.c = again.c
	if back.all(); back.c.Blocks[0].Results[0].Text != "so" {
		t.Errorf("the client has %+v", back.c)
	}
}

// A run that waits for an answer ends the stream, as one that is over does; the
// snapshot says what it waits for. Who comes back goes on where it was.
func TestMerlinPause(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, nil)
			path := "/merlin/" + version + "/s"
			post := k.merlin("POST", path, `{"message":"Where am I?","commandId":"m1"}`)
			o := k.own("s")
			o.start("m1")
			o.text("Let me see. ")
			o.ask("c1")
			post.all()
			if snap := k.snapshot("s"); snap.Status != chunk.StatusPaused {
				t.Errorf("the session is %s", snap.Status)
			}
			k.status(http.StatusOK, "POST", "/api/chat/s/tools/c1", `{"output":"here"}`)
			back := k.merlin("GET", path, "", "Last-Event-ID", post.r.Cursor().String())
			later := k.merlin("GET", path, "")
			o = k.own("s")
			o.start(chat.AnswerID(wire.Answer{CallID: "c1"}), "m1")
			o.text("You are here.")
			o.finish()
			back.c = post.c
			back.all()
			same(t, "who came back after the pause", post.c, later.all().c)
			if text := post.c.Text(); text != "Let me see. You are here." || !post.c.Ended {
				t.Errorf("the client has %q, ended %v", text, post.c.Ended)
			}
			if version == "v2" && (len(post.c.Blocks) != 3 || len(post.c.Blocks[1].Results) != 1 || post.c.Blocks[1].Results[0].Text != "here") {
				t.Errorf("the blocks are %+v", post.c.Blocks)
			}
		})
	}
}

// A summary shows what sub-agents do and give, and nothing of what they say.
func TestMerlinSubAgents(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Wires: wires.Options{Merlin: merlin.WireOptions{Suppress: func(agent string) bool { return agent == "nobody" }}}})
	p := k.player()
	p.until(planes, chunk.TypeTextDelta)
	path := "/merlin/v2/" + wiretest.Session
	silent, nest, summary := k.merlin("GET", path, ""), k.merlin("GET", path+"?agents=nest", ""), k.merlin("GET", path+"?agents=summary", "")
	p.all()
	said := func(m *merlinStream) (said string) {
		for _, r := range m.deltas {
			said += r
		}
		return said
	}
	whole, less := nest.all(), summary.all()
	if !strings.Contains(said(whole), "leave hourly") || said(less) != "" {
		t.Errorf("by default the sub-agents say %q, in a summary %q", said(whole), said(less))
	}
	if got := said(silent.all()); got != said(whole) {
		t.Errorf("who does not ask is told %q", got)
	}
	last := func(c *merlin.Client) string {
		for i := range c.Blocks {
			c.Blocks[i].Reasoning = ""
		}
		return mustJSON(c)
	}
	if got, want := last(less.c), last(whole.c); got != want {
		t.Errorf("a summary ends with %s, want %s", got, want)
	}
	for _, agents := range []string{"flatten", "bogus"} {
		k.problem(400, "invalid", "GET", path+"?agents="+agents, "")
		k.problem(400, "invalid", "POST", "/merlin/v1/none?agents="+agents, `{"message":"hi"}`)
	}
	k.status(204, "GET", "/merlin/v1/none", "")
}

// A drained reader is cut between two slices, without an end, and goes on
// elsewhere.
func TestMerlinDrain(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, nil)
			path := "/merlin/" + version + "/s"
			post := k.merlin("POST", path, `{"message":"?","commandId":"m1"}`)
			o := k.own("s")
			o.start("m1")
			o.text("one ")
			for post.c.Text() != "one " {
				if err := post.next(); err != nil {
					t.Fatal(err)
				}
			}
			if err := k.srv.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := post.next(); err == nil || errors.Is(err, io.EOF) || post.c.Ended {
				t.Errorf("a drained reader was told %v, ended %v", err, post.c.Ended)
			}
			k.problem(http.StatusServiceUnavailable, "draining", "GET", path, "")
			other := k.beside(nil)
			back := other.merlin("GET", path, "", "Last-Event-ID", post.r.Cursor().String())
			o.text("two")
			o.finish()
			if text := post.c.Text() + back.all().c.Text(); text != "one two" {
				t.Errorf("the client has %q", text)
			}
		})
	}
}

package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/server/wires"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/wiretest"
)

// player writes a log of agents that call agents, as far as it is told.
type player struct {
	*kit
	o    *owner
	left []chunk.Record
}

func (k *kit) player() *player { return &player{kit: k, left: wiretest.Agents()} }

// until writes up to and with the first record of this agent and type.
func (p *player) until(agent string, t chunk.Type) {
	p.Helper()
	for len(p.left) > 0 {
		r := p.left[0]
		p.left = p.left[1:]
		p.write(r)
		if r.Agent == agent && r.Type == t {
			return
		}
	}
	p.Fatalf("no %s of %s", t, agent)
}

func (p *player) all() {
	for ; len(p.left) > 0; p.left = p.left[1:] {
		p.write(p.left[0])
	}
}

func (p *player) write(r chunk.Record) {
	p.Helper()
	c, err := chunk.Decode(r.Data)
	if err != nil {
		p.Fatal(err)
	}
	g, err := p.logs.Log(wiretest.Session)
	if err != nil {
		p.Fatal(err)
	}
	if chunk.IsCommand(r.Type) && r.Agent == wiretest.Session || r.Type == chunk.TypeToolApprovalResponse || r.Type == chunk.TypeToolResultSubmitted {
		if _, err := g.Command(p.Context(), spool.Row{}, c); err != nil {
			p.Fatal(err)
		}
		return
	}
	if p.o == nil {
		p.o = p.own(wiretest.Session)
	}
	var row spool.Row
	var settle *spool.Settle
	if r.Agent == wiretest.Session {
		switch r.Type {
		case chunk.TypeRunStarted:
			row.Status, settle = chunk.StatusActive, &spool.Settle{Seen: r.Seq}
		case chunk.TypeRunSuspended:
			row.Status = chunk.StatusPaused
		case chunk.TypeRunFinished:
			row.Status = chunk.StatusEnded
		}
	}
	if res := p.o.commit(row, settle, c); res.First != r.Seq {
		p.Fatalf("record %d became %d", r.Seq, res.First)
	}
}

const (
	trains  = wiretest.Session + ".1"
	history = trains + ".1"
	planes  = wiretest.Session + ".2"
	book    = wiretest.Session + ".3"
)

// ofAgents says whose the chunks of a native stream are.
func ofAgents(list []event) (agents []string) {
	for _, e := range list {
		var c struct{ AgentID string }
		_ = json.Unmarshal([]byte(e.Data), &c)
		if c.AgentID != "" && !slices.Contains(agents, c.AgentID) {
			agents = append(agents, c.AgentID)
		}
	}
	slices.Sort(agents)
	return agents
}

// foldOf returns the messages that a native stream folds into.
func foldOf(t *testing.T, session string, list []event) string {
	t.Helper()
	f := fold.New(session)
	for _, e := range list {
		c, err := chunk.Decode([]byte(e.Data))
		if err != nil {
			t.Fatal(err)
		}
		if e.ID == "" {
			continue
		}
		seq, err := strconv.ParseUint(e.ID, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		b := c.ChunkBase()
		f.ApplyChunk(chunk.Record{Seq: seq, Type: c.ChunkType(), Agent: b.AgentID, Time: b.Timestamp}, c)
	}
	return encoded(t, f.Messages)
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// childMessages returns those of the session's own fold.
func (k *kit) childMessages(session string) (messages string) {
	k.Helper()
	g, err := k.logs.Log(wiretest.Session)
	if err == nil {
		err = g.View(k.Context(), func(f *fold.Fold) error {
			messages = encoded(k.T, f.Child(session).Messages)
			return nil
		})
	}
	if err != nil {
		k.Fatal(err)
	}
	return messages
}

// TestChildStreams: a child's session is attached to like any other while it
// works, its streams hold its own subtree, and end when it does, whatever the
// others do.
func TestChildStreams(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	p := k.player()
	p.until(planes, chunk.TypeTextDelta)
	native := k.stream("GET", "/stream/"+trains, "")
	self := k.stream("GET", "/stream/"+trains+"?agent=self", "")
	replay := k.stream("GET", "/api/chat/"+trains+"/stream", "")
	merlin := k.stream("GET", "/merlin/v2/"+trains, "")
	sibling := k.stream("GET", "/stream/"+planes, "")
	grandchild := func() *events { return k.stream("GET", "/stream/"+history, "") }
	root := k.stream("GET", "/stream/"+wiretest.Session+"?agent=self", "")
	snap := k.snapshot(trains)
	if snap.SessionID != trains || snap.Status != chunk.StatusActive || snap.Title != "Trains?" || len(snap.Messages) != 1 {
		t.Errorf("the child's snapshot is %+v", snap)
	}
	early := k.stream("GET", "/api/chat/"+trains+"/stream", "", "X-Resume-From-Sequence", fmt.Sprint(snap.StreamSequence))

	p.until(history, chunk.TypeTextDelta)
	below := grandchild()
	p.until(trains, chunk.TypeRunFinished)
	whole := native.all()
	// That another owner has the session is of all agents.
	if got := ofAgents(whole); !slices.Equal(got, []string{wiretest.Session, trains, history}) || whole[len(whole)-1].Data != `{"type":"end"}` {
		t.Errorf("the child's records are those of %v, then %s", got, whole[len(whole)-1].Data)
	}
	if got := ofAgents(self.all()); !slices.Equal(got, []string{wiretest.Session, trains}) {
		t.Errorf("its own are those of %v", got)
	}
	if got := ofAgents(below.all()); !slices.Equal(got, []string{wiretest.Session, history}) {
		t.Errorf("the grandchild's are those of %v", got)
	}
	lost := sibling.all()
	if end := lost[len(lost)-1].Data; !strings.Contains(end, `"fail"`) {
		t.Errorf("the failed one ends with %s", end)
	}
	const said = "Trains leave hourly.Trains are older."
	for name, e := range map[string]*events{"replay": replay, "page load": early} {
		list := e.all()
		if got := textOf(list); got != said || list[len(list)-1].Data != "[DONE]" {
			t.Errorf("%s: the child says %q, then %s", name, got, list[len(list)-1].Data)
		}
	}
	if list := merlin.all(); !strings.Contains(datas(list), "leave hourly") {
		t.Errorf("the child on the Merlin wire: %s", datas(list))
	}
	for i, e := range whole[:len(whole)-1] {
		rest := k.stream("GET", "/stream/"+trains, "", "Last-Event-ID", e.ID).all()
		if datas(append(slices.Clone(whole[:i+1]), rest...)) != datas(whole) {
			t.Fatalf("the child's records after %s: %s", e.ID, datas(rest))
		}
	}
	p.until(wiretest.Session, chunk.TypeRunFinished)
	if got := ofAgents(root.all()); !slices.Equal(got, []string{wiretest.Session}) {
		t.Errorf("the root's own records are those of %v", got)
	}
	if list := k.stream("GET", "/stream/"+wiretest.Session, "").all(); len(ofAgents(list)) != 4 {
		t.Errorf("the root's tree is %v", ofAgents(list))
	}

	// Anywhere, and long after.
	list := k.stream("GET", "/api/chat/"+trains+"/stream", "", "X-Resume-From-Sequence", fmt.Sprint(snap.StreamSequence)).all()
	for i, e := range list {
		if e.ID == "" || i > 0 && list[i-1].ID == e.ID {
			continue
		}
		rest := ""
		if res := k.do("GET", "/api/chat/"+trains+"/stream", "", "Last-Event-ID", e.ID); res.StatusCode == http.StatusOK {
			rest = textOf((&events{k: k, res: res, r: newSSE(res)}).all())
		}
		if got := textOf(list[:i+1]) + rest; got != said {
			t.Errorf("cut after %s: %q", e.ID, got)
		}
	}
	// Whose owner is lost in the middle of a child's words, and again in the middle of
	// the records that close them: cut anywhere, the child's records fold into what
	// the child has said.
	spoken := k.childMessages(planes)
	for i, e := range lost[:len(lost)-2] {
		rest := k.stream("GET", "/stream/"+planes, "", "Last-Event-ID", e.ID).all()
		if got := foldOf(t, planes, append(slices.Clone(lost[:i+1]), rest...)); got != spoken {
			t.Fatalf("cut after %s: %s\nwant %s", e.ID, got, spoken)
		}
	}
	k.status(http.StatusGone, "GET", "/stream/"+planes, "", "Last-Event-ID", fmt.Sprint(k.snapshot(planes).StreamSequence))
}

// TestChildSessions: what is read of a session is read of a child's, for any caller that
// may read its root's; only its parent tells it what to do.
func TestChildSessions(t *testing.T) {
	t.Parallel()
	var asked []string
	k := newKit(t, &server.Options{Authorize: func(_ context.Context, a server.Access) error {
		asked = append(asked, a.Session)
		if a.Session != wiretest.Session {
			return errors.New("no")
		}
		return nil
	}})
	p := k.player()
	p.all()
	snap := k.snapshot(trains)
	if len(snap.Messages) != 2 || snap.Messages[0].Role != "user" || snap.Status != chunk.StatusEnded {
		t.Errorf("the child's messages are %+v", snap.Messages)
	}
	if i := slices.IndexFunc(snap.Messages[1].Parts, func(p aisdk.UIPart) bool { return p.Type == "data-subagent" && p.ID == history }); i < 0 {
		t.Errorf("the child's message lacks its own child: %+v", snap.Messages[1].Parts)
	}
	var page frontend.MessagesPage
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/api/messages/"+trains+"?agents=summary", ""), &page); err != nil || page.Total != 2 {
		t.Errorf("the child's messages: %+v, %v", page, err)
	}
	for _, part := range page.Messages[1].Parts {
		if part.Type == "data-subagent" {
			t.Errorf("a summary has %+v", part)
		}
	}
	var points chat.CheckpointsPage
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/api/chat/"+trains+"/checkpoints", ""), &points); err != nil || points.Total != 3 {
		t.Errorf("the child's checkpoints: %+v, %v", points, err)
	}
	was := points.Items[0]
	var then frontend.Snapshot
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/api/chat/"+trains+"/snapshot?checkpoint="+was.ID, ""), &then); err != nil || then.StreamSequence != was.Seq {
		t.Errorf("the child at its checkpoint %+v: %+v, %v", was, then, err)
	}
	var info chat.Info
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/stream/"+trains+"/info", ""), &info); err != nil || info.Status != chunk.StatusEnded ||
		info.Session != trains || info.Latest == 0 || info.Latest >= k.snapshot(wiretest.Session).StreamSequence {
		t.Errorf("the child's info: %+v, %v", info, err)
	}
	k.status(http.StatusOK, "HEAD", "/stream/"+trains, "")
	for _, id := range asked {
		if id != wiretest.Session {
			t.Errorf("Authorize was asked for %s", id)
		}
	}

	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/"+wiretest.Session+".99/snapshot", "")
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/stranger.1/snapshot", "")
	k.problem(http.StatusNotFound, "not_found", "GET", "/stream/stranger.1", "")
	k.problem(http.StatusBadRequest, "invalid_session_id", "POST", "/api/chat/"+trains, userBody(trains, "u", "hello"))
	k.problem(http.StatusBadRequest, "invalid_session_id", "DELETE", "/api/chat/"+trains, "")
	k.problem(http.StatusBadRequest, "invalid_session_id", "POST", "/stream/"+trains+"?claim", "")
	k.problem(http.StatusBadRequest, "invalid", "GET", "/stream/"+trains+"?agent=all", "")
	k.problem(http.StatusBadRequest, "invalid", "GET", "/api/chat/"+trains+"?agents=all", "")
	k.problem(http.StatusBadRequest, "invalid", "GET", "/api/chat/"+trains+"/snapshot?agents=all", "")
}

// TestChildrenOnTheRoot: the root's stream shows its children as the request or
// the server says, and ends as its snapshot says, also at a pause.
func TestChildrenOnTheRoot(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Wires: wires.Options{AISDK: aisdk.Options{SubAgents: aisdk.Summary}}})
	p := k.player()
	p.until(trains, chunk.TypeTextDelta)
	base := "/api/chat/" + wiretest.Session
	type reading struct {
		e *events
		q string
	}
	var list []reading
	for _, q := range []string{"", "?agents=nest", "?agents=summary"} {
		list = append(list, reading{k.stream("GET", base+"/stream"+q, ""), q})
	}
	p.until(planes, chunk.TypeStepDiscarded) // which cuts those who were sent its words
	list = append(list, reading{k.stream("GET", base+"/stream?agents=flatten", ""), "?agents=flatten"})
	p.until(wiretest.Session, chunk.TypeRunFinished)
	check := func(list []reading) {
		t.Helper()
		for _, r := range list {
			c := aisdk.Client{}
			for _, e := range r.e.all() {
				if err := c.Write([]byte("data: " + e.Data + "\n\n")); err != nil {
					t.Fatalf("%q: %v", r.q, err)
				}
			}
			var snap frontend.Snapshot
			if err := json.Unmarshal(k.status(http.StatusOK, "GET", base+"/snapshot"+r.q, ""), &snap); err != nil {
				t.Fatal(err)
			}
			last := snap.Messages[len(snap.Messages)-1]
			for i := range last.Parts {
				if a := last.Parts[i].Approval; a != nil {
					a.Approved, a.Reason = nil, ""
				}
			}
			if got, want := mustJSON(c.Message.Parts), mustJSON(last.Parts); got != want {
				t.Errorf("%q: the stream has\n%s\nthe snapshot\n%s", r.q, got, want)
			}
			nested := strings.Contains(mustJSON(last.Parts), "data-subagent")
			if nested != strings.Contains(r.q, "nest") {
				t.Errorf("%q: nested is %v", r.q, nested)
			}
			flat := strings.Contains(mustJSON(last.Parts), `"providerMetadata":{"spool":{"agent":"`+wiretest.Session+`.`)
			if flat != strings.Contains(r.q, "flatten") {
				t.Errorf("%q: attributed parts: %v", r.q, flat)
			}
		}
	}
	check(list)
	p.until(book, chunk.TypeRunStarted)
	list = nil
	for _, q := range []string{"?agents=nest", "?agents=summary", "?agents=flatten"} {
		list = append(list, reading{k.stream("GET", base+"/stream"+q, ""), q})
	}
	p.until(wiretest.Session, chunk.TypeRunSuspended)
	check(list)
	snap := k.snapshot(wiretest.Session)
	if !strings.Contains(mustJSON(snap.Messages), chunk.ChildCallID(book, "pay")) {
		t.Errorf("the pending call of a child is not among the message's: %s", mustJSON(snap.Messages))
	}

	// A history is the same read whole and message by message.
	for _, q := range []string{"agents=nest", "agents=summary", "agents=flatten"} {
		page := func(at string) (p frontend.MessagesPage) {
			if err := json.Unmarshal(k.status(http.StatusOK, "GET", base+"/messages?"+q+at, ""), &p); err != nil {
				t.Fatal(err)
			}
			return p
		}
		whole := page("")
		if whole.Total != len(whole.Messages) || whole.HasMore || whole.Total < 4 {
			t.Fatalf("%s: %d of %d messages", q, len(whole.Messages), whole.Total)
		}
		for i := range whole.Messages {
			one := page(fmt.Sprintf("&limit=1&offset=%d", i))
			if len(one.Messages) != 1 || mustJSON(one.Messages[0]) != mustJSON(whole.Messages[i]) || one.HasMore != (i+1 < whole.Total) {
				t.Errorf("%s: message %d by itself: %s\namong all: %s", q, i, mustJSON(one), mustJSON(whole.Messages[i]))
			}
		}
	}
}

// TestFlattenedRetraction: who was sent words of a sub-agent that are taken back
// is cut, refused at a cursor inside them, and then sent the message without them.
func TestFlattenedRetraction(t *testing.T) {
	t.Parallel()
	for _, q := range []string{"?agents=flatten", "?agents=flatten&ui=7"} {
		t.Run(q, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, nil)
			p := k.player()
			p.until(planes, chunk.TypeTextDelta)
			base := "/api/chat/" + wiretest.Session + "/stream"
			there := k.stream("GET", base+q, "")
			seen := there.until(`"delta":"Planes "`)
			p.until(planes, chunk.TypeStepDiscarded)
			rest, err := there.rest()
			if err == io.EOF || !strings.Contains(datas(rest), "data-stream-resync") {
				t.Errorf("%v after %s", err, datas(rest))
			}
			for _, e := range append(seen, rest...) {
				if e.ID != "" {
					k.problem(http.StatusConflict, "cursor_retracted", "GET", base+q, "", "Last-Event-ID", e.ID)
				}
			}
			again := k.stream("GET", base+q, "")
			p.until(wiretest.Session, chunk.TypeRunFinished)
			c := aisdk.Client{UI7: strings.Contains(q, "ui=7")}
			for _, e := range again.all() {
				if err := c.Write([]byte("data: " + e.Data + "\n\n")); err != nil {
					t.Fatal(err)
				}
			}
			if got := mustJSON(c.Message.Parts); strings.Contains(got, "Planes fly") || !strings.Contains(got, "Planes are fast.") || strings.Contains(got, `"streaming"`) {
				t.Errorf("the message is %s", got)
			}
		})
	}
}

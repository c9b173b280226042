package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
)

// twoSteps plays a turn of two steps, with the checkpoints cp-1 and cp-run-u1.
func (k *kit) twoSteps(session string, header ...string) {
	k.Helper()
	e := k.stream("POST", "/api/chat/"+session, userBody(session, "u1", "a question"), header...)
	o := k.own(session)
	o.start("u1")
	o.text("one ")
	o.settleStep()
	o.commit(spool.Row{}, nil, &chunk.CheckpointCreated{CheckpointID: "cp-1", StepCount: 1})
	o.nextStep()
	o.text("two")
	o.finish()
	e.all()
}

type branched struct {
	SessionID string
	Status    chunk.Status
	Reason    string
	Pending   bool
	Origin    fold.Origin
}

func (k *kit) branch(session, body string, header ...string) branched {
	k.Helper()
	var b branched
	if err := json.Unmarshal(k.status(http.StatusOK, "POST", "/api/chat/"+session+"/resume", body, header...), &b); err != nil {
		k.Fatal(err)
	}
	return b
}

func TestBranchByRoute(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.twoSteps("s")
	b := k.branch("s", `{"mode":"branch","checkpointId":"cp-1","commandId":"c1"}`)
	if b.SessionID == "s" || b.Status != chunk.StatusPaused || b.Reason != "interrupted" || b.Origin.Session != "s" || b.Origin.CheckpointID != "cp-1" {
		t.Fatalf("answer %+v", b)
	}
	s := k.snapshot(b.SessionID)
	if s.Origin == nil || *s.Origin != b.Origin || len(s.Messages) != 2 || s.Messages[1].ID != "answer-u1" || s.Status != chunk.StatusPaused {
		t.Errorf("snapshot %s", mustJSON(s))
	}
	if text := mustJSON(s.Messages[1]); !strings.Contains(text, `"one "`) || strings.Contains(text, "two") || !strings.Contains(text, "data-run-interrupted") {
		t.Errorf("the answer %s", text)
	}
	if again := k.branch("s", `{"mode":"branch","checkpointId":"cp-1","commandId":"c1"}`); again != b {
		t.Errorf("a repeat: %+v", again)
	}
	if other := k.branch("s", `{"mode":"branch","checkpointId":"cp-1"}`); other.SessionID == b.SessionID {
		t.Errorf("without a command id: %+v", other)
	}
	named := `{"mode":"branch","checkpointId":"cp-1","sessionId":"mine"}`
	if mine := k.branch("s", named); mine.SessionID != "mine" || mine != k.branch("s", named) {
		t.Errorf("named: %+v", mine)
	}
	// Behind the run's last step nothing is left to do.
	whole := k.branch("s", `{"mode":"branch","checkpointId":"cp-run-u1","sessionId":"whole"}`)
	if whole.Status != chunk.StatusEnded || whole.Reason != "completed" || !strings.Contains(mustJSON(k.snapshot("whole").Messages), "two") {
		t.Errorf("at the end: %+v", whole)
	}
	var list struct{ Sessions []spool.SessionInfo }
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/sessions", ""), &list); err != nil || len(list.Sessions) != 5 || list.Sessions[4].Title != list.Sessions[0].Title {
		t.Errorf("listed %+v, %v", list, err)
	}
	// The branch goes its own way, and the source does not notice.
	before := k.snapshot("s").StreamSequence
	if got := textOf(k.turn(b.SessionID, "u2", "three")); got != "three" {
		t.Errorf("a turn in the branch: %q", got)
	}
	again := k.branch(b.SessionID, `{"mode":"branch","checkpointId":"cp-run-u2","sessionId":"again"}`)
	if again.Origin.Session != b.SessionID || len(k.snapshot("again").Messages) != 4 {
		t.Errorf("a branch of the branch: %+v", again)
	}
	if k.snapshot("s").StreamSequence != before {
		t.Error("the source has changed")
	}
	// A checkpoint is there by the same id.
	if data := k.status(http.StatusOK, "GET", "/api/chat/again/snapshot?checkpoint=cp-1", ""); !strings.Contains(string(data), `"one "`) || strings.Contains(string(data), "three") {
		t.Errorf("at the checkpoint: %s", data)
	}
}

func TestBranchWithAMessage(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.twoSteps("s")
	body := `{"mode":"branch","checkpointId":"cp-1","commandId":"c1","message":{"id":"u9","role":"user","parts":[{"type":"text","text":"another way"}]}}`
	b := k.branch("s", body)
	if b.Status != chunk.StatusActive || !b.Pending {
		t.Errorf("answer %+v", b)
	}
	if again := k.branch("s", body); again.SessionID != b.SessionID {
		t.Errorf("a repeat: %+v", again)
	}
	page := k.stream("GET", "/api/chat/"+b.SessionID, "")
	o := k.own(b.SessionID)
	id := ""
	if err := o.g.View(k.Context(), func(f *fold.Fold) error {
		if len(f.Waiting) != 1 {
			return fmt.Errorf("%d commands wait", len(f.Waiting))
		}
		id = f.Waiting[0].ID
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	o.start(id)
	o.text("yes")
	o.finish()
	if got := textOf(page.all()); got != "yes" {
		t.Errorf("streamed %q", got)
	}
	s := k.snapshot(b.SessionID)
	if len(s.Messages) != 4 || s.Messages[2].ID != "u9" {
		t.Errorf("messages %s", mustJSON(s.Messages))
	}
	if again := k.branch("s", body); again.Status != chunk.StatusEnded || k.snapshot(b.SessionID).StreamSequence != s.StreamSequence {
		t.Errorf("a late repeat: %+v", again)
	}
}

func TestBranchRefusals(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{
		Principal: func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil },
		Authorize: func(_ context.Context, a server.Access) error {
			if strings.HasPrefix(a.Session, a.Principal+"-") || a.Action == server.ActionStop {
				return nil
			}
			return errors.New("not yours")
		},
	})
	k.twoSteps("ann-1", "Authorization", "ann")
	k.twoSteps("ann-2", "Authorization", "ann")
	const path = "/api/chat/ann-1/resume"
	for _, c := range []struct {
		who    string
		status int
		code   string
		body   string
	}{
		{"ann", 404, "not_found", `{"mode":"branch","checkpointId":"none","sessionId":"ann-3"}`},
		{"ann", 404, "not_found", `{"mode":"branch","checkpointId":"cp-1","sessionId":"bob-1"}`},
		{"bob", 404, "not_found", `{"mode":"branch","checkpointId":"cp-1","sessionId":"bob-1"}`},
		{"ann", 409, "session_exists", `{"mode":"branch","checkpointId":"cp-1","sessionId":"ann-2"}`},
		{"ann", 409, "session_exists", `{"mode":"branch","checkpointId":"cp-1","sessionId":"ann-1"}`},
		{"ann", 400, "invalid_session_id", `{"mode":"branch","checkpointId":"cp-1","sessionId":"ann-1.2"}`},
		{"ann", 400, "invalid_id", `{"mode":"branch","checkpointId":"cp-1","sessionId":"ann-/"}`},
		{"ann", 400, "invalid_id", `{"mode":"branch","checkpointId":"cp-1","sessionId":"ann-3","commandId":"a\u0000"}`},
		{"ann", 400, "malformed_json", `{"mode":"branch"}`},
		{"ann", 400, "malformed_json", `{"mode":"branch","checkpointId":1}`},
		{"ann", 400, "malformed_json", `{"mode":"branch","checkpointId":"cp-1","sessionId":"ann-3","message":7}`},
		{"ann", 400, "no_message", `{"mode":"branch","checkpointId":"cp-1","sessionId":"ann-3","message":{"role":"user","parts":[]}}`},
		{"ann", 400, "malformed_json", `[]`},
	} {
		k.problem(c.status, c.code, "POST", path, c.body, "Authorization", c.who)
	}
	k.problem(404, "not_found", "POST", "/api/chat/ann-9/resume", `{"mode":"branch","checkpointId":"cp-1","sessionId":"ann-3"}`, "Authorization", "ann")
	for _, session := range []string{"ann-3", "bob-1"} {
		if _, err := k.store.Head(k.Context(), session); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("%s was made", session)
		}
	}
}

func TestCheckpointPages(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.twoSteps("s")
	k.turn("s", "u2", "more")
	page := func(query string) chat.CheckpointsPage {
		t.Helper()
		var p chat.CheckpointsPage
		if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/api/chat/s/checkpoints"+query, ""), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	line := func(p chat.CheckpointsPage) string {
		text := fmt.Sprint(p.Total, p.HasMore)
		for _, c := range p.Items {
			text += fmt.Sprintf(" %s:%s:%d", c.ID, c.MessageID, c.StepIndex)
		}
		return text
	}
	const a, b, c = " cp-1:answer-u1:0", " cp-run-u1:answer-u1:1", " cp-run-u2:answer-u2:0"
	for query, want := range map[string]string{
		"": "3 false" + a + b + c, "?limit=2": "3 true" + a + b, "?offset=2&limit=2": "3 false" + c, "?offset=9": "3 false",
		"?order=desc": "3 false" + c + b + a, "?order=desc&limit=1&offset=1": "3 true" + b,
	} {
		if got := line(page(query)); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"?limit=-1", "?offset=x", "?order=up"} {
		k.problem(http.StatusBadRequest, "invalid", "GET", "/api/chat/s/checkpoints"+query, "")
	}
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/nobody/checkpoints", "")
	// An edit leaves checkpoints behind; they are still there.
	e := k.stream("POST", "/api/chat/s", strings.Replace(userBody("s", "u2", "other"), "{", `{"messageId":"u2",`, 1))
	o := k.own("s")
	id := ""
	_ = o.g.View(k.Context(), func(f *fold.Fold) error { id = f.Waiting[0].ID; return nil })
	o.start(id)
	o.finish()
	e.all()
	if got := line(page("?offset=2&limit=1")); got != "4 true cp-run-u2:answer-u2:-1" {
		t.Errorf("after an edit: %s", got)
	}
}

// A message that waits is in the snapshot, as waiting, until its run begins.
func TestWaitingMessages(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	first := k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.text("one")
	info := func() string { return string(k.status(http.StatusOK, "GET", "/stream/s/info", "")) }
	if !strings.Contains(info(), `"waiting":0`) {
		t.Errorf("info %s", info())
	}
	queued := k.stream("POST", "/api/chat/s", strings.Replace(userBody("s", "u2", "later"), "{", `{"whenBusy":"queue",`, 1))
	s := k.snapshot("s")
	if len(s.Waiting) != 1 || s.Waiting[0].ID != "u2" || s.Waiting[0].WhenBusy != chunk.BusyQueue ||
		!strings.Contains(mustJSON(s.Waiting), `"text":"later"`) || strings.Contains(mustJSON(s.Messages), "later") {
		t.Errorf("snapshot %s", mustJSON(s))
	}
	if !strings.Contains(info(), `"waiting":1`) {
		t.Errorf("info %s", info())
	}
	o.finish()
	first.all()
	// It is next: the stream shows the answer, so that the page must show it.
	s = k.snapshot("s")
	if len(s.Waiting) != 0 || len(s.Messages) != 3 || s.Messages[2].ID != "u2" || s.Status != chunk.StatusActive {
		t.Errorf("before its run: %s", mustJSON(s))
	}
	page := k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", fmt.Sprint(s.StreamSequence))
	o = k.own("s")
	o.start("u2")
	if s := k.snapshot("s"); len(s.Waiting) != 0 || s.Messages[len(s.Messages)-1].ID != "u2" {
		t.Errorf("when its run has begun: %s", mustJSON(s))
	}
	o.text("two")
	o.finish()
	queued.all()
	if got := textOf(page.all()); got != "two" {
		t.Errorf("the page is shown %q", got)
	}
	if !strings.Contains(info(), `"waiting":0`) {
		t.Errorf("info %s", info())
	}
}

// A rollback leaves checkpoints behind. They can still be looked at, branched at
// and come back to.
func TestCheckpointsAfterARollback(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.twoSteps("s")
	k.branch("s", `{"mode":"branch","checkpointId":"cp-run-u1","sessionId":"before"}`)
	k.status(http.StatusOK, "POST", "/api/chat/s/resume", `{"mode":"from_checkpoint","checkpointId":"cp-1"}`)
	if text := mustJSON(k.snapshot("s").Messages); !strings.Contains(text, `"one "`) || strings.Contains(text, "two") {
		t.Fatalf("rolled back: %s", text)
	}
	var page chat.CheckpointsPage
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/api/chat/s/checkpoints", ""), &page); err != nil || len(page.Items) != 2 ||
		page.Items[0].StepIndex != 0 || page.Items[1].StepIndex != -1 {
		t.Errorf("checkpoints %+v, %v", page, err)
	}
	if data := k.status(http.StatusOK, "GET", "/api/chat/s/snapshot?checkpoint=cp-run-u1", ""); !strings.Contains(string(data), "two") {
		t.Errorf("at the one left behind: %s", data)
	}
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/s/snapshot?checkpoint=cp-2", "")
	b := k.branch("s", `{"mode":"branch","checkpointId":"cp-run-u1","sessionId":"after"}`)
	if b.Status != chunk.StatusEnded || mustJSON(k.snapshot("after").Messages) != mustJSON(k.snapshot("before").Messages) {
		t.Errorf("a branch at the one left behind: %+v %s", b, mustJSON(k.snapshot("after").Messages))
	}
	// A branch of what is there now holds the rollback, too.
	e := k.say("s", "u2", "more")
	o := k.own("s")
	o.start("u2")
	o.text("three")
	o.finish()
	e.all()
	k.branch("s", `{"mode":"branch","checkpointId":"cp-run-u2","sessionId":"now"}`)
	if got, want := mustJSON(k.snapshot("now").Messages), mustJSON(k.snapshot("s").Messages); got != want {
		t.Errorf("the branch holds %s, its source %s", got, want)
	}
	k.branch("now", `{"mode":"branch","checkpointId":"cp-run-u1","sessionId":"then"}`)
	if got, want := mustJSON(k.snapshot("then").Messages), mustJSON(k.snapshot("before").Messages); got != want {
		t.Errorf("a branch of the branch, at the one left behind: %s, want %s", got, want)
	}
}

// A branch that is being written is not there for anybody; only deleting works,
// so that what a dead maker left behind can be cleared away.
func TestCopiesAreNotThere(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	lease, err := k.store.Claim(k.Context(), spool.Claim{Owner: "maker", Session: "b", Force: true, Hidden: true})
	if err != nil {
		t.Fatal(err)
	}
	record := chunk.Record{Type: chunk.TypeUserMessage, Agent: "b",
		Data: json.RawMessage(`{"type":"user_message","agentId":"b","timestamp":1,"commandId":"u","message":{"id":"u","role":"user","parts":[]}}`)}
	if _, err := k.store.Append(k.Context(), spool.Append{Session: "b", Epoch: lease.Epoch, Records: []chunk.Record{record}}); err != nil {
		t.Fatal(err)
	}
	for _, route := range []string{"snapshot", "messages", "checkpoints"} {
		k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/b/"+route, "")
	}
	for path, body := range map[string]string{
		"/api/chat/b": userBody("b", "u1", "hi"), "/api/chat/b/stop": "", "/api/chat/b/interrupt": "",
		"/api/chat/b/resume": `{"mode":"continue"}`, "/api/chat/b/approvals/x": `{"approved":true}`, "/stream/b?claim": "",
	} {
		k.problem(http.StatusNotFound, "not_found", "POST", path, body)
	}
	k.problem(http.StatusNotFound, "not_found", "GET", "/stream/b/info", "")
	k.problem(http.StatusNotFound, "not_found", "GET", "/stream/b", "")
	k.status(http.StatusNoContent, "GET", "/api/chat/b/stream", "") // as for any session that is not there
	if data := k.status(http.StatusOK, "GET", "/sessions", ""); strings.Contains(string(data), `"b"`) {
		t.Errorf("listed: %s", data)
	}
	if h, err := k.store.Head(k.Context(), "b"); err != nil || h.Seq != 1 || h.Due != 0 {
		t.Errorf("head %+v, %v", h, err)
	}
	k.status(http.StatusNoContent, "DELETE", "/api/chat/b", "")
	if got := textOf(k.turn("b", "u1", "a new one")); got != "a new one" {
		t.Errorf("then: %q", got)
	}
}

// A session may be branched while it is at work; neither notices the other.
func TestBranchOfARunningSession(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	e := k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.text("one ")
	o.settleStep()
	o.commit(spool.Row{}, nil, &chunk.CheckpointCreated{CheckpointID: "cp-1", StepCount: 1})
	o.nextStep()
	o.text("two ")
	queued := k.stream("POST", "/api/chat/s", strings.Replace(userBody("s", "u2", "later"), "{", `{"whenBusy":"queue",`, 1))
	o.settleStep()
	o.commit(spool.Row{}, nil, &chunk.CheckpointCreated{CheckpointID: "cp-2", StepCount: 2})
	o.nextStep()
	o.text("three")
	for checkpoint, want := range map[string]string{"cp-1": "one ", "cp-2": "one two "} {
		b := k.branch("s", `{"mode":"branch","checkpointId":"`+checkpoint+`","sessionId":"`+checkpoint+`"}`)
		s := k.snapshot(checkpoint)
		text := ""
		for _, p := range s.Messages[1].Parts {
			text += p.Text
		}
		if b.Status != chunk.StatusPaused || b.Pending || text != want || len(s.Messages) != 2 || len(s.Waiting) != 0 {
			t.Errorf("%s: %+v, %q, %s", checkpoint, b, text, mustJSON(s))
		}
	}
	o.finish()
	if got := textOf(e.all()); got != "one two three" {
		t.Errorf("the source said %q", got)
	}
	// What was left out of the branch may be said there, under the same id.
	if got := textOf(k.turn("cp-2", "u2", "yes")); got != "yes" {
		t.Errorf("in the branch: %q", got)
	}
	o = k.own("s")
	o.start("u2")
	o.finish()
	queued.all()
}

// TestBranchIsItsMakers: who branches another's session has a session of their own.
func TestBranchIsItsMakers(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Principal: named, Authorize: func(_ context.Context, a server.Access) error {
		if a.Action == server.ActionRead {
			return nil // everyone may read everything
		}
		return server.OwnerOnly(a)
	}})
	post := k.stream("POST", "/api/chat/s", userBody("s", "u1", "hi"), "Who", "ann")
	o := k.own("s")
	o.start("u1")
	o.text("hello")
	o.finish()
	post.all()
	k.status(http.StatusOK, "POST", "/api/chat/s/resume", `{"mode":"branch","checkpointId":"cp-run-u1","sessionId":"b"}`, "Who", "bob")
	info, err := k.store.Session(t.Context(), "b")
	if err != nil || info.Principal != "bob" || info.Title != "hi" {
		t.Errorf("the branch's row: %+v, %v", info, err)
	}
	k.problem(http.StatusNotFound, "not_found", "POST", "/api/chat/s/resume", `{"mode":"retry"}`, "Who", "bob")
}

// TestBranchReadsItsSource: who may send to a session and not read it cannot branch it, as
// the branch would show what is in it.
func TestBranchReadsItsSource(t *testing.T) {
	t.Parallel()
	var asked []string
	k := newKit(t, &server.Options{Principal: named, Authorize: func(_ context.Context, a server.Access) error {
		asked = append(asked, fmt.Sprint(a.Action, " ", a.Session))
		if a.Action == server.ActionRead && a.Principal == "bob" && a.Session == "s" {
			return errors.New("write only")
		}
		return nil
	}})
	k.twoSteps("s", "Who", "ann")
	const body = `{"mode":"branch","checkpointId":"cp-1","sessionId":"b"}`
	k.problem(http.StatusNotFound, "not_found", "POST", "/api/chat/s/resume", body, "Who", "bob")
	if _, err := k.store.Head(k.Context(), "b"); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("the branch was made: %v", err)
	}
	asked = nil
	k.status(http.StatusOK, "POST", "/api/chat/s/resume", body, "Who", "ann")
	if got := strings.Join(asked, ", "); got != "read s, send b" {
		t.Errorf("Authorize was asked for: %s", got)
	}
}

package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/tool"
)

// gate lets the calls of a tool pass one by one.
type gate struct {
	enter chan struct{} // one for each call that has begun
	pass  chan struct{}
	fail  atomic.Bool // the model fails in a turn's last step
}

func (g *gate) open(n int) {
	for range n {
		<-g.enter
		g.pass <- struct{}{}
	}
}

// walking runs an agent that walks two steps, each through the gate, adds them to
// the state, and says where it has come to.
func (k *kit) walking() *gate {
	k.Helper()
	g := &gate{enter: make(chan struct{}, 16), pass: make(chan struct{})}
	step := func(name string) scripted.Step {
		return scripted.Say(scripted.Text(name+" "), scripted.Calls(scripted.ToolCall{ID: "c", Name: "walk", Arguments: `{}`}))
	}
	walk := scripted.Steps(step("one"), step("two"), scripted.Say(scripted.Text("there")))
	a := &agent.Agent{Name: "walker",
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
			"walk": func(c scripted.Call) iter.Seq2[model.Part, error] {
				if c.Round == 2 && g.fail.Load() {
					return func(yield func(model.Part, error) bool) {
						if yield(model.TextDelta{ID: "t", Delta: "th"}, nil) {
							yield(nil, errors.New("out of breath"))
						}
					}
				}
				return walk(c)
			},
			"hello": scripted.Steps(scripted.Say(scripted.Text("hello"))),
			"wipe":  scripted.Steps(scripted.Say(scripted.Text("may I? "), scripted.Calls(scripted.ToolCall{ID: "c", Name: "wipe", Arguments: `{}`})), scripted.Say(scripted.Text("so be it"))),
		}}),
		Tools: []tool.Tool{
			tool.New("walk", "", func(ctx tool.Context, _ struct{}) (string, error) {
				g.enter <- struct{}{}
				select {
				case <-g.pass:
				case <-ctx.Done():
					return "", ctx.Err()
				}
				return "ok", tool.UpdateState(ctx, func(s *struct {
					Steps int `json:"steps"`
				}) error {
					s.Steps++
					return nil
				})
			}),
			tool.With(tool.New("wipe", "", func(tool.Context, struct{}) (string, error) { return "wiped", nil }), tool.Options{Approval: true}),
		}}
	r, err := runner.New(k.logs, []*agent.Agent{a}, nil)
	if err != nil {
		k.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(k.Context()) }()
	k.Cleanup(func() { _ = r.Close(); <-done })
	return g
}

// command posts to one of a session's routes and returns what it settled.
func (k *kit) command(path, body string) (s chat.Settled) {
	k.Helper()
	if err := json.Unmarshal(k.status(http.StatusOK, "POST", path, body), &s); err != nil {
		k.Fatal(err)
	}
	return s
}

// later posts to one of a session's routes beside the test.
func (k *kit) later(path, body string) <-chan chat.Settled {
	got := make(chan chat.Settled, 1)
	go func() {
		res, err := http.Post(k.http.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			close(got)
			return
		}
		defer res.Body.Close()
		var s chat.Settled
		_ = json.NewDecoder(res.Body).Decode(&s)
		got <- s
	}()
	return got
}

// awaitRecord waits for a record of a type.
func (k *kit) awaitRecord(session string, typ spool.Type) spool.Record {
	k.Helper()
	g, err := k.logs.Log(session)
	if err != nil {
		k.Fatal(err)
	}
	for r, err := range g.Records(k.Context(), spool.ReadOptions{Follow: true}) {
		if err != nil {
			k.Fatal(err)
		}
		if r.Type == typ {
			return r
		}
	}
	return spool.Record{}
}

// interrupted walks one step and is interrupted there.
func (k *kit) interrupted(session string) (g *gate, post []event, s chat.Settled) {
	k.Helper()
	g = k.walking()
	e := k.say(session, "u1", "walk")
	<-g.enter
	settled := k.later("/api/chat/"+session+"/interrupt", `{"reason":"wait"}`)
	k.awaitRecord(session, spool.TypeInterruptRequested)
	g.pass <- struct{}{}
	return g, e.all(), <-settled
}

func TestInterruptAndContinue(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	g, post, s := k.interrupted("s")
	if s.Status != spool.StatusPaused || s.Reason != "interrupted" || s.Pending || s.RunID == "" {
		t.Errorf("%+v", s)
	}
	if got := datas(post); textOf(post) != "one " || !strings.Contains(got, `{"type":"data-run-interrupted","data":{"reason":"interrupted","runId":"`+s.RunID+`"}}`) ||
		!strings.HasSuffix(got, `{"type":"finish","finishReason":"other"}`+"\n[DONE]\n") {
		t.Errorf("the POST's stream: %s", got)
	}
	native := datas(k.stream("GET", "/stream/s", "").all())
	if !strings.HasSuffix(native, `{"type":"end","status":"paused","reason":"interrupted"}`+"\n") {
		t.Errorf("native: %s", native[max(0, len(native)-200):])
	}
	snap := k.snapshot("s")
	if snap.Status != spool.StatusPaused || len(snap.Messages) != 2 || *snap.CheckpointID == "" {
		t.Errorf("snapshot: %s", mustJSON(snap))
	}
	if again := k.command("/api/chat/s/interrupt", ""); again != s {
		t.Errorf("again: %+v, was %+v", again, s)
	}
	at := fmt.Sprint(snap.StreamSequence)
	k.status(http.StatusNoContent, "GET", "/api/chat/s", "", "X-Resume-From-Sequence", at)

	on := k.command("/api/chat/s/resume", "")
	if on.Status != spool.StatusActive || on.RunID == "" || on.RunID == s.RunID || on.Pending {
		t.Errorf("%+v", on)
	}
	if busy := k.problem(http.StatusConflict, "busy", "POST", "/api/chat/s/resume", `{"mode":"with_message","message":"hello"}`); busy.RunID != on.RunID {
		t.Errorf("%+v", busy)
	}
	page := k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", at)
	rest := k.stream("GET", "/api/chat/s", "", "Last-Event-ID", post[len(post)-1].ID)
	<-g.enter
	if again := k.command("/api/chat/s/resume", `{"mode":"continue"}`); again.RunID != on.RunID || again.Status != spool.StatusActive {
		t.Errorf("again while it runs: %+v", again)
	}
	g.pass <- struct{}{}
	if got := textOf(page.all()); got != "one two there" {
		t.Errorf("page load: %q", got)
	}
	if list := rest.all(); textOf(list) != "two there" || !strings.Contains(datas(list), `"data-run-resumed"`) {
		t.Errorf("cursor: %s", datas(list))
	}
	again := k.command("/api/chat/s/resume", `{"runId":"`+s.RunID+`"}`)
	if again.RunID != on.RunID || again.Status != spool.StatusEnded || again.Reason != "completed" {
		t.Errorf("again when it is over: %+v", again)
	}

	// But for the mark, the message is that of a run that nobody has disturbed.
	k.stream("POST", "/api/chat/calm", userBody("calm", "u1", "walk"))
	g.open(2)
	k.settled("calm")
	parts := func(session string) (list []string) {
		for _, p := range k.snapshot(session).Messages[1].Parts {
			if p.Type != "data-run-interrupted" {
				list = append(list, p.Type+" "+p.Text+" "+p.ToolCallID+string(p.State))
			}
		}
		return list
	}
	if got, want := mustJSON(parts("s")), mustJSON(parts("calm")); got != want {
		t.Errorf("the message is %s, undisturbed %s", got, want)
	}
	if got := string(k.snapshot("s").State); got != `{"steps":2}` {
		t.Errorf("state %s", got)
	}
}

func TestInterruptWithNothingRunning(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.walking()
	k.problem(http.StatusNotFound, "not_found", "POST", "/api/chat/s/interrupt", "")
	k.say("s", "u1", "hello").all()
	before := len(k.log("s"))
	for range 2 {
		if s := k.command("/api/chat/s/interrupt", ""); s.Status != spool.StatusEnded || s.Reason != "completed" || s.Pending {
			t.Errorf("%+v", s)
		}
	}
	k.say("s", "u2", "wipe").all()
	if s := k.command("/api/chat/s/interrupt", ""); s.Status != spool.StatusPaused || s.Reason != "awaiting_approval" {
		t.Errorf("a run that waits: %+v", s)
	}
	for _, r := range k.log("s")[before:] {
		if r.Type == spool.TypeInterruptRequested {
			t.Error("an interrupt of nothing was stored")
		}
	}
	p := k.problem(http.StatusConflict, "nothing_to_resume", "POST", "/api/chat/s/resume", "")
	if !strings.Contains(p.Hint, "/approvals/") {
		t.Errorf("hint %q", p.Hint)
	}
}

// A producer's run has no steps that anybody here knows.
func TestInterruptOfAProducer(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.status(http.StatusOK, "POST", "/stream/s?claim", "")
	k.problem(http.StatusConflict, "not_interruptible", "POST", "/api/chat/s/interrupt", "")
}

func TestMessageOnAnInterruptedSession(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	_, _, _ = k.interrupted("s")
	if got := textOf(k.say("s", "u2", "hello").all()); got != "hello" {
		t.Errorf("got %q", got)
	}
	f := k.settled("s")
	if len(f.Messages) != 4 || f.Reason != "completed" || f.Turns[0].LastRun().Suspended != "interrupted" {
		t.Errorf("%s", mustJSON(f.Turns))
	}
	k.problem(http.StatusConflict, "nothing_to_resume", "POST", "/api/chat/s/resume", "")
	for _, body := range []string{`{"mode":"with_message","message":{"id":"u3","role":"user","parts":[{"type":"text","text":"hello"}]}}`, `{"mode":"with_message","message":"hello"}`} {
		first := k.command("/api/chat/s/resume", body)
		k.settled("s")
		again := k.command("/api/chat/s/resume", body)
		if first.RunID == "" || again.RunID != first.RunID || again.Status != spool.StatusEnded {
			t.Errorf("%s: %+v, again %+v", body, first, again)
		}
	}
	if f := k.settled("s"); len(f.Messages) != 8 || f.LastTurn().LastRun().Mode != spool.ModeWithMessage {
		t.Errorf("%d messages, %s", len(f.Messages), mustJSON(f.LastTurn()))
	}
}

// walked has a session that walked both steps, and its checkpoints.
func (k *kit) walked(session string) (*gate, []spool.Checkpoint) {
	k.Helper()
	g := k.walking()
	e := k.say(session, "u1", "walk")
	g.open(2)
	e.all()
	return g, k.settled(session).Checkpoints
}

func body(fields ...string) string {
	m := map[string]any{}
	for i := 0; i < len(fields); i += 2 {
		m[fields[i]] = fields[i+1]
	}
	return mustJSON(m)
}

func TestFromCheckpoint(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	g, cps := k.walked("s")
	k.problem(http.StatusNotFound, "no_such_checkpoint", "POST", "/api/chat/s/resume", `{"mode":"from_checkpoint","checkpointId":"nowhere"}`)
	old := k.settled("s")
	before := len(k.log("s"))
	req := body("mode", "from_checkpoint", "checkpointId", cps[0].ID)
	s := k.command("/api/chat/s/resume", req)
	if s.Status != spool.StatusActive || s.RunID == "" {
		t.Errorf("%+v", s)
	}
	<-g.enter
	k.problem(http.StatusConflict, "busy", "POST", "/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", cps[1].ID))
	if again := k.command("/api/chat/s/resume", req); again.RunID != s.RunID {
		t.Errorf("again: %+v", again)
	}
	page := k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", fmt.Sprint(k.snapshot("s").StreamSequence))
	// A cursor of what is no more gets none of it.
	k.problem(http.StatusConflict, "cursor_retracted", "GET", "/api/chat/s", "", "Last-Event-ID", fmt.Sprint(cps[1].Seq))
	k.status(http.StatusNoContent, "GET", "/api/chat/s", "", "X-Resume-From-Sequence", fmt.Sprint(cps[1].Seq))
	g.pass <- struct{}{}
	if list := page.all(); textOf(list) != "two there" || !strings.Contains(datas(list), `"start"`) {
		t.Errorf("page load: %s", datas(list))
	}
	f := k.settled("s")
	if len(f.Messages) != 3 || f.Messages[1].ID != old.Messages[1].ID || f.Messages[1].Text() != "one " || f.Messages[2].Text() != "two there" {
		t.Errorf("messages %s", mustJSON(f.Messages))
	}
	if string(f.State) != `{"steps":2}` || len(f.Checkpoints) != 5 || f.LastTurn().From != cps[0].ID {
		t.Errorf("state %s, %d checkpoints, %s", f.State, len(f.Checkpoints), mustJSON(f.LastTurn()))
	}
	var types []string
	for _, r := range k.log("s")[before:] {
		types = append(types, string(r.Type))
		if c, err := spool.DecodeChunk(r.Data); err == nil {
			if c, ok := c.(*spool.StreamResync); ok && (c.Reason != "rollback" || c.CheckpointID != cps[0].ID || c.FromSequence != cps[0].Seq || c.MessageCount != 2) {
				t.Errorf("%s", r.Data)
			}
			if c, ok := c.(*spool.RunResumed); ok && (c.Mode != "from_checkpoint" || *c.FromCheckpointID != cps[0].ID || c.FromStepCount != 1) {
				t.Errorf("%s", r.Data)
			}
		}
	}
	if got := strings.Join(types, " "); !strings.HasPrefix(got, "history_replaced resume_requested run_started run_resumed stream_resync step_started") {
		t.Error(got)
	}
	// What the rollback has left is still there to go to.
	s = k.command("/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", cps[2].ID))
	if s.Status != spool.StatusEnded || s.RunID != "" || s.Pending {
		t.Errorf("%+v", s)
	}
	back := k.settled("s")
	if mustJSON(back.Messages) != mustJSON(old.Messages) || back.CheckpointID != cps[2].ID || string(back.State) != `{"steps":2}` {
		t.Errorf("messages %s\nwere %s", mustJSON(back.Messages), mustJSON(old.Messages))
	}
	if got := textOf(k.say("s", "u2", "hello").all()); got != "hello" {
		t.Errorf("then %q", got)
	}
}

// Where the model had said all there is nothing to go on with but a message.
func TestRewind(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	_, cps := k.walked("s")
	at := k.snapshot("s")
	k.say("s", "u2", "hello").all()
	req := body("mode", "from_checkpoint", "checkpointId", cps[2].ID)
	for range 2 {
		if s := k.command("/api/chat/s/resume", req); s.Status != spool.StatusEnded || s.RunID != "" || s.Pending {
			t.Errorf("%+v", s)
		}
	}
	if n := strings.Count(mustJSON(kindsOf(k.log("s"))), "resume_requested"); n != 1 {
		t.Errorf("%d rollbacks", n)
	}
	snap := k.snapshot("s")
	if mustJSON(snap.Messages) != mustJSON(at.Messages) || snap.Status != spool.StatusEnded || *snap.CheckpointID != cps[2].ID {
		t.Errorf("%s\nwas %s", mustJSON(snap), mustJSON(at))
	}
	// Nobody is shown the turn that is gone.
	k.status(http.StatusNoContent, "GET", "/api/chat/s", "")
	k.status(http.StatusNoContent, "GET", "/api/chat/s", "", "X-Resume-From-Sequence", fmt.Sprint(at.StreamSequence+1))
	native := datas(k.stream("GET", "/stream/s", "").all())
	if !strings.HasSuffix(native, `{"type":"end"}`+"\n") && !strings.HasSuffix(native, `"status":"ended"}`+"\n") {
		t.Errorf("native: %s", native[max(0, len(native)-200):])
	}
	first := k.command("/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", cps[2].ID, "message", "hello"))
	f := k.settled("s")
	if len(f.Messages) != 4 || f.Messages[3].Text() != "hello" || f.LastTurn().LastRun().ID != first.RunID || f.LastTurn().LastRun().Mode != spool.ModeFromCheckpoint {
		t.Errorf("%s %s", mustJSON(f.LastTurn()), mustJSON(f.Messages))
	}
	if again := k.command("/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", cps[2].ID, "message", "hello")); again.RunID != first.RunID {
		t.Errorf("again: %+v, first %+v", again, first)
	}
}

func kindsOf(recs []spool.Record) (types []spool.Type) {
	for _, r := range recs {
		types = append(types, r.Type)
	}
	return types
}

// A checkpoint of a history that an edit has left is a place to go to.
func TestCheckpointBeforeAnEdit(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	g, cps := k.walked("s")
	k.stream("POST", "/api/chat/s", strings.Replace(userBody("s", "u1", "hello"), `{"id"`, `{"messageId":"u1","id"`, 1)).all()
	if f := k.settled("s"); f.Messages[1].Text() != "hello" {
		t.Errorf("%s", mustJSON(f.Messages))
	}
	k.command("/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", cps[1].ID))
	f := k.settled("s")
	if len(f.Messages) != 3 || f.Messages[0].Text() != "walk" || f.Messages[1].Text() != "one two " || f.Messages[2].Text() != "there" {
		t.Errorf("%s", mustJSON(f.Messages))
	}
	if len(g.enter) != 0 {
		t.Error("it walked again")
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	g := k.walking()
	k.problem(http.StatusNotFound, "not_found", "POST", "/api/chat/s/resume", `{"mode":"retry"}`)
	k.say("s", "u0", "hello").all()
	k.problem(http.StatusConflict, "nothing_to_resume", "POST", "/api/chat/s/resume", `{"mode":"retry"}`)
	g.fail.Store(true)
	e := k.say("s", "u1", "walk")
	g.open(2)
	e.all()
	if f := k.settled("s"); f.Status != spool.StatusFailed || f.Messages[3].Text() != "one two th" {
		t.Errorf("%s %s", f.Status, mustJSON(f.Messages))
	}
	failed := k.command("/api/chat/s/resume", `{"mode":"retry"}`)
	if f := k.settled("s"); f.Status != spool.StatusFailed || len(f.Messages) != 5 || f.Messages[3].Text() != "one two " || f.Messages[4].Text() != "th" {
		t.Errorf("failed again: %s %s", f.Status, mustJSON(f.Messages))
	}
	g.fail.Store(false)
	s := k.command("/api/chat/s/resume", `{"mode":"retry"}`)
	f := k.settled("s")
	if f.Reason != "completed" || len(f.Messages) != 5 || f.Messages[3].Text() != "one two " || f.Messages[4].Text() != "there" || s.RunID == failed.RunID {
		t.Errorf("%s %s", f.Reason, mustJSON(f.Messages))
	}
	again := k.command("/api/chat/s/resume", `{"mode":"retry"}`)
	if again.RunID != s.RunID || again.Status != spool.StatusEnded {
		t.Errorf("%+v, again %+v", s, again)
	}
	if string(f.State) != `{"steps":2}` || len(g.enter) != 0 {
		t.Errorf("state %s", f.State)
	}
}

// A turn that was stopped before its first checkpoint is answered anew.
func TestRetryWithoutACheckpoint(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	g := k.walking()
	e := k.say("s", "u1", "walk")
	<-g.enter
	k.command("/api/chat/s/stop", "")
	e.all()
	s := k.command("/api/chat/s/resume", `{"mode":"retry"}`)
	g.open(2)
	f := k.settled("s")
	if f.Reason != "completed" || len(f.Messages) != 2 || f.Messages[1].Text() != "one two there" || f.LastTurn().LastRun().ID != s.RunID {
		t.Errorf("%s %s", f.Reason, mustJSON(f.Messages))
	}
	if again := k.command("/api/chat/s/resume", `{"mode":"retry"}`); again.RunID != s.RunID {
		t.Errorf("again: %+v", again)
	}
}

// Going back gives up what the session waits for.
func TestFromCheckpointOfAPause(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	_, cps := k.walked("s")
	k.say("s", "u2", "wipe").all()
	k.problem(http.StatusConflict, "nothing_to_resume", "POST", "/api/chat/s/resume", `{"mode":"retry"}`)
	if s := k.command("/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", cps[2].ID)); s.Status != spool.StatusEnded {
		t.Errorf("%+v", s)
	}
	f := k.settled("s")
	if f.Status != spool.StatusEnded || len(f.Messages) != 2 || len(f.Pending()) != 0 || f.Turns[1].LastRun().Outcome != spool.OutcomeStopped {
		t.Errorf("%s %s", f.Status, mustJSON(f.Turns))
	}
}

func TestSteerOverHTTP(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	g := k.walking()
	first := k.say("s", "u1", "walk")
	<-g.enter
	second := k.stream("POST", "/api/chat/s", strings.Replace(userBody("s", "u2", "hello"), "{", `{"whenBusy":"steer",`, 1))
	k.awaitCommand("s", "u2")
	g.pass <- struct{}{}
	list := first.all()
	if textOf(list) != "one " || !strings.HasSuffix(datas(list), `{"type":"finish","finishReason":"other"}`+"\n[DONE]\n") || strings.Contains(datas(list), "run-interrupted") {
		t.Errorf("steered: %s", datas(list))
	}
	if got := second.all(); textOf(got) != "hello" {
		t.Errorf("the turn after: %s", datas(got))
	}
	f := k.settled("s")
	if len(f.Turns) != 2 || f.Turns[0].LastRun().Outcome != spool.OutcomeSteered || f.Turns[0].LastRun().Steps != 1 {
		t.Errorf("%s", mustJSON(f.Turns))
	}
	if got := textOf(k.stream("GET", "/api/chat/s", "").all()); got != "hello" {
		t.Errorf("replay: %q", got)
	}
}

// awaitCommand waits until a user message is stored.
func (k *kit) awaitCommand(session, id string) {
	k.Helper()
	g, err := k.logs.Log(session)
	if err != nil {
		k.Fatal(err)
	}
	for r, err := range g.Records(k.Context(), spool.ReadOptions{Follow: true}) {
		if err != nil {
			k.Fatal(err)
		}
		if c, err := spool.DecodeChunk(r.Data); err == nil && spool.CommandID(c) == id {
			return
		}
	}
}

func TestBadResume(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "u1", "hi")
	before := len(k.log("s"))
	for body, code := range map[string]string{
		`{`:                               "malformed_json",
		`[]`:                              "malformed_json",
		`{"mode":5}`:                      "malformed_json",
		`{"mode":"backwards"}`:            "malformed_json",
		`{"mode":"from_checkpoint"}`:      "malformed_json",
		`{"checkpointId":"x"}`:            "malformed_json",
		`{"mode":"retry","message":"hi"}`: "malformed_json",
		`{"message":"hi"}`:                "malformed_json",
		`{"mode":"retry","runId":"r"}`:    "malformed_json",
		`{"mode":"with_message"}`:         "no_message",
		`{"mode":"with_message","message":{"parts":[]}}`:                                                    "no_message",
		`{"mode":"with_message","message":{"role":"assistant","parts":[{"type":"text","text":"I am it"}]}}`: "malformed_json",
		`{"commandId":"../x"}`: "invalid_id",
	} {
		k.problem(http.StatusBadRequest, code, "POST", "/api/chat/s/resume", body)
	}
	k.problem(http.StatusConflict, "nothing_to_resume", "POST", "/api/chat/s/resume", "")
	k.problem(http.StatusBadRequest, "malformed_json", "POST", "/api/chat/s/interrupt", "{")
	if n := len(k.log("s")); n != before {
		t.Errorf("%d records became %d", before, n)
	}
}

// A history that is too large for one append is brought back whole.
func TestRewindOfALongHistory(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	word := strings.Repeat("é<long> ", 6000)
	deltas := make([]string, 24)
	for i := range deltas {
		deltas[i] = fmt.Sprint(i, word)
	}
	k.turn("s", "u1", deltas...)
	before := k.snapshot("s")
	k.turn("s", "u2", "to be forgotten")
	s := k.command("/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", "cp-run-u1"))
	if s.Status != spool.StatusEnded || s.RunID != "" {
		t.Errorf("%+v", s)
	}
	if after := k.snapshot("s"); mustJSON(after.Messages) != mustJSON(before.Messages) {
		t.Errorf("%d messages", len(after.Messages))
	}
	n := 0
	for _, r := range k.log("s") {
		if r.Type == spool.TypeHistoryReplaced {
			n++
		}
	}
	if n < 8 {
		t.Errorf("%d records", n)
	}
}

// Whoever resumes at the same moment gets the same run.
func TestResumedByManyTabs(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	g, _, was := k.interrupted("s")
	together := func(body string) (runs map[string]int) {
		var tabs []<-chan chat.Settled
		for range 8 {
			tabs = append(tabs, k.later("/api/chat/s/resume", body))
		}
		runs = map[string]int{}
		for _, tab := range tabs {
			runs[(<-tab).RunID]++
		}
		return runs
	}
	if runs := together(""); len(runs) != 1 || runs[""] > 0 || runs[was.RunID] > 0 {
		t.Errorf("continued as %v", runs)
	}
	g.open(1)
	f := k.settled("s")
	if len(f.Turns) != 1 || len(f.Turns[0].Runs) != 2 || f.Reason != "completed" {
		t.Errorf("%s", mustJSON(f.Turns))
	}
	if runs := together(body("mode", "from_checkpoint", "checkpointId", f.Checkpoints[0].ID)); len(runs) != 1 || runs[""] > 0 {
		t.Errorf("back as %v", runs)
	}
	g.open(1)
	if f = k.settled("s"); len(f.Turns) != 2 || f.Reason != "completed" || len(f.Messages) != 3 {
		t.Errorf("%s %s", f.Reason, mustJSON(f.Turns))
	}
}

package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/commandid"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
)

// with adds members to a body.
func with(body, members string) string { return strings.Replace(body, `{"id"`, "{"+members+`,"id"`, 1) }

// Whatever id a client chooses for its message or its command, it is none that the server
// computes for a command of its own. The message keeps its id.
func TestClientsCannotTakeServerIDs(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	ids := []string{"call-" + strings.Repeat("0123456789abcdef", 4), "run-u1:c1", "run-u1.1-r1:c1", "run-u1.1-r1.2-r3:c:1"}
	for _, kind := range []string{"stop", "interrupt", "continue", "retry", "resume", "approval", "result", "replace", "branch", "m", "edit", "regen"} {
		id := commandid.New(kind, "run-u1")
		ids = append(ids, id, id+"-1")
	}
	ids = append(ids, "rewind-"+commandid.New("edit", "u1")+"-1")
	for i, id := range ids {
		body := with(userBody("s", id, "mine"), `"whenBusy":"queue"`)
		if i%2 > 0 {
			body = with(userBody("s", fmt.Sprint("x", i), "mine"), `"whenBusy":"queue","commandId":"`+id+`"`)
		}
		k.stream("POST", "/api/chat/s", body)
		k.stream("POST", "/api/chat/s", body) // a repeat
	}
	if err := k.fold("s", func(f *fold.Fold) {
		if len(f.Waiting) != len(ids) {
			t.Errorf("%d of %d messages wait", len(f.Waiting), len(ids))
		}
		for i, id := range ids {
			if f.Verdict(id).State != fold.VerdictUnknown {
				t.Errorf("a message has the command id %s", id)
			}
			if want := id; i%2 == 0 && !slices.ContainsFunc(f.Waiting, func(w *fold.Command) bool { return w.Message.ID == want }) {
				t.Errorf("no message has the id %s", want)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	// Ids that only look similar are taken as they are.
	k.stream("POST", "/api/chat/s", with(userBody("s", "stop-it", "mine"), `"whenBusy":"queue"`))
	k.stream("POST", "/api/chat/s", with(userBody("s", "run-u2:c1", "mine"), `"whenBusy":"queue"`))
	if err := k.fold("s", func(f *fold.Fold) {
		if f.Verdict("stop-it").State != fold.VerdictWaiting || f.Verdict("run-u2:c1").State != fold.VerdictWaiting {
			t.Error("ordinary ids are replaced")
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// A run can be stopped, whatever was sent before.
func TestStopWhateverWasSent(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Chat: chat.Options{ForceStop: time.Millisecond}})
	k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.text("so far")
	k.stream("POST", "/api/chat/s", with(userBody("s", commandid.New("stop", "run-u1"), "mine"), `"whenBusy":"queue"`))
	var stopped chat.Settled
	if err := json.Unmarshal(k.status(http.StatusOK, "POST", "/api/chat/s/stop", "{}"), &stopped); err != nil || stopped.Pending || stopped.RunID != "run-u1" {
		t.Errorf("the stop: %+v, %v", stopped, err)
	}
	if err := k.fold("s", func(f *fold.Fold) {
		if run := f.Run("run-u1"); run.End == 0 {
			t.Errorf("the run is open: %+v", run)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// The same id with something else in it is refused, not answered with what was said before.
func TestOneIDOneCommand(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	large := strings.Repeat("a long message ", 10_000)
	k.turn("s", "u1", "one")
	refused := func(path, body string) {
		t.Helper()
		if p := k.problem(http.StatusConflict, "id_conflict", "POST", path, body); p.Hint == "" {
			t.Error("there is no hint")
		}
	}
	same := func(body, want string) {
		t.Helper()
		if got := textOf(k.stream("POST", "/api/chat/s", body).all()); got != want {
			t.Errorf("a repeat got %q, want %q", got, want)
		}
	}
	same(userBody("s", "u1", "question u1"), "one")
	same(with(userBody("s", "u1", "question u1"), `"whenBusy":"queue","metadata":{"n":1}`), "one")
	refused("/api/chat/s", userBody("s", "u1", "something else"))
	refused("/api/chat/s", with(userBody("s", "u9", "something else"), `"commandId":"u1"`))

	// Large texts are stored beside the log, and compared all the same.
	e := k.say("s", "u2", large)
	o := k.own("s")
	o.start("u2")
	o.text("two")
	o.finish()
	e.all()
	same(userBody("s", "u2", large), "two")
	refused("/api/chat/s", userBody("s", "u2", large+"!"))
	data := func(value string) string {
		return `{"id":"s","messages":[{"id":"u3","role":"user","parts":[{"type":"text","text":"see"},{"type":"data-x","data":` + value + `}]}]}`
	}
	e = k.stream("POST", "/api/chat/s", data(`{"a": 1, "<b>": [2.0]}`))
	o = k.own("s")
	o.start("u3")
	o.text("three")
	o.finish()
	e.all()
	same(data(`{"a":1,"<b>":[2.0]}`), "three")

	// An edit repeats the message's id, and is a command of its own.
	edit := with(userBody("s", "u3", "edited"), `"messageId":"u3"`)
	e = k.stream("POST", "/api/chat/s", edit)
	o = k.own("s")
	if err := k.fold("s", func(f *fold.Fold) { o.run = f.Waiting[0].ID }); err != nil {
		t.Fatal(err)
	}
	o.start(o.run)
	o.text("four")
	o.finish()
	if got := textOf(e.all()); got != "four" {
		t.Errorf("the edit: %q", got)
	}
	same(edit, "four")
	refused("/api/chat/s", userBody("s", "u3", "edited again"))

	// Resumes are commands, too.
	resume := `{"mode":"with_message","commandId":"again","message":{"role":"user","parts":[{"type":"text","text":"go on"}]}}`
	refused("/api/chat/s/resume", strings.Replace(resume, "again", "u1", 1))
	done := make(chan struct{})
	go func() {
		defer close(done)
		o := k.own("s")
		if err := k.fold("s", func(f *fold.Fold) { o.run = f.Waiting[0].ID }); err != nil {
			t.Error(err)
		}
		o.start(o.run)
		o.text("five")
		o.finish()
	}()
	k.status(http.StatusOK, "POST", "/api/chat/s/resume", resume)
	<-done
	k.status(http.StatusOK, "POST", "/api/chat/s/resume", resume)
	refused("/api/chat/s/resume", strings.Replace(resume, "go on", "go away", 1))
	refused("/api/chat/s/resume", `{"mode":"retry","commandId":"again"}`)
	refused("/api/chat/s", with(userBody("s", "u8", "go on"), `"commandId":"again"`))
}

// A message cannot take the id of another one, whatever the id of its command: an edit
// names its message by that id. One that a rewind has dropped can be said again.
func TestMessageIDsAreUnique(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "u1", "one")
	refused := func(path, body string) {
		t.Helper()
		k.problem(http.StatusConflict, "id_conflict", "POST", path, body)
	}
	again := `"commandId":"other","whenBusy":"queue"`
	refused("/api/chat/s", with(userBody("s", "u1", "question u1"), again))
	refused("/api/chat/s", with(userBody("s", "u1", "something else"), again))
	refused("/api/chat/s/resume", `{"mode":"with_message","message":{"id":"u1","role":"user","parts":[{"type":"text","text":"go on"}]}}`)
	k.say("s", "u2", "hi")
	o := k.own("s")
	o.start("u2")
	k.stream("POST", "/api/chat/s", with(userBody("s", "u3", "later"), `"whenBusy":"queue"`))
	refused("/api/chat/s", with(userBody("s", "u3", "later still"), again))
	if err := k.fold("s", func(f *fold.Fold) {
		if len(f.Waiting) != 1 || len(f.Messages) != 4 {
			t.Errorf("%d messages wait behind %d", len(f.Waiting), len(f.Messages))
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// Of two messages with one id that come at once, one is taken, and the other refused.
func TestOneIDAtOnce(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	for round := range 20 {
		session := fmt.Sprint("s", round)
		codes := k.atOnce("/api/chat/"+session, userBody(session, "u1", "text 0"), userBody(session, "u1", "text 1"))
		if !slices.Equal(codes, []int{http.StatusOK, http.StatusConflict}) {
			t.Errorf("two messages with one id: %v", codes)
		}
	}
}

// A user message cannot take an assistant message's id, on any route.
func TestAssistantIDs(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.twoSteps("s")
	var id string
	if err := k.fold("s", func(f *fold.Fold) { id = f.LastTurn().MessageID }); err != nil {
		t.Fatal(err)
	}
	before := len(k.log("s"))
	message := `"message":{"id":"` + id + `","role":"user","parts":[{"type":"text","text":"I am you"}]}`
	for path, body := range map[string]string{
		"/api/chat/s":         userBody("s", id, "I am you"),
		"/api/chat/s?":        with(userBody("s", id, "I am you"), `"commandId":"c"`),
		"/api/chat/s/resume":  `{"mode":"with_message",` + message + `}`,
		"/api/chat/s/resume?": `{"mode":"branch","checkpointId":"cp-1","sessionId":"b",` + message + `}`,
	} {
		k.problem(http.StatusConflict, "id_conflict", "POST", path, body)
	}
	if after := k.log("s"); len(after) != before {
		t.Errorf("%d records were written", len(after)-before)
	}
	if m := k.snapshot("s").Messages; m[1].ID != id || m[1].Role != string(chunk.RoleAssistant) {
		t.Errorf("messages: %+v", m)
	}
}

package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
)

func TestFromCheckpoint(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	g, cps := k.walked("s")
	k.problem(http.StatusNotFound, "no_such_checkpoint", "POST", "/api/chat/s/resume", `{"mode":"from_checkpoint","checkpointId":"nowhere"}`)
	old := k.settled("s")
	before := len(k.log("s"))
	req := body("mode", "from_checkpoint", "checkpointId", cps[0].ID)
	s := k.command("/api/chat/s/resume", req)
	if s.Status != chunk.StatusActive || s.RunID == "" {
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
	// A page that was built before the rewind is shown the turn that has followed.
	older := k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", fmt.Sprint(cps[1].Seq))
	g.pass <- struct{}{}
	for _, e := range []*events{page, older} {
		if list := e.all(); textOf(list) != "two there" || !strings.Contains(datas(list), `"start"`) {
			t.Errorf("page load: %s", datas(list))
		}
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
		if c, err := chunk.Decode(r.Data); err == nil {
			if c, ok := c.(*chunk.StreamResync); ok && (c.Reason != "rollback" || c.CheckpointID != cps[0].ID || c.FromSequence != cps[0].Seq || c.MessageCount != 2) {
				t.Errorf("%s", r.Data)
			}
			if c, ok := c.(*chunk.RunResumed); ok && (c.Mode != "from_checkpoint" || *c.FromCheckpointID != cps[0].ID || c.FromStepCount != 1) {
				t.Errorf("%s", r.Data)
			}
		}
	}
	if got := strings.Join(types, " "); !strings.HasPrefix(got, "history_replaced resume_requested run_started run_resumed stream_resync step_started") {
		t.Error(got)
	}
	// What the rollback has left is still there to go to.
	s = k.command("/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", cps[2].ID))
	if s.Status != chunk.StatusEnded || s.RunID != "" || s.Pending {
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
		if s := k.command("/api/chat/s/resume", req); s.Status != chunk.StatusEnded || s.RunID != "" || s.Pending {
			t.Errorf("%+v", s)
		}
	}
	if n := strings.Count(mustJSON(kindsOf(k.log("s"))), "resume_requested"); n != 1 {
		t.Errorf("%d rollbacks", n)
	}
	snap := k.snapshot("s")
	if mustJSON(snap.Messages) != mustJSON(at.Messages) || snap.Status != chunk.StatusEnded || *snap.CheckpointID != cps[2].ID {
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
	if len(f.Messages) != 4 || f.Messages[3].Text() != "hello" || f.LastTurn().LastRun().ID != first.RunID || f.LastTurn().LastRun().Mode != chunk.ModeFromCheckpoint {
		t.Errorf("%s %s", mustJSON(f.LastTurn()), mustJSON(f.Messages))
	}
	if again := k.command("/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", cps[2].ID, "message", "hello")); again.RunID != first.RunID {
		t.Errorf("again: %+v, first %+v", again, first)
	}
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
	if f := k.settled("s"); f.Status != chunk.StatusFailed || f.Messages[3].Text() != "one two th" {
		t.Errorf("%s %s", f.Status, mustJSON(f.Messages))
	}
	failed := k.command("/api/chat/s/resume", `{"mode":"retry"}`)
	if f := k.settled("s"); f.Status != chunk.StatusFailed || len(f.Messages) != 5 || f.Messages[3].Text() != "one two " || f.Messages[4].Text() != "th" {
		t.Errorf("failed again: %s %s", f.Status, mustJSON(f.Messages))
	}
	g.fail.Store(false)
	s := k.command("/api/chat/s/resume", `{"mode":"retry"}`)
	f := k.settled("s")
	if f.Reason != "completed" || len(f.Messages) != 5 || f.Messages[3].Text() != "one two " || f.Messages[4].Text() != "there" || s.RunID == failed.RunID {
		t.Errorf("%s %s", f.Reason, mustJSON(f.Messages))
	}
	again := k.command("/api/chat/s/resume", `{"mode":"retry"}`)
	if again.RunID != s.RunID || again.Status != chunk.StatusEnded {
		t.Errorf("%+v, again %+v", s, again)
	}
	if string(f.State) != `{"steps":2}` || len(g.enter) != 0 {
		t.Errorf("state %s", f.State)
	}
}

// A turn that was stopped before its first checkpoint is answered again.
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
	if s := k.command("/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", cps[2].ID)); s.Status != chunk.StatusEnded {
		t.Errorf("%+v", s)
	}
	f := k.settled("s")
	if f.Status != chunk.StatusEnded || len(f.Messages) != 2 || len(f.Pending()) != 0 || f.Turns[1].LastRun().Outcome != chunk.OutcomeStopped {
		t.Errorf("%s %s", f.Status, mustJSON(f.Turns))
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
	if s.Status != chunk.StatusEnded || s.RunID != "" {
		t.Errorf("%+v", s)
	}
	if after := k.snapshot("s"); mustJSON(after.Messages) != mustJSON(before.Messages) {
		t.Errorf("%d messages", len(after.Messages))
	}
	n := 0
	for _, r := range k.log("s") {
		if r.Type == chunk.TypeHistoryReplaced {
			n++
		}
	}
	if n < 8 {
		t.Errorf("%d records", n)
	}
}

// Two callers that resume at the same moment get the same run.
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

func kindsOf(recs []chunk.Record) (types []chunk.Type) {
	for _, r := range recs {
		types = append(types, r.Type)
	}
	return types
}

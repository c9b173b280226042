package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/runner"
)

// A session that has reached a limit begins no further turn, on whichever route one would
// begin, and nothing is stored. Its turns can be read, repeats have their answers, and a
// new session begins.
func TestQuotaOnEveryRoute(t *testing.T) {
	for name, limits := range map[string]spool.Limits{"turns": {MaxTurns: 2}, "bytes": {MaxBytes: 600}} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, nil)
			k.turn("s", "u1", strings.Repeat("a", 200))
			k.turn("s", "u2", "b")
			before := mustJSON(k.log("s"))
			logs := spool.NewLogs(k.store, &spool.Options{Policy: spool.Policy{Limits: limits}})
			k.Cleanup(func() { _ = logs.Close() })
			k = k.over(logs, nil)
			said := userBody("s", "u3", "more")
			for _, r := range []struct{ path, body string }{
				{"/api/chat/s", said},
				{"/api/chat", said},
				{"/api/chat/s", `{"id":"s","trigger":"regenerate-message","messages":[]}`},
				{"/api/chat/s", `{"id":"s","messageId":"u1","trigger":"submit-message","message":{"id":"u1","role":"user","parts":[{"type":"text","text":"edited"}]}}`},
				{"/merlin/v1/s", said},
				{"/merlin/v2/s", said},
				{"/api/chat/s/resume", body("mode", "with_message", "message", "more")},
				{"/api/chat/s/resume", body("mode", "from_checkpoint", "checkpointId", "cp-run-u1", "message", "more")},
				{"/stream/s?claim", ""},
			} {
				p := k.problem(http.StatusConflict, "quota_exceeded", "POST", r.path, r.body)
				if p.Hint == "" {
					t.Errorf("%s: no hint: %+v", r.path, p)
				}
			}
			if _, err := runner.Execute(t.Context(), logs, runner.Input{Session: "s", Message: runner.Text("more").Message}); !errors.Is(err, spool.ErrQuota) {
				t.Errorf("Execute: %v", err)
			}
			if after := mustJSON(k.log("s")); after != before {
				t.Errorf("the log was\n%s\nand is\n%s", before, after)
			}
			if s := k.snapshot("s"); len(s.Messages) != 4 {
				t.Errorf("%d messages", len(s.Messages))
			}
			repeat := k.stream("POST", "/api/chat/s", userBody("s", "u2", "question u2"))
			if events := repeat.all(); len(events) == 0 || events[len(events)-1].Data != "[DONE]" {
				t.Errorf("the repeat of the last message: %v", events)
			}
			k.turn("another", "u1", "c")
		})
	}
}

// Once there are as many sessions as may be, no route begins a further one, and the
// sessions that there are go on.
func TestQuotaOfSessionsOnEveryRoute(t *testing.T) {
	k := newKit(t, nil)
	k.turn("s", "u1", "a")
	logs := spool.NewLogs(k.store, &spool.Options{Policy: spool.Policy{Limits: spool.Limits{MaxPrincipalSessions: 1}}})
	k.Cleanup(func() { _ = logs.Close() })
	k = k.over(logs, nil)
	said := userBody("new", "u2", "more")
	for _, r := range []struct{ path, body string }{
		{"/api/chat/new", said},
		{"/api/chat", said},
		{"/merlin/v1/new", said},
		{"/merlin/v2/new", said},
		{"/api/chat/s/resume", body("mode", "branch", "checkpointId", "cp-run-u1", "sessionId", "new")},
		{"/stream/new?claim", ""},
	} {
		p := k.problem(http.StatusConflict, "quota_exceeded", "POST", r.path, r.body)
		if !strings.Contains(p.Hint, "--max-sessions") {
			t.Errorf("%s: %+v", r.path, p)
		}
	}
	page, err := k.store.Sessions(t.Context(), spool.SessionQuery{})
	hidden, err2 := k.store.Sessions(t.Context(), spool.SessionQuery{Hidden: true})
	if err != nil || err2 != nil || len(page.Sessions) != 1 || len(hidden.Sessions) != 0 {
		t.Errorf("%+v, %+v, %v, %v", page.Sessions, hidden.Sessions, err, err2)
	}
	k.turn("s", "u2", "b")
}

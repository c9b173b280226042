package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// With principals and nothing else, each session is its owner's: on every route, others
// get what they would get for no session, and callers without a name must sign in.
func TestOwnerOnly(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	before := newKitOn(t, store, nil)
	before.turn("nobodys", "u1", "answer") // from before there were principals
	k := before.over(before.logs, &server.Options{Principal: named})
	play := func(session, who string) {
		t.Helper()
		e := k.stream("POST", "/api/chat/"+session, userBody(session, "u1", "hi"), "Who", who)
		o := k.own(session)
		o.start("u1")
		o.text("hello")
		o.finish()
		e.all()
	}
	play("anns", "ann")
	play("bobs", "bob")
	var run struct{ Epoch uint64 }
	if err := json.Unmarshal(k.status(http.StatusOK, "POST", "/stream/claimed?claim", "", "Who", "ann"), &run); err != nil {
		t.Fatal(err)
	}
	was := map[string]spool.Head{}
	sessions := []string{"nobodys", "anns", "claimed"}
	for _, session := range sessions {
		h, err := store.Head(t.Context(), session)
		if err != nil {
			t.Fatal(err)
		}
		was[session] = h
	}
	open := []string{"/api/info", "/healthz", "/readyz", "/openapi.json"}
	vars := strings.NewReplacer("{id}", "x", "{call}", "x", "{hash}", "sha256:x", "{chat}", "x")
	k.srv.Routes(func(pattern, method string, _ server.Action) {
		if slices.Contains(open, pattern) {
			return
		}
		for _, session := range append(sessions, "new") {
			path := strings.ReplaceAll(vars.Replace(pattern), "{session}", session)
			body := userBody(session, "u2", "let me in")
			epoch := []string{"Producer-Epoch", fmt.Sprint(run.Epoch), "Producer-Seq", "0"}
			res := k.do(method, path, body, epoch...)
			if res.StatusCode != http.StatusUnauthorized || res.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s of a caller without a name: %s", method, path, res.Status)
			}
			if session == "new" || pattern == "/sessions" {
				continue
			}
			status, code := http.StatusNotFound, "not_found"
			if pattern == "/metrics" {
				status, code = http.StatusForbidden, "not_allowed"
			}
			k.problem(status, code, method, path, body, append(epoch, "Who", "bob")...)
			if session == "nobodys" {
				k.problem(status, code, method, path, body, append(epoch, "Who", "ann")...)
			}
		}
	})
	for session, h := range was {
		if now, err := store.Head(t.Context(), session); err != nil || now != h {
			t.Errorf("%s was %+v and is %+v, %v", session, h, now, err)
		}
	}
	if _, err := store.Head(t.Context(), "new"); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("a caller without a name made a session: %v", err)
	}
	for who, want := range map[string]string{"ann": "anns claimed", "bob": "bobs", "eve": ""} {
		var page struct{ Sessions []struct{ Session string } }
		if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/sessions", "", "Who", who), &page); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range page.Sessions {
			got = append(got, s.Session)
		}
		slices.Sort(got)
		if list := strings.Join(got, " "); list != want {
			t.Errorf("%s is shown %q, want %q", who, list, want)
		}
	}
	for _, route := range []string{"GET /api/chat/%s/snapshot", "GET /api/messages/%s", "GET /api/chat/%s/checkpoints", "GET /stream/%s", "GET /stream/%s/info", "POST /api/chat/%s/stop", "DELETE /api/chat/%s"} {
		method, path, _ := strings.Cut(route, " ")
		answer := func(session string) string {
			data := k.status(http.StatusNotFound, method, fmt.Sprintf(path, session), "", "Who", "bob")
			return strings.ReplaceAll(string(data), session, "…")
		}
		if others, none := answer("anns"), answer("none"); others != none {
			t.Errorf("%s tells the sessions of others, %s, from none, %s", route, others, none)
		}
	}
	// Ann herself may do everything with what is hers, and make it the next one's by deleting it.
	for _, path := range []string{"/api/chat/anns/stream", "/api/chat/anns/snapshot", "/api/messages/anns", "/merlin/v2/anns", "/stream/anns", "/stream/anns/info"} {
		k.status(http.StatusOK, "GET", path, "", "Who", "ann")
	}
	k.status(http.StatusNoContent, "DELETE", "/api/chat/anns", "", "Who", "ann")
	play("anns", "bob")
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/anns/snapshot", "", "Who", "ann")
}

// Authorize decides alone. It is told whose the session is, so it can let in others than
// the owner, and keep the owner out.
func TestAuthorizeReplacesOwnerOnly(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	k := newKitOn(t, store, &server.Options{Principal: named, Authorize: func(_ context.Context, a server.Access) error {
		team, _, _ := strings.Cut(a.Owner, "@")
		own, _, _ := strings.Cut(a.Principal, "@")
		switch {
		case a.Principal == "monitor" && a.Action == server.ActionOps, a.Action == server.ActionRead && own != "" && team == own:
			return nil
		case a.Action == server.ActionDelete:
			return errors.New("nobody deletes")
		}
		return server.OwnerOnly(a)
	}})
	e := k.stream("POST", "/api/chat/s", userBody("s", "u1", "hi"), "Who", "red@ann")
	o := k.own("s")
	o.start("u1")
	o.finish()
	e.all()
	for _, c := range []struct {
		who, method, path string
		status            int
	}{
		{"red@ann", "GET", "/api/chat/s/snapshot", 200},
		{"red@bob", "GET", "/api/chat/s/snapshot", 200},
		{"blue@eve", "GET", "/api/chat/s/snapshot", 404},
		{"", "GET", "/api/chat/s/snapshot", 401},
		{"", "GET", "/sessions", 401},
		{"red@bob", "POST", "/api/chat/s/stop", 404},
		{"red@ann", "POST", "/api/chat/s/stop", 200},
		{"red@ann", "DELETE", "/api/chat/s", 404},
		{"red@ann", "GET", "/metrics", 403},
		{"monitor", "GET", "/metrics", 200},
	} {
		k.status(c.status, c.method, c.path, "", "Who", c.who)
	}
}

// A Principal that fails answers 401 if it says so, and else what a refusal answers.
func TestUnauthenticated(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Principal: func(r *http.Request) (string, error) {
		switch who := r.Header.Get("Who"); who {
		case "expired":
			return "", fmt.Errorf("the token of %s: %w", who, server.ErrUnauthenticated)
		case "banned":
			return "", errors.New("secret reason")
		default:
			return who, nil
		}
	}, Authorize: func(_ context.Context, a server.Access) error {
		if a.Principal == "" {
			return nil
		}
		return server.ErrUnauthenticated
	}})
	for _, path := range []string{"/api/chat", "/api/chat/s", "/merlin/v1", "/api/chat/s/resume", "/stream/s?claim"} {
		for who, want := range map[string]string{"expired": "401 unauthenticated", "ann": "401 unauthenticated", "banned": "404 not_found"} {
			status := http.StatusUnauthorized
			if want[0] == '4' && want[2] == '4' {
				status = http.StatusNotFound
			}
			if p := k.problem(status, want[4:], "POST", path, userBody("", "u1", "hi"), "Who", who); strings.Contains(p.Error, "secret") || strings.Contains(p.Error, "token of") {
				t.Errorf("the answer tells the reason: %+v", p)
			}
		}
	}
	k.stream("POST", "/api/chat/s", userBody("s", "u1", "hi")) // an Authorize may let in callers without a name
}

// An answer in a chat POST needs the same right as one on its own route.
func TestAnswerByChatIsADecision(t *testing.T) {
	t.Parallel()
	var asked []server.Action
	k := newKit(t, &server.Options{Principal: named, Authorize: func(_ context.Context, a server.Access) error {
		asked = append(asked, a.Action)
		if a.Action == server.ActionDecide && a.Principal == "guest" {
			return errors.New("guests decide nothing")
		}
		return nil
	}})
	first := k.stream("POST", "/api/chat/s", userBody("s", "u1", "where am I?"), "Who", "guest")
	o := k.own("s")
	o.start("u1")
	o.ask("c1")
	first.all()
	body := mustJSON(map[string]any{"id": "s", "messages": []any{
		map[string]any{"id": "answer-u1", "role": "assistant", "parts": []any{
			map[string]any{"type": "dynamic-tool", "toolName": "locate", "toolCallId": "c1", "state": "output-available", "input": map[string]any{}, "output": "here"},
		}},
	}})
	named := strings.Replace(body, `{`, `{"sessionId":"s",`, 1)
	for path, body := range map[string]string{"/api/chat/s": body, "/merlin/v1/s": body, "/merlin/v2": named, "/api/chat": named} {
		k.problem(http.StatusNotFound, "not_found", "POST", path, body, "Who", "guest")
	}
	k.problem(http.StatusNotFound, "not_found", "POST", "/api/chat/s/tools/c1", `{"output":"here"}`, "Who", "guest")
	err := o.g.View(t.Context(), func(f *fold.Fold) error {
		if f.Status != chunk.StatusPaused || len(f.PendingCalls()) != 1 {
			t.Errorf("%s, pending %v", f.Status, f.PendingCalls())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	asked = nil
	_ = k.stream("POST", "/api/chat/s", body, "Who", "ann").res.Body.Close()
	if !slices.Equal(asked, []server.Action{server.ActionSend, server.ActionDecide}) {
		t.Errorf("Authorize was asked for %v", asked)
	}
}

// Who waits for a session that another principal then creates is refused like any other,
// and nobody branches into another's session.
func TestOwnerOnlyAcrossSessions(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Principal: named})
	waits := k.stream("GET", "/stream/later?wait=1", "", "Who", "ann")
	k.twoSteps("later", "Who", "bob")
	if list, err := waits.rest(); errors.Is(err, io.EOF) || len(list) > 0 {
		t.Errorf("ann got %v, %v of bob's session; want a broken connection", list, err)
	}
	k.twoSteps("anns", "Who", "ann")
	k.twoSteps("anns-2", "Who", "ann")
	branch := func(to string) string {
		return mustJSON(map[string]any{"mode": "branch", "checkpointId": "cp-1", "sessionId": to})
	}
	k.problem(http.StatusNotFound, "not_found", "POST", "/api/chat/anns/resume", branch("later"), "Who", "ann")
	k.problem(http.StatusNotFound, "not_found", "POST", "/api/chat/later/resume", branch("new"), "Who", "ann")
	k.problem(http.StatusConflict, "session_exists", "POST", "/api/chat/anns/resume", branch("anns-2"), "Who", "ann")
	k.status(http.StatusOK, "POST", "/api/chat/anns/resume", branch("new"), "Who", "ann")
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/new/snapshot", "", "Who", "bob")
	k.status(http.StatusOK, "GET", "/api/chat/new/snapshot", "", "Who", "ann")
}

// Metrics and listings have no session to hide: a refusal says what is refused and how to
// allow it.
func TestRefusedWithoutASession(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Principal: named})
	p := k.problem(http.StatusForbidden, "not_allowed", "GET", "/metrics", "", "Who", "ann")
	if !strings.Contains(p.Error, "metrics") || !strings.Contains(p.Hint, "Authorize") {
		t.Errorf("%+v", p)
	}
	k.problem(http.StatusUnauthorized, "unauthenticated", "GET", "/metrics", "")
	k = newKit(t, &server.Options{
		Principal: func(r *http.Request) (string, error) {
			if r.Header.Get("Who") == "banned" {
				return "", errors.New("secret reason")
			}
			return named(r)
		},
		Authorize: func(context.Context, server.Access) error { return errors.New("secret reason") },
	})
	for path, what := range map[string]string{"/metrics": "metrics", "/sessions": "list sessions"} {
		for _, who := range []string{"ann", "banned"} {
			if p := k.problem(http.StatusForbidden, "not_allowed", "GET", path, "", "Who", who); !strings.Contains(p.Error, what) || strings.Contains(p.Error+p.Hint, "secret") {
				t.Errorf("%s: %+v", path, p)
			}
		}
	}
}

package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server"
)

// A reader that asks to wait is there before its session, and misses nothing. Without
// the parameter a session that does not exist is 404.
func TestWaitForSession(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.problem(http.StatusNotFound, "not_found", "GET", "/stream/s", "")
	k.problem(http.StatusNotFound, "not_found", "GET", "/stream/s?wait=0", "")
	k.problem(http.StatusBadRequest, "invalid", "GET", "/stream/s?wait=yes", "")
	k.problem(http.StatusBadRequest, "invalid_id", "GET", "/stream/%01?wait=1", "")
	early := k.stream("GET", "/stream/s?wait=1", "")
	child := k.stream("GET", "/stream/s.1?wait=1", "")
	elsewhere := k.restarted().stream("GET", "/stream/s?wait=1", "")    // another process
	k.problem(http.StatusNotFound, "not_found", "GET", "/stream/s", "") // waiting creates nothing
	post := k.say("s", "u1", "hi")
	early.until("user_message")
	elsewhere.until("user_message")
	o := k.own("s")
	o.start("u1")
	o.text("one ")
	early.until("one ")
	o.commit(spool.Row{}, nil, &chunk.ToolStart{ToolCallID: "c", ToolName: "ask"}, &chunk.SubAgentStart{CallID: "c", SubSessionID: "s.1", SubAgentType: "child"})
	childs := chunk.Base{AgentID: "s.1", AgentType: "child"}
	o.commit(spool.Row{}, nil,
		&chunk.UserMessage{Base: childs, CommandID: "s.1-1", Message: chunk.Message{ID: "s.1-1", Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "look"}}}},
		&chunk.RunStarted{Base: childs, TurnID: "s.1-1", MessageID: "s.1-m", Mode: "start", Commands: []string{"s.1-1"}})
	child.until("s.1-m")
	o.finish()
	post.all()
	late := k.stream("GET", "/stream/s?wait=1", "").all()
	if first := k.stream("GET", "/stream/s", "").all(); datas(late) != datas(first) {
		t.Errorf("a session that exists is streamed differently with wait=1:\n%s\n%s", datas(late), datas(first))
	}
	if list := elsewhere.all(); list[len(list)-1].Data != `{"type":"end"}` {
		t.Errorf("the reader of the other process ends with %v", list[len(list)-1])
	}
}

// Waiting readers count against the limit, leave when the server drains, and leave
// room when they leave by themselves.
func TestWaitingReadersAreReaders(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{MaxReaders: 1})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", k.http.URL+"/stream/s?wait=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := k.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	k.problem(http.StatusServiceUnavailable, "too_many_readers", "GET", "/stream/other?wait=1", "")
	leave()
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	var next *events
	for next == nil { // its handler is on its way out
		if res := k.do("GET", "/stream/s?wait=1", ""); res.StatusCode == http.StatusOK {
			next = &events{k: k, res: res, r: newSSE(res)}
		}
	}
	if err := k.srv.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err := next.rest(); errors.Is(err, io.EOF) || len(list) > 0 {
		t.Errorf("a drained reader: %v, %v; want a broken connection", list, err)
	}
}

// Who waits was allowed to read a session that did not exist. Once it exists, that is
// asked again, because it may be somebody else's.
func TestWaitingAsksAgain(t *testing.T) {
	t.Parallel()
	var theirs atomic.Bool
	k := newKit(t, &server.Options{Authorize: func(_ context.Context, a server.Access) error {
		if a.Session == "closed" || theirs.Load() && a.Action == server.ActionRead {
			return errors.New("not yours")
		}
		return nil
	}})
	k.problem(http.StatusNotFound, "not_found", "GET", "/stream/closed?wait=1", "")
	waits := k.stream("GET", "/stream/s?wait=1", "")
	theirs.Store(true)
	k.say("s", "u1", "secret")
	if list, err := waits.rest(); errors.Is(err, io.EOF) || len(list) > 0 {
		t.Errorf("the reader got %v, %v; want a broken connection", list, err)
	}
	k.problem(http.StatusNotFound, "not_found", "GET", "/stream/s?wait=1", "")
}

// The answer to a busy session says where to follow it, wherever the server is mounted.
func TestAttachIsRelative(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	mounted := httptest.NewServer(http.StripPrefix("/my/agents", k.srv))
	t.Cleanup(func() {
		mounted.CloseClientConnections()
		mounted.Close()
	})
	plain := k.http
	for _, session := range []string{"s", "a:b", "ž o", "50%"} {
		escaped := url.PathEscape(session)
		k.http = plain
		k.say(escaped, "u1", "hi")
		o := k.own(session)
		o.start("u1")
		o.text("one ")
		for prefix, srv := range map[string]*httptest.Server{"": plain, "/my/agents": mounted} {
			for path, want := range map[string]string{
				"/api/chat/" + escaped:             "/api/chat/" + escaped + "/stream",
				"/api/chat":                        "/api/chat/" + escaped + "/stream",
				"/api/chat/" + escaped + "/resume": "/api/chat/" + escaped + "/stream",
				"/merlin/v1/" + escaped:            "/merlin/v1/" + escaped,
				"/merlin/v2":                       "/merlin/v2/" + escaped,
			} {
				k.http = srv
				body := mustJSON(map[string]any{"sessionId": session, "message": "more", "mode": "with_message"})
				p := k.problem(http.StatusConflict, "busy", "POST", prefix+path, body)
				asked, err := url.Parse(srv.URL + prefix + path)
				if err != nil {
					t.Fatal(err)
				}
				follow, err := asked.Parse(p.Attach)
				if err != nil {
					t.Fatal(err)
				}
				if got := follow.EscapedPath(); got != prefix+want {
					t.Errorf("POST %s: attach %q leads to %s, want %s", prefix+path, p.Attach, got, prefix+want)
				}
				e := k.stream("GET", follow.RequestURI(), "")
				e.until("one ")
			}
		}
	}
}

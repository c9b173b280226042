package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/internal/pipenet"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// Every route that there is asks Authorize, and who is refused cannot tell a
// session that exists from one that does not.
func TestEveryRouteAsks(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	k := newKitOn(t, store, nil)
	k.turn("there", "u1", "answer")
	asked := 0
	closed := k.over(k.logs, &server.Options{Authorize: func(context.Context, server.Access) error {
		asked++
		return errors.New("no")
	}})
	open := []string{"/api/info", "/healthz", "/readyz", "/openapi.json"}
	vars := strings.NewReplacer("{id}", "x", "{call}", "x", "{hash}", "sha256:x", "{chat}", "x")
	closed.srv.Routes(func(pattern, method string, _ server.Action) {
		if slices.Contains(open, pattern) {
			closed.status(http.StatusOK, method, pattern, "")
			return
		}
		methods := []string{method}
		if method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
		for _, method := range methods {
			for _, suffix := range []string{"", ".1"} {
				var answers []string
				for _, session := range []string{"there", "where"} {
					before := asked
					path := strings.ReplaceAll(vars.Replace(pattern), "{session}", session+suffix)
					res := closed.do(method, path+"?after=0", userBody(session+suffix, "u2", "hi"))
					data, err := io.ReadAll(res.Body)
					if err != nil {
						t.Fatal(err)
					}
					want := http.StatusNotFound
					if pattern == "/metrics" || pattern == "/sessions" { // no session's existence is to be hidden
						want = http.StatusForbidden
					}
					refused := res.StatusCode == want && asked == before+1
					reserved := suffix != "" && res.StatusCode == http.StatusBadRequest // told what to do by its parent alone
					if !refused && !reserved {
						t.Errorf("%s %s: %s, asked %d times: %s", method, path, res.Status, asked-before, data)
					}
					res.Header.Del("Date")
					answers = append(answers, strings.ReplaceAll(string(data), "(session "+session, "(session …")+mustJSON(res.Header))
				}
				if answers[0] != answers[1] {
					t.Errorf("%s %s tells sessions that exist from others:\n%s\n%s", method, pattern, answers[0], answers[1])
				}
			}
		}
	})
}

// A page elsewhere may make its own name point here; the browser then takes it
// for this server's page.
func TestHosts(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Assets: assets(), AllowHost: server.LoopbackHost})
	for host, want := range map[string]int{
		"127.0.0.1:8080": 200, "localhost": 200, "LOCALHOST:1": 200, "spool.localhost:8080": 200, "[::1]:8080": 200,
		"evil.example": 403, "evil.example:8080": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "10.0.0.1": 403,
	} {
		for _, path := range []string{"/", "/sessions", "/healthz"} {
			req, err := http.NewRequestWithContext(t.Context(), "GET", k.http.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			req.Header.Set("Origin", "http://"+host)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			data, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != want || want == 403 && !strings.Contains(string(data), `"host_not_allowed"`) {
				t.Errorf("%s as %s: %s %s", path, host, res.Status, data)
			}
		}
	}
}

// A body that does not come ends its request and connection, read by the route or
// not; one that came takes nothing from the stream that answers it.
func TestBodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKitAt(t, memstore.New(nil), &server.Options{BodyTimeout: 5 * time.Second})
		network := pipenet.Listen()
		_ = k.http.Listener.Close()
		k.http.Listener = network
		k.http.Start()
		k.http.Client().Transport.(*http.Transport).DialContext = network.Dial

		e, all := k.say("s", "u1", "hi"), make(chan []event)
		go func() { all <- e.all() }()
		ask := func(head, burst, body string) (answer string, took time.Duration) {
			conn, err := network.Dial(k.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			start := time.Now()
			go func() { // there are no buffers here
				_, _ = io.WriteString(conn, head+" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"+burst)
				for i := range len(body) {
					if _, err := io.WriteString(conn, body[i:i+1]); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}()
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				t.Errorf("%s: %v", head, err)
			}
			return strings.TrimSpace(line), time.Since(start)
		}
		for _, c := range []struct{ head, burst, body, want string }{
			{"POST /api/chat/other", "", "", "HTTP/1.1 408 Request Timeout"},
			{"POST /api/chat/other", "", strings.Repeat(" ", 1000), "HTTP/1.1 408 Request Timeout"},
			{"POST /api/chat/other", strings.Repeat(" ", 500_000), "", "HTTP/1.1 408 Request Timeout"},
			{"POST /api/chat/other", strings.Repeat(" ", 500_000), strings.Repeat(" ", 1000), "HTTP/1.1 408 Request Timeout"},
			{"POST /nothing", "", "", "HTTP/1.1 404 Not Found"},
			{"GET /stream/s", "", "", "HTTP/1.1 200 OK"},
		} {
			if got, took := ask(c.head, c.burst, c.body); got != c.want || took > 7*time.Second {
				t.Errorf("%s, %d bytes: %q after %v", c.head, len(c.body), got, took)
			}
		}
		conn, err := network.Dial(k.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go io.WriteString(conn, "GET /stream/s?follow=session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}")
		lines := bufio.NewScanner(conn)
		for beats := 0; beats < 3; {
			if !lines.Scan() {
				t.Fatalf("a stream whose request had a body that nobody read ended after %d heartbeats", beats)
			}
			if lines.Text() == ": hb" {
				beats++
			}
		}
		_ = conn.Close()
		o := k.own("s")
		o.start("u1")
		time.Sleep(time.Minute)
		o.text("late")
		o.finish()
		if got := textOf(<-all); got != "late" {
			t.Errorf("the stream that answers a body has %q", got)
		}
	})
}

// As many streams as may be open are served, and the next one is told to come back. Its
// message is not taken: it sends it again.
func TestMaxReaders(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{MaxReaders: 2})
	first := k.say("s", "u1", "hi")
	k.stream("GET", "/stream/s?follow=session", "")
	if res := k.do("GET", "/api/chat/s/stream", ""); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("the third reader: %s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
	}
	body := userBody("other", "u1", "hi")
	k.srv.Routes(func(pattern, method string, action server.Action) {
		if method != http.MethodPost || action != server.ActionSend && action != "" || strings.HasSuffix(pattern, "/resume") {
			return // it answers without a stream
		}
		k.problem(http.StatusServiceUnavailable, "too_many_readers", "POST", strings.ReplaceAll(pattern, "{session}", "other"), body)
	})
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/other/snapshot", "")
	o := k.own("s")
	o.start("u1")
	o.finish()
	first.all()
	for { // its handler is on its way out
		res := k.do("POST", "/api/chat/other", body)
		if res.StatusCode == http.StatusOK {
			break
		}
	}
	if s := k.snapshot("other"); len(s.Messages) != 1 {
		t.Errorf("%d messages, want the one that was sent until it was taken", len(s.Messages))
	}
}

// A server that drains takes no message that it would not answer.
func TestDrainTakesNoMessage(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.srv.Drain()
	for _, path := range []string{"/api/chat/s", "/api/chat", "/merlin/v1/s", "/merlin/v2"} {
		k.problem(http.StatusServiceUnavailable, "draining", "POST", path, userBody("s", "u1", "hi"))
	}
	k.problem(http.StatusNotFound, "not_found", "GET", "/api/chat/s/snapshot", "")
}

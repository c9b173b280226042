package server_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/server"
)

func TestBadInput(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	long := strings.Repeat("x", 10<<10)
	ok := userBody("", "u1", "hi")
	for _, tt := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/api/chat/%2e%2e", ok, 400, "invalid_id"},
		{"POST", "/api/chat/..", ok, 400, "invalid_id"},
		{"POST", "/api/chat/.", ok, 400, "invalid_id"},
		{"POST", "/api/chat/a%2Fb", ok, 400, "invalid_id"},
		{"POST", "/api/chat/a%5Cb", ok, 400, "invalid_id"},
		{"POST", "/api/chat/a%00b", ok, 400, "invalid_id"},
		{"POST", "/api/chat/a%0Ab", ok, 400, "invalid_id"},
		{"POST", "/api/chat/%ff", ok, 400, "invalid_id"},
		{"POST", "/api/chat/" + long, ok, 400, "invalid_id"},
		{"POST", "/api/chat/child.3", ok, 400, "invalid_session_id"},
		{"POST", "/api/chat/", ok, 400, "invalid_id"},
		{"GET", "/api/chat/%2e%2e/stream", "", 400, "invalid_id"},
		{"GET", "/api/chat/%2e%2e/snapshot", "", 400, "invalid_id"},
		{"GET", "/stream/..%2f..%2fetc", "", 400, "invalid_id"},
		{"DELETE", "/api/chat/" + long, "", 400, "invalid_id"},
		{"POST", "/api/chat", `{"sessionId":"../x","message":"hi"}`, 400, "invalid_id"},
		{"POST", "/api/chat", `{"id":"a.1","message":"hi"}`, 400, "invalid_session_id"},
		{"POST", "/merlin/v1/%2e%2e", ok, 400, "invalid_id"},
		{"POST", "/merlin/v2/child.3", ok, 400, "invalid_session_id"},
		{"POST", "/merlin/v2", `{"sessionId":"../x","message":"hi"}`, 400, "invalid_id"},
		{"POST", "/merlin/v1/s", `{`, 400, "malformed_json"},
		{"POST", "/merlin/v2/s", `{}`, 400, "no_message"},
		{"GET", "/merlin/v2/s?after=-1", "", 400, "cursor_malformed"},
		{"GET", "/merlin/v1", "", 405, "method_not_allowed"},
		{"GET", "/merlin/v3/s", "", 404, "no_such_route"},
		{"POST", "/api/chat/s", ``, 400, "malformed_json"},
		{"POST", "/api/chat/s", `{`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `[]`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `null`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `"hi"`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `{"message":"a"}{"message":"b"}`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `{"message":5}`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `{"messages":"hi"}`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `{"messages":["hi"]}`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `{"messages":[{"role":"robot"}]}`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `{"message":"hi","whenBusy":"perhaps"}`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `{"message":"hi","trigger":"explode"}`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `{"message":{"role":"user","parts":{}}}`, 400, "malformed_json"},
		{"POST", "/api/chat/s", `{}`, 400, "no_message"},
		{"POST", "/api/chat/s", `{"messages":[]}`, 400, "no_message"},
		{"POST", "/api/chat/s", `{"message":{"role":"user","parts":[]}}`, 400, "no_message"},
		{"POST", "/api/chat/s", `{"messages":[{"id":"a","role":"assistant","parts":[]}]}`, 409, "nothing_to_continue"},
		{"POST", "/api/chat/s/stop", `{`, 400, "malformed_json"},
		{"PUT", "/api/chat/s", ok, 405, "method_not_allowed"},
		{"POST", "/api/chat/s/stream", ok, 405, "method_not_allowed"},
		{"GET", "/api/chat", "", 405, "method_not_allowed"},
		{"POST", "/sessions", "", 405, "method_not_allowed"},
		{"POST", "/healthz", "", 405, "method_not_allowed"},
		{"GET", "/api/nothing", "", 404, "no_such_route"},
		{"GET", "/api/chat/s/what", "", 404, "no_such_route"},
		{"GET", "/api/chat/s?after=-1", "", 400, "cursor_malformed"},
		{"GET", "/api/chat/s?after=", "", 400, "cursor_malformed"},
		{"GET", "/api/chat/s?after=1e3", "", 400, "cursor_malformed"},
		{"GET", "/api/chat/s?after=p-1", "", 400, "cursor_malformed"},
		{"GET", "/api/chat/s?after=99999999999999999999", "", 400, "cursor_malformed"},
		{"GET", "/api/chat/s/messages?limit=-1", "", 400, "invalid"},
		{"GET", "/sessions?status=happy", "", 400, "invalid"},
	} {
		k.problem(tt.status, tt.code, tt.method, tt.path, tt.body)
	}
	if res := k.do("PUT", "/api/chat/s", ""); res.Header.Get("Allow") != "DELETE, GET, HEAD, POST" {
		t.Errorf("Allow: %q", res.Header.Get("Allow"))
	}
	// None of it left a trace.
	page, err := k.store.Sessions(t.Context(), spool.SessionQuery{})
	if err != nil || len(page.Sessions) != 0 {
		t.Errorf("sessions: %+v, %v", page, err)
	}
}

func TestBodyLimits(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	big := bytes.Repeat([]byte("x"), 16<<20+1)
	k.problem(http.StatusRequestEntityTooLarge, "too_large", "POST", "/api/chat/s", string(big))
	k.problem(http.StatusRequestEntityTooLarge, "too_large", "POST", "/merlin/v2/s", string(big))
	k.problem(http.StatusRequestEntityTooLarge, "too_large", "POST", "/api/chat/s/stop", string(big[:1<<20+1]))
}

func TestAuthorize(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{
		Principal: func(r *http.Request) (string, error) {
			who := r.Header.Get("Authorization")
			if who == "" {
				return "", errors.New("nobody")
			}
			return who, nil
		},
		Authorize: func(_ context.Context, a server.Access) error {
			if a.Action == server.ActionList || strings.HasPrefix(a.Session, a.Principal+"-") {
				return nil
			}
			return errors.New("not yours")
		},
	})
	body := userBody("", "u1", "hi")
	e := k.stream("POST", "/api/chat/ann-1", body, "Authorization", "ann")
	o := k.own("ann-1")
	o.start("u1")
	o.finish()
	e.all()
	for _, who := range []string{"", "bob"} {
		for path, method := range map[string]string{
			"/api/chat/ann-1": "POST", "/api/chat/ann-1/stream": "GET", "/api/chat/ann-1/snapshot": "GET",
			"/api/chat/ann-1/messages": "GET", "/api/chat/ann-1/checkpoints": "GET", "/api/chat/ann-1/stop": "POST",
			"/api/chat/ann-1/interrupt": "POST", "/api/chat/ann-1/resume": "POST",
			"/merlin/v1/ann-1": "GET", "/merlin/v2/ann-1": "POST",
			"/api/chat/ann-1/blobs/x": "GET", "/stream/ann-1": "GET", "/stream/ann-1/info": "GET", "/api/messages/ann-1": "GET",
		} {
			k.problem(http.StatusNotFound, "not_found", method, path, body, "Authorization", who)
		}
		k.problem(http.StatusNotFound, "not_found", "DELETE", "/api/chat/ann-1", "", "Authorization", who)
		for _, path := range []string{"/api/chat", "/merlin/v1", "/merlin/v2"} {
			k.problem(http.StatusNotFound, "not_found", "POST", path, `{"sessionId":"ann-1","message":"hi"}`, "Authorization", who)
		}
	}
	if data := k.status(http.StatusOK, "GET", "/sessions", "", "Authorization", "ann"); !strings.Contains(string(data), `"ann-1"`) {
		t.Errorf("ann sees %s", data)
	}
	if data := k.status(http.StatusOK, "GET", "/sessions", "", "Authorization", "bob"); strings.Contains(string(data), `"ann-1"`) {
		t.Errorf("bob sees %s", data)
	}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{AllowOrigin: func(o string) bool { return o == "https://app.example" }})
	res := k.do("OPTIONS", "/api/chat/s", "", "Origin", "https://app.example", "Access-Control-Request-Method", "POST")
	h := res.Header
	if res.StatusCode != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != "https://app.example" ||
		!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Last-Event-ID") || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "DELETE") {
		t.Errorf("preflight: %s %v", res.Status, h)
	}
	res = k.do("GET", "/api/chat/s/stream", "", "Origin", "https://app.example")
	if !strings.Contains(res.Header.Get("Access-Control-Expose-Headers"), "X-Stream-Incarnation") || !strings.Contains(strings.Join(res.Header.Values("Vary"), ","), "Origin") {
		t.Errorf("answer: %v", res.Header)
	}
	// A stranger's page reads nothing and changes nothing, not even by a form.
	res = k.do("GET", "/sessions", "", "Origin", "https://evil.example")
	if res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a stranger was let in: %v", res.Header)
	}
	k.problem(http.StatusForbidden, "cross_origin", "POST", "/api/chat/s", userBody("s", "u1", "hi"), "Origin", "https://evil.example", "Content-Type", "text/plain")
	// The page itself may.
	u, _ := url.Parse(k.http.URL)
	e := k.stream("POST", "/api/chat/s", userBody("s", "u1", "hi"), "Origin", "http://"+u.Host)
	_ = e.res.Body.Close()
	for origin, want := range map[string]bool{
		"http://localhost:5173": true, "http://127.0.0.1:1": true, "http://[::1]:3": true,
		"http://localhost.evil.example": false, "https://evil.example": false, "null": false, "": false,
	} {
		if server.LoopbackOrigin(origin) != want {
			t.Errorf("LoopbackOrigin(%q) = %v", origin, !want)
		}
	}
}

// Pages of any origin may use a server with AllowAnyOrigin, but not with what their user's
// browser adds by itself: that is for origins that are allowed by name.
func TestAnyOrigin(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{AllowAnyOrigin: true, AllowOrigin: func(o string) bool { return o == "https://app.example" }})
	const elsewhere = "https://elsewhere.example"
	h := k.do("OPTIONS", "/api/chat/s", "", "Origin", elsewhere, "Access-Control-Request-Method", "POST").Header
	if h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Allow-Credentials") != "" || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("preflight: %v", h)
	}
	h = k.do("OPTIONS", "/api/chat/s", "", "Origin", "https://app.example", "Access-Control-Request-Method", "POST").Header
	if h.Get("Access-Control-Allow-Origin") != "https://app.example" || h.Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("preflight of the origin that is named: %v", h)
	}
	for _, own := range [][]string{{"Cookie", "session=ann"}, {"Authorization", "Basic YW5uOmFubg=="}, {"Authorization", "negotiate abc"}} {
		header := append([]string{"Origin", elsewhere, "Content-Type", "text/plain"}, own...)
		k.problem(http.StatusForbidden, "cross_origin", "POST", "/api/chat/s", userBody("s", "u1", "hi"), header...)
		k.problem(http.StatusForbidden, "cross_origin", "DELETE", "/api/chat/s", "", header...)
		if h := k.do("GET", "/sessions", "", header...).Header; h.Get("Access-Control-Allow-Origin") != "" || h.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%v is shown to the page: %v", own, h)
		}
	}
	for _, header := range [][]string{{"Origin", elsewhere, "Authorization", "Bearer abc"}, {"Origin", elsewhere}, {"Origin", "https://app.example", "Cookie", "session=ann"}} {
		res := k.do("POST", "/api/chat/s", userBody("s", "u1", "hi"), header...)
		if res.StatusCode != http.StatusOK || res.Header.Get("Access-Control-Allow-Origin") == "" {
			t.Errorf("%v: %s %v", header, res.Status, res.Header)
		}
		_ = res.Body.Close()
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Heartbeat: 20 * time.Millisecond})
	res := k.do("POST", "/api/chat/s", userBody("s", "u1", "hi"))
	buf := make([]byte, 0, 256)
	for strings.Count(string(buf), ": hb\n\n") < 2 { // ends: heartbeats come for ever
		n, err := res.Body.Read(buf[len(buf):cap(buf)])
		if err != nil {
			t.Fatal(err)
		}
		buf = buf[:len(buf)+n]
	}
	if !strings.HasPrefix(string(buf), ":") {
		t.Errorf("before the first event: %q", buf)
	}
}

func TestStatic(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Assets: assets(), Info: server.Info{Model: "m", Demo: true}})
	for path, want := range map[string]string{"/": "<p>page", "/index.html": "<p>page", "/inspect": "<p>inspector"} {
		if data := k.status(http.StatusOK, "GET", path, ""); string(data) != want {
			t.Errorf("%s: %q", path, data)
		}
	}
	if res := k.do("GET", "/assets/a-123.js", ""); !strings.Contains(res.Header.Get("Cache-Control"), "immutable") || !strings.Contains(res.Header.Get("Content-Type"), "javascript") {
		t.Errorf("asset: %v", res.Header)
	}
	k.problem(http.StatusNotFound, "no_such_route", "GET", "/assets/", "")
	k.problem(http.StatusNotFound, "no_such_route", "GET", "/%2e%2e/%2e%2e/etc/passwd", "")
	k.problem(http.StatusMethodNotAllowed, "method_not_allowed", "POST", "/", "")
	if data := k.status(http.StatusOK, "GET", "/api/info", ""); strings.TrimSpace(string(data)) != `{"model":"m","demo":true}` {
		t.Errorf("info: %s", data)
	}
}

package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// The stock AI SDK client makes the body of a refused POST the message of an error, which
// pages show. So it is a text; the code is in a header, and a client that accepts JSON
// gets JSON.
func TestRefusedPostIsText(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.say("s", "u1", "hi")
	busy := "The previous message is still being answered. Wait until the answer is complete, or stop it, and send this message again."
	for _, tt := range []struct {
		path, body, code, text string
		status                 int
	}{
		{"/api/chat/s", userBody("s", "u2", "more"), "busy", busy, http.StatusConflict},
		{"/api/chat", userBody("s", "u2", "more"), "busy", busy, http.StatusConflict},
		{"/api/chat/s", `{}`, "no_message", "The body holds neither a message nor an answer to a pending call.", http.StatusBadRequest},
		{"/api/chat/s", `[`, "malformed_json", "The body is not a JSON object.", http.StatusBadRequest},
		{"/api/chat/s.1", userBody("", "u2", "more"), "invalid_session_id", "", http.StatusBadRequest},
	} {
		for _, accept := range []string{"*/*", "text/html, */*;q=0.1"} {
			res := k.do("POST", tt.path, tt.body, "Accept", accept)
			data, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			text := string(data)
			if res.StatusCode != tt.status || res.Header.Get("X-Spool-Error") != tt.code || res.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
				tt.text != "" && text != tt.text || strings.Contains(text, "spool:") || strings.ContainsAny(text, "{}\n") {
				t.Errorf("%s %s: %s %v %q", tt.path, tt.body, res.Status, res.Header, text)
			}
		}
		k.problem(tt.status, tt.code, "POST", tt.path, tt.body)
		k.problem(tt.status, tt.code, "POST", tt.path, tt.body, "Accept", "text/event-stream, application/json")
	}
	if res := k.do("POST", "/merlin/v2/s", userBody("s", "u2", "more")); res.Header.Get("Content-Type") != "application/json; charset=utf-8" {
		t.Errorf("another wire: %v", res.Header)
	}
}

// broken is a store that cannot be reached, and says more than clients may know.
type broken struct {
	spool.Store
	err error
}

func (b broken) Head(context.Context, string) (spool.Head, error) { return spool.Head{}, b.err }

func TestErrorsKeepTheirCauses(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	cause := errors.New("dial redis://admin:hunter2@10.0.0.7: refused")
	for _, err := range []error{cause, spool.ErrUnavailable.With("s", cause), spool.ErrUnsupported.With("s", cause)} {
		logs := spool.NewLogs(broken{k.store, err}, nil)
		t.Cleanup(func() { _ = logs.Close() })
		b := k.over(logs, nil)
		for _, path := range []string{"/api/chat/s/stream", "/api/chat/s/snapshot", "/stream/s", "/readyz"} {
			res := b.do("GET", path, "")
			data, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			body := string(data)
			if res.StatusCode < http.StatusInternalServerError || strings.Contains(body, "hunter2") || strings.Contains(body, "10.0.0.7") {
				t.Errorf("%s: %s %s", path, res.Status, body)
			}
		}
	}
}

package mcptool_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/tool"
	"github.com/spool-run/spool/tool/mcptool"
)

// recorder is a host that keeps what calls emit.
type recorder struct {
	mu     sync.Mutex
	chunks []chunk.Chunk
	seen   chan chunk.Chunk
}

func (r *recorder) Emit(_ context.Context, c chunk.Chunk) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chunks = append(r.chunks, c)
	select {
	case r.seen <- c:
	default:
	}
	return nil
}
func (r *recorder) State() json.RawMessage { return nil }
func (r *recorder) Update(context.Context, func(json.RawMessage) (json.RawMessage, error)) error {
	return nil
}

func find(t *testing.T, s *mcptool.Server, name string) tool.Tool {
	t.Helper()
	for _, x := range s.Tools() {
		if x.Spec().Name == name {
			return x
		}
	}
	t.Fatalf("no tool %s", name)
	return nil
}

func call(t *testing.T, s *mcptool.Server, name, input string) (string, error) {
	t.Helper()
	return callOn(t, t.Context(), find(t, s, name), input, new(recorder))
}

func callOn(t *testing.T, ctx context.Context, x tool.Tool, input string, host *recorder) (string, error) {
	t.Helper()
	if err := tool.Check(x, json.RawMessage(input)); err != nil {
		return "", err
	}
	out, err := x.Call(tool.NewContext(ctx, tool.Call{ID: "c1", Name: x.Spec().Name, EffectID: "effect-1"}, host), json.RawMessage(input))
	return string(out), err
}

// both runs a test on a server in a process and on one over HTTP.
func both(t *testing.T, test func(t *testing.T, dial mcptool.Dial)) {
	t.Run("process", func(t *testing.T) { test(t, process(t)) })
	t.Run("http", func(t *testing.T) {
		dial, _ := loopback(t)
		test(t, dial)
	})
}

func TestTools(t *testing.T) {
	both(t, func(t *testing.T, dial mcptool.Dial) {
		s := connect(t, dial, &mcptool.Options{Prefix: "x-", Timeout: time.Minute, Include: func(t *mcp.Tool) bool { return t.Name != "pid" }})
		specs := map[string]tool.Spec{}
		for _, x := range s.Tools() {
			specs[x.Spec().Name] = x.Spec()
		}
		if len(specs) != 14 || len(s.Tools()) != 14 { // five pages
			t.Errorf("%d tools: %v", len(s.Tools()), specs)
		}
		var schema struct {
			Properties map[string]struct{ Type, Description string }
			Required   []string
		}
		add := specs["x-add"]
		if err := json.Unmarshal(add.Input, &schema); err != nil || schema.Properties["a"].Description != "the first" || !slices.Equal(schema.Required, []string{"a"}) {
			t.Errorf("%s", add.Input)
		}
		if add.Description != "Adds." || specs["x-media"].Description != "Shows things." || add.Timeout != time.Minute || add.Recovery != tool.RecoverRetry || add.NeedsApproval != nil {
			t.Errorf("%+v", add)
		}
		wipe, other := "", ""
		for name, spec := range specs {
			switch {
			case spec.NeedsApproval != nil:
				wipe = name
			case strings.HasPrefix(name, "x-files_wipe_all"):
				other = name
			}
			if !strings.HasPrefix(name, "x-") || strings.ContainsAny(name, "/. ") || len(name) > 64 {
				t.Errorf("name %q", name)
			}
		}
		if wipe == "" || other == "" || specs[other].Recovery != tool.RecoverRetry || specs[wipe].Recovery != tool.RecoverFail {
			t.Errorf("%q and %q", wipe, other)
		}
		for name, want := range map[string]string{wipe: `"wiped"`, other: `"another"`} {
			if got, err := call(t, s, name, `{}`); got != want || err != nil {
				t.Errorf("%s: %s, %v", name, got, err)
			}
		}
	})
}

func TestApproval(t *testing.T) {
	dial, _ := loopback(t)
	for approval, want := range map[mcptool.Approval]int{mcptool.ApproveDestructive: 1, mcptool.ApproveWrites: 14, mcptool.ApproveAll: 15, mcptool.ApproveNone: 0} {
		n := 0
		for _, x := range connect(t, dial, &mcptool.Options{Approval: approval}).Tools() {
			if needs := x.Spec().NeedsApproval; needs != nil && needs(nil) {
				n++
			}
		}
		if n != want {
			t.Errorf("%q: %d", approval, n)
		}
	}
	if _, err := mcptool.Connect(t.Context(), dial, &mcptool.Options{Approval: "maybe"}); err == nil {
		t.Error("an unknown approval passed")
	}
}

func TestResults(t *testing.T) {
	both(t, func(t *testing.T, dial mcptool.Dial) {
		s := connect(t, dial, nil)
		for _, tt := range []struct{ name, input, want, err string }{
			{"add", `{"a":2,"b":3}`, `{"sum":5}`, ""},
			{"add", `{"b":3}`, "", "a"},                 // the schema
			{"add", `{"a":"two"}`, "", "integer"},       // the schema
			{"text", `{}`, `"one\ntwo"`, ""},            // text is a string
			{"fails", `{}`, "", "no such city"},         // isError
			{"refuses", `{}`, "", "refused on the pro"}, // an error of the protocol
			{"exotic", `{"x":1}`, `"as you say"`, ""},   // a schema that cannot be resolved here
			{"meta", `{}`, `"effect-1"`, ""},
			{"media", `{}`, `[{"type":"text","text":"look"},{"type":"image","mediaType":"image/png","bytes":3,"shown":true},` +
				`{"type":"link","uri":"https://example.org/a","name":"a","mediaType":"text/html","shown":true},` +
				`{"type":"resource","text":"note","uri":"file:///n.txt","mediaType":"text/plain"},` +
				`{"type":"resource","uri":"file:///b.bin","bytes":5,"shown":true}]`, ""},
		} {
			got, err := call(t, s, tt.name, tt.input)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s %s: %s, %v", tt.name, tt.input, got, err)
			}
		}
		var host recorder
		if _, err := callOn(t, t.Context(), find(t, s, "media"), `{}`, &host); err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, c := range host.chunks {
			switch c := c.(type) {
			case *chunk.File:
				said = append(said, c.URL+" "+c.Filename)
			case *chunk.Citation:
				said = append(said, c.SourceID+" "+c.URL+" "+c.Title)
			}
		}
		want := []string{"data:image/png;base64,cG5n ", "c1/3 https://example.org/a a", "data:application/octet-stream;base64,Ynl0ZXM= b.bin"}
		if !slices.Equal(said, want) {
			t.Errorf("%q", said)
		}
	})
}

// A call that is cancelled is cancelled at the server, and what it told of its
// progress was shown.
func TestCancellationAndProgress(t *testing.T) {
	both(t, func(t *testing.T, dial mcptool.Dial) {
		s := connect(t, dial, nil)
		host := &recorder{seen: make(chan chunk.Chunk, 8)}
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		done := make(chan error, 1)
		go func() {
			_, err := callOn(t, ctx, find(t, s, "waits"), `{}`, host)
			done <- err
		}()
		for i, label := range []string{"step 1", "step 2"} {
			p, ok := (<-host.seen).(*chunk.Progress)
			if !ok || p.Label != label || p.Percent == nil || *p.Percent != 25*float64(i+1) || p.ID != "c1" {
				t.Errorf("%+v", p)
			}
		}
		cancel(stopped)
		if err := <-done; !errors.Is(err, stopped) {
			t.Errorf("%v", err)
		}
		for { // the notification is on its way
			if got, err := call(t, s, "cancelled", `{}`); err != nil || got == "1" {
				if err != nil {
					t.Error(err)
				}
				return
			}
		}
	})
}

func TestListChanges(t *testing.T) {
	both(t, func(t *testing.T, dial mcptool.Dial) {
		s := connect(t, dial, nil)
		old := find(t, s, "text")
		if _, err := call(t, s, "grow", `{}`); err != nil {
			t.Fatal(err)
		}
		for !slices.ContainsFunc(s.Tools(), func(x tool.Tool) bool { return x.Spec().Name == "late" }) {
			time.Sleep(time.Millisecond) // the notification is on its way
		}
		if slices.ContainsFunc(s.Tools(), func(x tool.Tool) bool { return x.Spec().Name == "text" }) {
			t.Error("a tool that is gone is listed")
		}
		if got, err := call(t, s, "late", `{}`); got != `"here"` || err != nil {
			t.Errorf("%s, %v", got, err)
		}
		if _, err := callOn(t, t.Context(), old, `{}`, new(recorder)); err == nil {
			t.Error("a tool that is gone was called")
		}
	})
}

// A process that dies takes the call with it, and only that.
func TestProcessDies(t *testing.T) {
	s := connect(t, process(t), &mcptool.Options{Name: "mortal"})
	first, err := call(t, s, "pid", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := call(t, s, "dies", `{}`); err == nil || !strings.Contains(err.Error(), "the MCP server mortal was lost during the call") {
			t.Errorf("%v", err)
		}
		next, err := call(t, s, "pid", `{}`)
		if err != nil || next == first {
			t.Fatalf("%s after %s: %v", next, first, err)
		}
		first = next
	}
}

// A server over HTTP that is gone is an error for the model, and one that has
// come back, with other sessions, is used again.
func TestServerRestarts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	serve := func(l net.Listener) *httptest.Server {
		s := newServer(new(atomic.Int64))
		h := httptest.NewUnstartedServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
		_ = h.Listener.Close()
		h.Listener = l
		h.Start()
		return h
	}
	end := func(h *httptest.Server) { h.CloseClientConnections(); h.Close() }
	h := serve(l)
	s := connect(t, mcptool.HTTP(h.URL, nil), nil)
	for round := range 2 {
		if got, err := call(t, s, "add", `{"a":1}`); got != `{"sum":1}` || err != nil {
			t.Fatalf("round %d: %s, %v", round, got, err)
		}
		add := find(t, s, "add")
		end(h)
		for range 2 {
			if _, err := callOn(t, t.Context(), add, `{"a":1}`, new(recorder)); err == nil || !strings.Contains(err.Error(), "the MCP server tests") {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if l, err = net.Listen("tcp", addr); err != nil {
			t.Fatal(err)
		}
		h = serve(l)
	}
	if got, err := call(t, s, "add", `{"a":1}`); got != `{"sum":1}` || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	end(h)
}

func TestNotAServer(t *testing.T) {
	for name, dial := range map[string]mcptool.Dial{
		"no such program": mcptool.Command("/nonexistent/program"),
		"it says nothing": mcptool.Command("true"),
		"it says else":    mcptool.Command("echo", "hello"),
		"nobody listens":  mcptool.HTTP("http://127.0.0.1:1/mcp", nil),
	} {
		s, err := mcptool.Connect(t.Context(), dial, &mcptool.Options{Name: "x"})
		if err == nil || !strings.Contains(err.Error(), "the MCP server x cannot be reached") {
			t.Errorf("%s: %v", name, err)
		}
		if s != nil {
			_ = s.Close()
		}
	}
}

func TestLogs(t *testing.T) {
	both(t, func(t *testing.T, dial mcptool.Dial) {
		lines := make(chan string, 100)
		s := connect(t, dial, &mcptool.Options{Logger: logTo(lines)})
		if strings.HasSuffix(t.Name(), "process") {
			for !strings.Contains(<-lines, `line="a server begins"`) {
			}
		}
		if got, err := call(t, s, "logs", `{}`); err != nil || got != `"\u003cnil\u003e"` {
			t.Fatalf("%s, %v", got, err)
		}
		for {
			if line := <-lines; strings.Contains(line, "look out") {
				if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "logger=deep") {
					t.Errorf("%s", line)
				}
				return
			}
		}
	})
}

func TestClosed(t *testing.T) {
	s := connect(t, process(t), nil)
	pid := find(t, s, "pid")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := callOn(t, t.Context(), pid, `{}`, new(recorder)); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("%v", err)
	}
}

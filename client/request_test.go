package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/wire/aisdk"
)

// trip is a transport that answers as a function says.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(r *http.Request, status int, body io.Reader, header ...string) *http.Response {
	res := &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Header: http.Header{}, Body: io.NopCloser(body), Request: r}
	for i := 0; i < len(header); i += 2 {
		res.Header.Set(header[i], header[i+1])
	}
	return res
}

func over(t *testing.T, f trip, o client.Options) *client.Client {
	t.Helper()
	o.HTTP = &http.Client{Transport: f}
	c, err := client.New("https://spool.example/x", &o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// Pauses double up to their cap, a random part of each is taken, Retry-After counts, and
// after Max failures the client gives up with a typed error.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, n := time.Now(), 0
		var at, pauses []time.Duration
		c := over(t, func(r *http.Request) (*http.Response, error) {
			at = append(at, time.Since(begun))
			if n++; n == 3 {
				return answer(r, 503, strings.NewReader(`{"error":"spool: the server is shutting down","code":"draining"}`), "Retry-After", "7"), nil
			}
			return nil, errRefused
		}, client.Options{Retry: client.Retry{Max: 6, Base: time.Second, Cap: 4 * time.Second, Jitter: func(n int64) int64 { return n - 1 },
			Notify: func(_ error, d time.Duration) { pauses = append(pauses, d) }}})
		_, err := c.Session("s").Snapshot(t.Context(), client.SnapshotOptions{})
		if !errors.Is(err, client.ErrUnreachable) || !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "6 attempts") {
			t.Errorf("gave up with %v", err)
		}
		want := []time.Duration{time.Second, 2 * time.Second, 7 * time.Second, 4 * time.Second, 4 * time.Second}
		if !slices.Equal(pauses, want) || at[5] != 18*time.Second {
			t.Errorf("paused %v, asked at %v; want %v", pauses, at, want)
		}
	})
	for _, max := range []int64{1, 100} { // the whole of the range is used
		c := over(t, func(*http.Request) (*http.Response, error) { return nil, errRefused },
			client.Options{Retry: client.Retry{Max: 2, Base: 99, Jitter: func(n int64) int64 {
				if n != 100 {
					t.Errorf("a random number below %d, want 100", n)
				}
				return max - 1
			}}})
		_, _ = c.Info(t.Context())
	}
}

// Without a bound a stream tries for ever; ctx ends it, with its cause.
func TestWithoutBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		n := 0
		c := over(t, func(*http.Request) (*http.Response, error) {
			if n++; n == 500 {
				cancel(why)
			}
			return nil, errRefused
		}, client.Options{Retry: client.Retry{Max: -1}})
		if _, err := c.Session("s").Log(ctx, client.LogOptions{}).Next(); !errors.Is(err, why) || n != 500 {
			t.Errorf("%v after %d", err, n)
		}
	})
}

// A connection that is silent for too long is dead; heartbeats keep it alive. A quiet
// session may cost any number of connections.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var positions []string
		var reasons []error
		c := over(t, func(r *http.Request) (*http.Response, error) {
			n++
			positions = append(positions, r.Header.Get("Last-Event-ID"))
			pr, pw := io.Pipe()
			n := n
			context.AfterFunc(r.Context(), func() { pr.CloseWithError(r.Context().Err()) })
			go func() {
				io.WriteString(pw, ": spool\n\n")
				if n == 1 {
					io.WriteString(pw, "id: 1\ndata: {\"type\":\"text_delta\",\"delta\":\"a\"}\n\n")
				}
				for range 5 {
					time.Sleep(10 * time.Second)
					io.WriteString(pw, ": hb\n\n")
				}
				if n == 12 {
					io.WriteString(pw, "data: {\"type\":\"end\"}\n\n")
				}
			}()
			return answer(r, 200, pr), nil
		}, client.Options{Retry: client.Retry{Max: 3, Notify: func(err error, _ time.Duration) { reasons = append(reasons, err) }}})
		begun := time.Now()
		l := c.Session("s").Log(t.Context(), client.LogOptions{})
		if e, err := l.Next(); err != nil || e.Seq != 1 {
			t.Fatalf("%+v, %v", e, err)
		}
		if _, err := l.Next(); !errors.Is(err, io.EOF) || n != 12 {
			t.Fatalf("%v after %d connections", err, n)
		}
		if d := time.Since(begun); d < 11*80*time.Second || !strings.Contains(reasons[0].Error(), "silent") {
			t.Errorf("12 connections took %v; %v", d, reasons[0])
		}
		if positions[0] != "" || positions[11] != "1" {
			t.Errorf("positions %v", positions)
		}
	})
}

// An answer that does not come is asked for again.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		c := over(t, func(r *http.Request) (*http.Response, error) {
			if n++; n%2 == 1 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			if strings.HasPrefix(r.URL.Path, "/x/stream/") {
				return answer(r, 200, strings.NewReader("data: {\"type\":\"end\"}\n\n")), nil
			}
			return answer(r, 200, strings.NewReader(`{"model":"m"}`)), nil
		}, client.Options{})
		if i, err := c.Info(t.Context()); err != nil || i.Model != "m" {
			t.Errorf("%+v, %v", i, err)
		}
		if _, err := c.Session("s").Log(t.Context(), client.LogOptions{}).Next(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if n != 4 {
			t.Errorf("%d requests", n)
		}
	})
}

// A request is repeated only if the server knows the repeat.
func TestUnknownOutcome(t *testing.T) {
	broken := io.ErrUnexpectedEOF
	for name, tt := range map[string]struct {
		first error
		do    func(*client.Session) error
		again bool
	}{
		"stop of any run": {broken, func(s *client.Session) error { _, err := s.Stop(t.Context(), client.StopOptions{}); return err }, false},
		"stop, not sent":  {errRefused, func(s *client.Session) error { _, err := s.Stop(t.Context(), client.StopOptions{}); return err }, true},
		"stop of a run": {broken, func(s *client.Session) error {
			_, err := s.Stop(t.Context(), client.StopOptions{RunID: "r"})
			return err
		}, true},
		"interrupt":  {broken, func(s *client.Session) error { _, err := s.Interrupt(t.Context(), client.StopOptions{}); return err }, false},
		"send":       {broken, func(s *client.Session) error { _, err := s.Send(t.Context(), client.Message{Text: "x"}); return err }, true},
		"regenerate": {broken, func(s *client.Session) error { return s.Regenerate(t.Context(), "", "") }, false},
		"resume":     {broken, func(s *client.Session) error { _, err := s.Resume(t.Context(), client.ResumeOptions{}); return err }, true},
		"branch": {broken, func(s *client.Session) error {
			_, err := s.Branch(t.Context(), client.BranchOptions{CheckpointID: "c"})
			return err
		}, true},
		"decide": {broken, func(s *client.Session) error {
			_, err := s.Decide(t.Context(), "a", client.Decision{Approved: true})
			return err
		}, true},
		"submit": {broken, func(s *client.Session) error {
			_, err := s.SubmitResult(t.Context(), "c", client.ToolResult{Error: "no"})
			return err
		}, true},
		"claim":                    {broken, func(s *client.Session) error { _, err := s.Claim(t.Context(), client.ClaimOptions{}); return err }, true},
		"claim, answered by 503":   {&status{503, `{"error":"x","code":"draining"}`}, func(s *client.Session) error { _, err := s.Claim(t.Context(), client.ClaimOptions{}); return err }, true},
		"claim, a store's failure": {&status{503, `{"error":"x","code":"unavailable"}`}, func(s *client.Session) error { _, err := s.Claim(t.Context(), client.ClaimOptions{}); return err }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var bodies []string
			c := over(t, func(r *http.Request) (*http.Response, error) {
				data := []byte{}
				if r.Body != nil {
					data, _ = io.ReadAll(r.Body)
				}
				bodies = append(bodies, r.URL.RawQuery+string(data))
				if len(bodies) > 1 {
					return answer(r, 200, strings.NewReader(`{}`)), nil
				}
				if s, ok := tt.first.(*status); ok {
					return answer(r, s.code, strings.NewReader(s.body)), nil
				}
				return nil, tt.first
			}, client.Options{Retry: client.Retry{Jitter: func(int64) int64 { return 0 }}})
			err := tt.do(c.Session("s"))
			if tt.again && (err != nil || len(bodies) != 2 || bodies[0] != bodies[1]) {
				t.Errorf("want a repeat of the same: %v, %q", err, bodies)
			}
			if !tt.again && (!errors.Is(err, client.ErrUnknownOutcome) || len(bodies) != 1) {
				t.Errorf("want no repeat: %v, %q", err, bodies)
			}
		})
	}
}

type status struct {
	code int
	body string
}

func (s *status) Error() string { return s.body }

// Errors have the server's code and hint, and match its sentinels. What is no server of
// this kind is said so.
func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		status     int
		body, code string
		is         error
	}{
		{409, `{"error":"spool: a run is active in this session","code":"busy","hint":"h","runId":"r","attach":"./s/stream"}`, "busy", spool.ErrBusy},
		{404, `{"error":"spool: there is no such session","code":"not_found"}`, "not_found", spool.ErrNotFound},
		{404, `<html>404`, "http_404", nil},
		{200, `<html>`, "malformed_json", nil},
		{500, `{"error":5}`, "http_500", nil},
	} {
		c := over(t, func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Accept") != "application/json" {
				t.Errorf("Accept is %q", r.Header.Get("Accept"))
			}
			return answer(r, tt.status, strings.NewReader(tt.body)), nil
		}, client.Options{})
		_, err := c.Session("s").Resume(t.Context(), client.ResumeOptions{})
		var e *client.Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Status != tt.status || chunk.CodeOf(err) != tt.code || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%d %s: %#v", tt.status, tt.body, err)
			continue
		}
		if tt.code == "busy" && (e.Hint != "h" || e.RunID != "r" || e.Attach != "https://spool.example/x/api/chat/s/s/stream" || e.Error() != "spool: a run is active in this session") {
			t.Errorf("%+v", e)
		}
	}
	for _, address := range []string{"", "spool.example", "ftp://x", "http://", "http://x?y=1", "http://x/#y", "http://%zz"} {
		if _, err := client.New(address, nil); !errors.Is(err, client.ErrAddress) {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := client.New("http://x", &client.Options{HTTP: &http.Client{Timeout: time.Second}}); err == nil {
		t.Error("a client whose Timeout ends streams is taken")
	}
	// An address with a password is in no error.
	c, err := client.New("http://me:secret@127.0.0.1:1/", &client.Options{Retry: client.Retry{Max: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Info(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// An error answer that breaks off says nothing for sure: the request is repeated.
func TestErrorsThatBreakOff(t *testing.T) {
	sent := 0
	c := over(t, func(r *http.Request) (*http.Response, error) {
		const body = `{"error":"spool: a run is active in this session","code":"busy"}`
		if sent++; sent == 1 {
			return answer(r, 409, io.MultiReader(strings.NewReader(body[:20]), iotest.ErrReader(io.ErrUnexpectedEOF))), nil
		}
		return answer(r, 409, strings.NewReader(body)), nil
	}, client.Options{Retry: client.Retry{Jitter: func(int64) int64 { return 0 }}})
	if _, err := c.Session("s").Send(t.Context(), client.Message{Text: "hi"}); !errors.Is(err, spool.ErrBusy) || sent != 2 {
		t.Errorf("sent %d times: %v", sent, err)
	}
}

// Headers and Prepare are for each request, also for repeats. Prepare's error ends it.
func TestPrepare(t *testing.T) {
	n := 0
	var tokens []string
	o := client.Options{Header: http.Header{"X-Tenant": {"t"}}, Retry: client.Retry{Jitter: func(int64) int64 { return 0 }}, Prepare: func(r *http.Request) error {
		n++
		r.Header.Set("Authorization", fmt.Sprint("Bearer ", n))
		return nil
	}}
	f := trip(func(r *http.Request) (*http.Response, error) {
		tokens = append(tokens, r.Header.Get("Authorization")+r.Header.Get("X-Tenant"))
		if len(tokens)%2 == 1 {
			return nil, errRefused
		}
		return answer(r, 200, strings.NewReader("data: {\"type\":\"end\"}\n\n")), nil
	})
	if _, err := over(t, f, o).Session("s").Log(t.Context(), client.LogOptions{}).Next(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if _, err := over(t, f, o).Session("s").Send(t.Context(), client.Message{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"Bearer 1t", "Bearer 2t", "Bearer 3t", "Bearer 4t"}; !slices.Equal(tokens, want) {
		t.Errorf("%q", tokens)
	}
	why := errors.New("no token")
	o.Prepare = func(*http.Request) error { return why }
	c := over(t, f, o)
	if _, err := c.Info(t.Context()); !errors.Is(err, why) {
		t.Error(err)
	}
	if _, err := c.Session("s").Attach(t.Context(), client.AttachOptions{Wire: aisdk.Wire(aisdk.Options{})}).Next(); !errors.Is(err, why) {
		t.Error(err)
	}
	if len(tokens) != 4 {
		t.Errorf("%d requests", len(tokens))
	}
}

// Frames without an id wait for the one that carries their record's: a cut between them
// doubles nothing.
func TestHalfARecord(t *testing.T) {
	n := 0
	c := over(t, func(r *http.Request) (*http.Response, error) {
		n++
		body := "data: a\n\ndata: b\n\n"
		switch n {
		case 4:
			return nil, io.EOF // closed before its answer
		case 2:
			body = "data: a\n\ndata: b\n\nid: 1\ndata: c\n\ndata: d\n\n"
		case 3:
			body = "data: d\n\nid: 2\ndata: e\n\n"
		case 5:
			body = "data: [DONE]\n\n"
		}
		return answer(r, 200, strings.NewReader(body)), nil
	}, client.Options{Retry: client.Retry{Jitter: func(int64) int64 { return 0 }}})
	got := events(t, c.Session("s").Attach(t.Context(), client.AttachOptions{Wire: aisdk.Wire(aisdk.Options{})}))
	if s := strings.Join(got, "|"); s != "  a|  b|1  c|  d|2  e|  [DONE]" || n != 5 {
		t.Errorf("%q after %d connections", s, n)
	}
}

// What the server answers fits the client's types without a member left over.
func TestAnswersFit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	k := newKit(t, nil, true)
	c := k.client(nil)
	s := c.Session("s")
	var mu sync.Mutex
	seen := map[string]bool{}
	k.through(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			for name, values := range rec.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(rec.Code)
			_, _ = w.Write(rec.Body.Bytes())
			route := r.Method + " " + r.URL.Path
			var into any
			switch {
			case rec.Code != http.StatusOK:
				return
			case strings.HasSuffix(route, "/snapshot"):
				into = new(client.Snapshot)
			case strings.HasSuffix(route, "/messages"):
				into = new(client.MessagesPage)
			case strings.HasSuffix(route, "/checkpoints"):
				into = new(client.CheckpointsPage)
			case strings.HasSuffix(route, "/info") && strings.Contains(route, "/stream/"):
				into = new(client.LogInfo)
			case strings.HasSuffix(route, "/sessions"):
				into = new(client.SessionsPage)
			case strings.HasSuffix(route, "/resume"):
				into = new(client.Branched)
			case strings.HasSuffix(route, "/stop"), strings.Contains(route, "/approvals/"):
				into = new(client.Settled)
			case r.URL.Query().Has("claim"):
				into = new(client.Claim)
			default:
				return
			}
			d := json.NewDecoder(rec.Body)
			d.DisallowUnknownFields()
			if err := d.Decode(into); err != nil {
				t.Errorf("%s: %v", route, err)
			}
			mu.Lock()
			seen[fmt.Sprintf("%T", into)] = true
			mu.Unlock()
		})
	})
	if _, err := s.Send(ctx, client.Message{ID: "u1", Text: "ask", Metadata: json.RawMessage(`{"a":1}`)}); err != nil {
		t.Fatal(err)
	}
	end, list := k.ended(s)
	if end.Status != chunk.StatusPaused || end.Reason != "awaiting_approval" {
		t.Fatalf("%+v", end)
	}
	i := slices.IndexFunc(list, func(e client.Entry) bool { return e.Type == chunk.TypeToolApprovalRequest })
	approval := list[i].Chunk.(*chunk.ToolApprovalRequest).ApprovalID
	if snap, err := s.Snapshot(ctx, client.SnapshotOptions{}); err != nil || len(snap.Pending()) != 1 || snap.Pending()[0].ApprovalID != approval || snap.Pending()[0].Tool != "book" {
		t.Errorf("%+v, %v", snap.Pending(), err)
	}
	for _, approved := range []bool{true, true, false} {
		_, err := s.Decide(ctx, approval, client.Decision{Approved: approved, Reason: "why not"})
		if ok := err == nil; ok != approved || !ok && chunk.CodeOf(err) != "already_answered" {
			t.Fatal(err)
		}
	}
	end, list = k.ended(s)
	if end.Status != chunk.StatusEnded || !strings.HasSuffix(textOf(list), "this is all there is to say.") {
		t.Errorf("%+v %s", end, textOf(list))
	}
	if _, err := s.Send(ctx, client.Message{ID: "u2", Text: "talk", WhenBusy: chunk.BusyQueue}); err != nil {
		t.Fatal(err)
	}
	k.ended(s)
	cps, err := s.Checkpoints(ctx, client.PageOptions{Newest: true, Limit: 1})
	if err != nil || len(cps.Items) != 1 || !cps.HasMore {
		t.Fatalf("%+v, %v", cps, err)
	}
	b, err := s.Branch(ctx, client.BranchOptions{CheckpointID: cps.Items[0].ID})
	if err != nil || b.Origin == nil || b.Session == "" {
		t.Fatalf("%+v, %v", b, err)
	}
	if _, err := s.Snapshot(ctx, client.SnapshotOptions{Checkpoint: cps.Items[0].ID}); err != nil {
		t.Error(err)
	}
	page, err := s.Messages(ctx, client.PageOptions{Limit: 1, Offset: 1})
	if err != nil || len(page.Messages) != 1 || page.Messages[0].Role != "assistant" {
		t.Errorf("%+v, %v", page, err)
	}
	if i, err := s.LogInfo(ctx); err != nil || i.Latest < 10 {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := s.Stop(ctx, client.StopOptions{RunID: "r"}); err != nil {
		t.Error(err)
	}
	if _, err := c.Session("p").Claim(ctx, client.ClaimOptions{Agent: "forecaster"}); err != nil {
		t.Error(err)
	}
	var ids []string
	for i, err := range c.AllSessions(ctx, client.SessionsOptions{Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, i.Session)
	}
	if len(ids) != 3 || !slices.Contains(ids, "s") {
		t.Errorf("sessions %v", ids)
	}
	if err := s.Delete(ctx); err != nil {
		t.Error(err)
	}
	if _, err := s.Snapshot(ctx, client.SnapshotOptions{}); !errors.Is(err, spool.ErrNotFound) {
		t.Error(err)
	}
	if len(seen) != 8 {
		t.Errorf("looked at %v", seen)
	}
}

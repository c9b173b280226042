package server_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/server"
)

// filled is a body of a size with as many copies of an element in an array as it holds.
func filled(size int, before, element, after string) string {
	n := (size-len(before)-len(after)+1)/(len(element)+1) - 1
	return before + strings.Repeat(element+",", n) + element + after
}

// take serves a request without a network, and returns the answer and the bytes that it
// allocated.
func take(k *kit, method, path string, body io.Reader, header ...string) (*httptest.ResponseRecorder, uint64) {
	k.Helper()
	req := httptest.NewRequestWithContext(k.Context(), method, path, body)
	req.Header.Set("Accept", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	var before, after runtime.MemStats
	w := httptest.NewRecorder()
	runtime.ReadMemStats(&before)
	k.srv.ServeHTTP(w, req)
	runtime.ReadMemStats(&after)
	return w, after.TotalAlloc - before.TotalAlloc
}

// What a body says is bounded while it is decoded: lists of nothing take no more memory
// than the body itself, on each route that reads one. The test counts what is allocated,
// so nothing runs beside it.
func TestBodiesAreBounded(t *testing.T) {
	k := newKit(t, nil)
	const chatSize, otherSize = 16 << 20, 1 << 20
	// Padding makes fewer elements than a body may have values.
	pad := `"` + strings.Repeat("x", 60) + `"`
	cases := []struct {
		name, path, body string
		size             int
	}{
		{"parts", "/api/chat/s", filled(chatSize, `{"message":{"role":"user","parts":[`, `{}`, `]}}`), chatSize},
		{"long parts", "/api/chat/s", filled(chatSize, `{"message":{"role":"user","parts":[`, `{"type":`+pad+`}`, `]}}`), chatSize},
		{"parts of the last message", "/api/chat/s", filled(chatSize, `{"messages":[{"role":"user","parts":[`, `{"a":`+pad+`}`, `]}]}`), chatSize},
		{"content", "/api/chat/s", filled(chatSize, `{"message":{"role":"user","content":[`, `{"a":`+pad+`}`, `]}}`), chatSize},
		{"history", "/api/chat/s", filled(chatSize, `{"message":"hi","messages":[`, `{"role":"user","x":`+pad+`}`, `]}`), chatSize},
		{"parts of a history", "/api/chat/s", filled(chatSize, `{"message":"hi","messages":[`,
			`{"role":"user","x":`+pad+`,"parts":[`+strings.Repeat(`{"type":"text"},`, 20)+`{}]}`, `]}`), chatSize},
		{"state", "/api/chat/s", filled(chatSize, `{"message":"hi","state":[`, `[]`, `]}`), chatSize},
		{"unknown", "/api/chat/s", filled(chatSize, `{"message":"hi","x":[`, `0`, `]}`), chatSize},
		{"session of the body", "/api/chat", filled(chatSize, `{"message":{"role":"user","parts":[`, `{}`, `]}}`), chatSize},
		{"merlin", "/merlin/v2/s", filled(chatSize, `{"message":{"role":"user","parts":[`, `{"a":`+pad+`}`, `]}}`), chatSize},
		{"resume", "/api/chat/s/resume", filled(chatSize, `{"mode":"with_message","message":{"role":"user","parts":[`, `{"a":`+pad+`}`, `]}}`), chatSize},
		{"branch", "/api/chat/s/resume", filled(chatSize, `{"mode":"branch","checkpointId":"c","message":{"role":"user","parts":[`, `{"a":`+pad+`}`, `]}}`), chatSize},
		{"producer, array", "/stream/s", filled(otherSize, `[`, `{"type":"text_delta","delta":""}`, `]`), otherSize},
		{"producer, lines", "/stream/s", strings.Repeat(`{"type":"text_delta","delta":""}`+"\n", otherSize/33), otherSize},
		{"producer, patches", "/stream/s", filled(otherSize, `{"type":"state_patch","patches":[`, `{}`, `]}`), otherSize},
		{"result", "/api/chat/s/tools/c", filled(otherSize, `{"output":[`, `{}`, `]}`), otherSize},
		{"decision", "/api/chat/s/approvals/a", filled(otherSize, `{"approved":[`, `{}`, `]}`), otherSize},
		{"stop", "/api/chat/s/stop", filled(otherSize, `{"x":[`, `0`, `]}`), otherSize},
		{"interrupt", "/api/chat/s/interrupt", filled(otherSize, `{"x":[`, `0`, `]}`), otherSize},
	}
	for i := range matrix.Points(t, len(cases), 8) {
		tt := cases[i]
		w, allocated := take(k, "POST", tt.path, strings.NewReader(tt.body), "Producer-Epoch", "1", "Producer-Seq", "0")
		if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), `"too_large"`) {
			t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
		}
		if limit := uint64(6 * tt.size); allocated > limit {
			t.Errorf("%s: a body of %d bytes allocated %d, more than %d", tt.name, len(tt.body), allocated, limit)
		}
	}
	w, _ := take(k, "POST", "/api/chat/s", strings.NewReader(`{"message":"hi","x":`+strings.Repeat("[", 300)+strings.Repeat("]", 300)+`}`))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"malformed_json"`) {
		t.Errorf("nested: %d %s", w.Code, w.Body)
	}
}

// A client that sends a body of the largest size in many parts is served, if it is one.
func TestLargestBody(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	text := strings.Repeat("word ", 300)
	body := filled(16<<20, `{"messages":[{"id":"u0","role":"user","parts":[{"type":"text","text":"hi"}]},`, `{"id":"a","role":"assistant","parts":[{"type":"text","text":"`+text+`"}]}`,
		`,{"id":"u1","role":"user","parts":[`+strings.Repeat(`{"type":"text","text":"x"},`, 5000)+`{"type":"text","text":"end"}]}]}`)
	e := k.stream("POST", "/api/chat/s", body)
	o := k.own("s")
	o.start("u1")
	o.finish()
	e.all()
	if m := k.snapshot("s").Messages[0]; len(m.Parts) != 5001 {
		t.Errorf("%d parts", len(m.Parts))
	}
}

// slowBody is a body whose rest does not come until it is released.
type slowBody struct {
	first   io.Reader
	reached chan struct{} // closed when the first part was read
	rest    chan struct{} // closed to end the body
}

func newSlowBody(first string) *slowBody {
	return &slowBody{strings.NewReader(first), make(chan struct{}), make(chan struct{})}
}

func (b *slowBody) Read(p []byte) (int, error) {
	if n, err := b.first.Read(p); err == nil {
		return n, nil
	}
	close(b.reached)
	<-b.rest
	return 0, io.EOF
}

// The bodies of all requests have a budget. Who does not fit is told to come back; large
// bodies do not keep out small ones; a body counts until its message is stored, and not
// while the answer is streamed.
func TestBodyMemory(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{BodyMemory: 2 << 20})
	large := `{"message":"` + strings.Repeat("x", 600<<10) + `"}`
	slow := newSlowBody(`{"message":"` + strings.Repeat("x", 600<<10))
	done := make(chan *httptest.ResponseRecorder)
	go func() {
		w := httptest.NewRecorder()
		k.srv.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/api/chat/slow", slow))
		done <- w
	}()
	<-slow.reached
	for _, path := range []string{"/api/chat/s", "/merlin/v1/s", "/api/chat/s/resume"} {
		res := k.do("POST", path, large)
		data, _ := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" ||
			!bytes.Contains(data, []byte(`"too_many_bodies"`)) || !bytes.Contains(data, []byte(`"hint"`)) {
			t.Errorf("%s: %s %v %s", path, res.Status, res.Header, data)
		}
	}
	k.status(http.StatusNotFound, "GET", "/api/chat/s/snapshot", "")
	small := k.say("small", "u1", strings.Repeat("x", 30<<10))
	close(slow.rest)
	if w := <-done; w.Code != http.StatusBadRequest {
		t.Errorf("half a body: %d %s", w.Code, w.Body)
	}
	var open []*events
	for _, session := range []string{"a", "b", "c", "d"} { // together more than the budget
		open = append(open, k.stream("POST", "/api/chat/"+session, large))
	}
	for _, e := range append(open, small) {
		_ = e.res.Body.Close()
	}
	if n := k.srv.BodyBytes(); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
}

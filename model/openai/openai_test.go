package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/openai"
)

const key = "sk-test-0123456789abcdef"

var question = &model.Request{Messages: []chunk.Message{
	{Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "Hi"}}}}}

func serve(t *testing.T, h http.HandlerFunc) *openai.Model {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return openai.New(&openai.Options{BaseURL: s.URL + "/v1/", APIKey: key, Model: "m"})
}

// What comes over HTTP says where it came from.
var here = &openai.IngestOptions{From: "127.0.0.1"}

func ingestHere(src io.Reader) iter.Seq2[model.Part, error] { return openai.Ingest(src, here) }

func ingestResponsesHere(src io.Reader) iter.Seq2[model.Part, error] {
	return openai.IngestResponses(src, here)
}

func TestStreamCorpusOverHTTP(t *testing.T) {
	modeltest.OverHTTP(t, corpus, ingestHere, func(url string) model.Model {
		return openai.New(&openai.Options{BaseURL: url, Model: "m"})
	})
}

func TestConnectionLost(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Half\"}}]}\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	a, bad := modeltest.Fold(modeltest.Collect(m.Stream(t.Context(), question)))
	if bad != nil || len(a.Blocks) != 1 || a.Blocks[0].Text != "Half" || a.Error == nil || a.Error.Code != model.CodeTruncated || !a.Error.Retryable {
		t.Errorf("%+v, %v", a, bad)
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		status     int
		header     string
		value      string
		body       string
		code       string
		retryable  bool
		retryAfter time.Duration
		says       string
	}{
		{400, "", "", `{"error":{"message":"bad tool","type":"invalid_request_error"}}`, model.CodeInvalidRequest, false, 0, "bad tool"},
		{401, "", "", `{"error":{"message":"Incorrect API key provided: ` + key + `.","code":"invalid_api_key"}}`, model.CodeAuthentication, false, 0, "Incorrect API key"},
		{403, "", "", `{"detail":"no"}`, model.CodeAuthentication, false, 0, "no"},
		{404, "", "", `{"error":{"message":"no such model","code":"model_not_found"}}`, model.CodeInvalidRequest, false, 0, "no such model"},
		{402, "", "", `{"error":{"message":"Insufficient credits","code":402}}`, model.CodeRateLimited, false, 0, "credits"},
		{408, "", "", ``, model.CodeTimeout, true, 0, "408 Request Timeout"},
		{413, "", "", `too large`, model.CodeInvalidRequest, false, 0, "too large"},
		{429, "Retry-After", "7", `{"error":{"message":"slow down","type":"tokens"}}`, model.CodeRateLimited, true, 7 * time.Second, "slow down"},
		{429, "Retry-After-Ms", "250", `{}`, model.CodeRateLimited, true, 250 * time.Millisecond, "429 Too Many Requests"},
		{429, "Retry-After", "-1", `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`, model.CodeRateLimited, false, 0, "quota"},
		{500, "", "", `{"error":{"message":"oops","type":"server_error"}}`, model.CodeUnavailable, true, 0, "oops"},
		{502, "", "", `<html><body>Bad Gateway</body></html>`, model.CodeUnavailable, true, 0, "502 Bad Gateway"},
		{503, "Retry-After", "Sat, 21 Nov 2026 10:00:30 GMT", ``, model.CodeUnavailable, true, 30 * time.Second, "503"},
		{529, "Retry-After", "1.5", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.CodeOverloaded, true, 1500 * time.Millisecond, "Overloaded"},
	} {
		m := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", "Sat, 21 Nov 2026 10:00:00 GMT")
			if tt.header != "" {
				w.Header().Set(tt.header, tt.value)
			}
			w.WriteHeader(tt.status)
			io.WriteString(w, tt.body)
		})
		parts, err := modeltest.Collect(m.Stream(t.Context(), question))
		e, ok := errors.AsType[*model.Error](err)
		if !ok || len(parts) > 0 {
			t.Errorf("%d: %v, %v", tt.status, parts, err)
			continue
		}
		if e.Code != tt.code || e.Retryable != tt.retryable || e.RetryAfter != tt.retryAfter || e.StatusCode != tt.status || !strings.Contains(e.Message, tt.says) {
			t.Errorf("%d %s: %+v", tt.status, tt.body, e)
		}
		if strings.Contains(err.Error(), key) {
			t.Errorf("%d: the key is in %q", tt.status, err)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	secret := "hunter2hunter2"
	m := openai.New(&openai.Options{Model: "m", BaseURL: strings.Replace(s.URL, "//", "//user:"+secret+"@", 1) + "?key=" + secret, APIKey: key})
	_, err := modeltest.Collect(m.Stream(t.Context(), question))
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != model.CodeUnavailable || !e.Retryable {
		t.Fatalf("%v", err)
	}
	for err := error(e); err != nil; err = errors.Unwrap(err) {
		if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), key) {
			t.Errorf("a secret is in %q", err)
		}
	}
	_, err = modeltest.Collect(openai.New(&openai.Options{Model: "m", BaseURL: "http://[::" + secret}).Stream(t.Context(), question))
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeInvalidRequest || strings.Contains(err.Error(), secret) {
		t.Errorf("a bad address: %v", err)
	}
}

// A provider may echo what it was sent, in any shape of key.
func TestKeyIsRedacted(t *testing.T) {
	const odd = "0123456789"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `data: {"error":"bad key `+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+` and `+key+`"}`+"\n\n")
	}))
	defer s.Close()
	_, err := modeltest.Collect(openai.New(&openai.Options{Model: "m", BaseURL: s.URL, APIKey: odd}).Stream(t.Context(), question))
	if err == nil || strings.Contains(err.Error(), odd) || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "bad key [redacted] and [redacted]") {
		t.Errorf("%v", err)
	}
}

func TestModels(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer "+key {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, `{"object":"list","data":[{"id":"big"},{"id":"small"}]}`)
	})
	ids, err := m.Models(t.Context())
	if err != nil || !slices.Equal(ids, []string{"big", "small"}) {
		t.Errorf("%v, %v", ids, err)
	}
	m = serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `<html>`) })
	if _, err := m.Models(t.Context()); err == nil {
		t.Error("a web page passes for a model list")
	}
}

func TestDefaultModel(t *testing.T) {
	for _, tt := range []struct{ list, want string }{
		{`{"data":[{"id":"text-embedding-9"},{"id":"chatty"},{"id":"other"}]}`, "chatty"},
		{`{"data":[{"id":"tts-1"},{"id":"whisper"}]}`, "tts-1"},
		{`{"models":[{"name":"local"}]}`, "local"},
		{`{"data":[]}`, ""},
		{``, ""},
	} {
		asked, got := 0, ""
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/models" {
				asked++
				io.WriteString(w, tt.list)
				return
			}
			var body struct{ Model string }
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			got = body.Model
			io.WriteString(w, "data: [DONE]\n\n")
		}))
		m := openai.New(&openai.Options{BaseURL: s.URL})
		for range 2 {
			_, err := modeltest.Collect(m.Stream(t.Context(), question))
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%s: asked for %q, %v; want %q", tt.list, got, err, tt.want)
			}
		}
		if tt.want != "" && asked != 1 {
			t.Errorf("%s: listed %d times", tt.list, asked)
		}
		s.Close()
	}
}

// pipe is a transport whose answers the test writes.
type pipe struct{ body io.ReadCloser }

func (p pipe) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.body == nil {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: 200, Body: p.body, Request: r}, nil
}

func TestSilence(t *testing.T) {
	const text = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	for _, tt := range []struct {
		name  string
		write func(w io.Writer)
		after time.Duration
		says  string
		parts int
	}{
		{"no answer", nil, time.Minute, "sent nothing for 1m0s", 0},
		{"nothing", func(io.Writer) {}, time.Minute, "sent nothing for 1m0s", 0},
		{"then nothing", func(w io.Writer) {
			time.Sleep(50 * time.Second)
			io.WriteString(w, text)
		}, 110 * time.Second, "sent nothing for 1m0s", 1},
		{"only comments", func(w io.Writer) {
			for range 30 {
				time.Sleep(30 * time.Second)
				io.WriteString(w, ": waiting\n\n")
			}
		}, 5 * time.Minute, "made no progress for 5m0s", 0},
		{"slow text", func(w io.Writer) {
			for range 30 {
				time.Sleep(50 * time.Second)
				io.WriteString(w, text)
			}
		}, 30*50*time.Second + time.Minute, "sent nothing", 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			var body io.ReadCloser
			done := make(chan struct{})
			if tt.write != nil {
				r, w := io.Pipe()
				body = r
				go func() {
					defer close(done)
					tt.write(w)
				}()
			}
			m := openai.New(&openai.Options{Model: "m", HTTPClient: &http.Client{Transport: pipe{body}}, IdleTimeout: time.Minute, ProgressTimeout: 5 * time.Minute})
			start := time.Now()
			parts, err := modeltest.Collect(m.Stream(t.Context(), question))
			e, ok := errors.AsType[*model.Error](err)
			if !ok || e.Code != model.CodeTimeout || !e.Retryable || !strings.Contains(e.Message, tt.says) || len(parts) != tt.parts {
				t.Errorf("%s: %d parts, %v", tt.name, len(parts), err)
			}
			if d := time.Since(start); d != tt.after {
				t.Errorf("%s: after %v, not %v", tt.name, d, tt.after)
			}
			if body != nil {
				<-done
			}
		})
	}
}

// half is a model that says half an answer, and what is closed when its request
// has ended.
func half(t *testing.T) (m *openai.Model, gone chan struct{}) {
	gone = make(chan struct{})
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	}), gone
}

// Cancelling ends the provider's request at once, and is not the provider's fault.
func TestCancel(t *testing.T) {
	m, gone := half(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range m.Stream(ctx, question) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("%v", last)
	}
	<-gone
}

func TestLeavingEndsTheRequest(t *testing.T) {
	m, gone := half(t)
	for range m.Stream(t.Context(), question) {
		break
	}
	<-gone
}

func TestRequestOnTheWire(t *testing.T) {
	var body map[string]any
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" || r.Method != "POST" || r.Header.Get("Authorization") != "Bearer "+key || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		io.WriteString(w, "data: [DONE]\n\n")
	})
	if _, err := modeltest.Collect(m.Stream(t.Context(), question)); err != nil {
		t.Error(err)
	}
	want := map[string]any{
		"model":          "m",
		"stream":         true,
		"stream_options": map[string]any{"include_usage": true},
		"messages":       []any{map[string]any{"role": "user", "content": "Hi"}},
	}
	if !reflect.DeepEqual(body, want) {
		t.Errorf("%v", body)
	}
}

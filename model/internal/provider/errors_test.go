package provider

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spool-run/spool/model"
)

func TestParseError(t *testing.T) {
	for body, want := range map[string]struct {
		status    int
		code      string
		retryable bool
	}{
		`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`:                         {400, model.CodeContextLength, false},
		`{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","code":null}}`:                           {400, model.CodeContextLength, false},
		`{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}`:                                                 {0, model.CodeContextLength, false},
		`[{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8)."}}]`:                                 {400, model.CodeContextLength, false},
		`{"error":{"type":"authentication_error","message":"invalid x-api-key"}}`:                                                                          {401, model.CodeAuthentication, false},
		`{"error":{"type":"permission_error","message":"no"}}`:                                                                                             {0, model.CodeAuthentication, false},
		`{"error":{"type":"rate_limit_error","message":"slow"}}`:                                                                                           {0, model.CodeRateLimited, true},
		`{"error":{"code":"insufficient_quota","message":"pay"}}`:                                                                                          {429, model.CodeRateLimited, false},
		`{"error":{"type":"overloaded_error","message":"Overloaded"}}`:                                                                                     {0, model.CodeOverloaded, true},
		`{"error":{"type":"server_error","message":"oops"}}`:                                                                                               {0, model.CodeUnavailable, true},
		`{"error":{"type":"timeout_error","message":"late"}}`:                                                                                              {0, model.CodeTimeout, true},
		`{"error":{"code":"content_filter","message":"no"}}`:                                                                                               {400, model.CodeContentFilter, false},
		`{"error":{"type":"invalid_request_error","message":"bad tool"}}`:                                                                                  {400, model.CodeInvalidRequest, false},
		`{"type":"error","error":"{\"message\":\"Rate limit\",\"code\":429}"}`:                                                                             {0, model.CodeRateLimited, true},
		`{"error":{"error":{"message":"boom","code":500}}}`:                                                                                                {0, model.CodeUnavailable, true},
		`{"status_code":429,"error":"slow"}`:                                                                                                               {0, model.CodeRateLimited, true},
		`{"error":{"type":"exceed_context_size_error","message":"no room"}}`:                                                                               {400, model.CodeContextLength, false},
		`{"error":{"message":"This model's maximum prompt length is 8 but the request contains 9 tokens.","code":"Client specified an invalid argument"}}`: {400, model.CodeContextLength, false},
		`{"error":{"message":"Your credit balance is too low to access the API","type":"invalid_request_error"}}`:                                          {400, model.CodeRateLimited, false},
		`{"error":"who knows"}`: {0, model.CodeUnknown, true},
		`<html>`:                {503, model.CodeUnavailable, true},
	} {
		e := ParseError(want.status, nil, []byte(body))
		if e.Code != want.code || e.Retryable != want.retryable || e.Message == "" {
			t.Errorf("%s: %+v", body, e)
		}
	}
}

func TestRetryDelayInTheBody(t *testing.T) {
	e := ParseError(429, nil, []byte(`[{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"x"},{"retryDelay":"34.5s"}]}}]`))
	if e.Code != model.CodeRateLimited || e.RetryAfter != 34500*time.Millisecond {
		t.Errorf("%+v", e)
	}
}

// A redirection does not carry a key to another host.
func TestRedirections(t *testing.T) {
	strange := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Errorf("%s %v", r.URL, r.Header) }))
	defer strange.Close()
	there := strange.URL + "/x"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			_, _ = io.WriteString(w, r.Header.Get("X-Api-Key"))
			return
		}
		http.Redirect(w, r, there, http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	c := &Client{BaseURL: s.URL, Header: http.Header{"X-Api-Key": {"k"}}, HTTP: s.Client()}
	c.Defaults("")
	ask := func() ([]byte, error) {
		return c.Bytes(t.Context(), Request{Method: http.MethodPost, Path: "/ask", Body: []byte("{}")})
	}
	_, err := ask()
	if e, ok := errors.AsType[*model.Error](err); !ok || e.StatusCode != http.StatusTemporaryRedirect || e.Retryable {
		t.Errorf("%v", err)
	}
	there = "/moved"
	if body, err := ask(); string(body) != "k" || err != nil {
		t.Errorf("%s, %v", body, err)
	}
}

func TestCleanTakesOutWhatTheClientWasGiven(t *testing.T) {
	c := &Client{Secret: "hunter2", BaseURL: "https://token-of-mine@host/v1?api_key=correct-horse&version=2024",
		Header: map[string][]string{"X-Team-Token": {"Basic battery-staple"}, "X-Trace": {"seen"}}}
	e := c.Clean(&model.Error{Message: "hunter2, token-of-mine, correct-horse, battery-staple, 2024, seen", Err: errText("asked with correct-horse")})
	if e.Message != "[redacted], [redacted], [redacted], [redacted], 2024, seen" || e.Err != nil {
		t.Errorf("%+v", e)
	}
	if e := c.Clean(&model.Error{Err: errText("refused")}); e.Err == nil {
		t.Error("a harmless cause was dropped")
	}
}

type errText string

func (e errText) Error() string { return string(e) }

package provider

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/model"
)

// ParseError classifies an error answer: an object, a string, or a page. Status
// is 0 for an error inside a stream.
func ParseError(status int, header http.Header, body []byte) *model.Error {
	return parse(status, header, "", body)
}

// ParseEvent classifies an event whose name says that it is an error.
func ParseEvent(name string, data []byte) *model.Error { return parse(0, nil, name, data) }

// said is what an error says, wherever a provider puts it.
type said struct {
	Message    string          `json:"message"`
	Msg        string          `json:"msg"`
	Type       string          `json:"type"`
	Code       json.RawMessage `json:"code"`
	Status     json.RawMessage `json:"status"`
	StatusCode json.RawMessage `json:"status_code"`
	Detail     json.RawMessage `json:"detail"`
	Details    []struct {
		RetryDelay string `json:"retryDelay"` // Google
	} `json:"details"`
	Metadata struct {
		Raw      json.RawMessage `json:"raw"`
		Provider string          `json:"provider_name"`
	} `json:"metadata"`
}

// read takes an error apart, the outer layers first. What an inner layer says replaces
// what an outer one said.
func (e *said) read(raw json.RawMessage, depth int) {
	raw = bytes.TrimSpace(raw)
	var list []json.RawMessage
	if len(raw) > 0 && raw[0] == '[' && Decode(raw, &list) == nil && len(list) > 0 {
		raw = list[0]
	}
	text, isText := Str(raw)
	inner := ErrorMember(raw)
	switch {
	case isText && strings.HasPrefix(strings.TrimSpace(text), "{") && json.Valid([]byte(text)) && depth < 4:
		e.read([]byte(text), depth+1)
	case isText:
		e.Message = text
	case Decode(raw, e) != nil:
		if !bytes.HasPrefix(raw, []byte("<")) {
			e.Message = string(raw)
		}
	case len(inner) != len(raw) && depth < 4:
		e.read(inner, depth+1)
	}
}

func parse(status int, header http.Header, kind string, body []byte) *model.Error {
	e := said{Type: kind}
	e.read(body, 0)
	for _, s := range []string{e.Msg, text(e.Detail)} {
		if e.Message == "" {
			e.Message = s
		}
	}
	code := text(e.Code)
	inner := status
	for _, s := range []string{code, text(e.Status), text(e.StatusCode)} {
		if n, err := strconv.Atoi(s); err == nil && inner == 0 && n >= 400 && n < 600 {
			inner = n
		}
	}
	failure := classify(inner, strings.ToLower(e.Type+" "+code+" "+text(e.Status)), strings.ToLower(e.Message))
	failure.StatusCode = status
	failure.RetryAfter = retryAfter(header)
	for _, d := range e.Details {
		if wait, err := time.ParseDuration(d.RetryDelay); err == nil && failure.RetryAfter == 0 {
			failure.RetryAfter = bounded(wait.Seconds())
		}
	}
	switch {
	case e.Message != "":
		failure.Message = Excerpt(e.Message)
	case status != 0:
		failure.Message = "the provider answered " + strings.TrimSpace(strconv.Itoa(status)+" "+http.StatusText(status))
	default:
		failure.Message = "the provider reported an error"
	}
	if more := text(e.Metadata.Raw); more != "" && !strings.Contains(e.Message, more) {
		failure.Message += " (" + strings.TrimSpace(e.Metadata.Provider+" ") + ": " + Excerpt(more) + ")"
	}
	failure.Message = redact.Text(failure.Message)
	return failure
}

// ErrorMember returns the error inside an object, or all of it.
func ErrorMember(body []byte) json.RawMessage {
	var o struct {
		Error json.RawMessage `json:"error"`
	}
	if Decode(body, &o) == nil && Said(o.Error) {
		return o.Error
	}
	return body
}

func text(raw json.RawMessage) string {
	if s, ok := Str(raw); ok {
		return s
	}
	if IsNull(raw) {
		return ""
	}
	return string(raw)
}

// classify decides the code and whether trying again may help, from a status and
// from the words in the error's type and code.
func classify(status int, kind, message string) *model.Error {
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(kind, w) {
				return true
			}
		}
		return false
	}
	e := &model.Error{Code: model.CodeUnknown}
	switch {
	case has("insufficient_quota", "billing"), status == http.StatusPaymentRequired, contains(message, "insufficient balance", "insufficient credit", "credit balance is too low"):
		e.Code = model.CodeRateLimited
	case has("content_filter", "content_policy", "moderation"):
		e.Code = model.CodeContentFilter
	case has("context_length", "context_window", "context_size", "prompt_too_long", "max_prompt_tokens"), tooLong(message):
		e.Code = model.CodeContextLength
	case has("authentication", "invalid_api_key", "permission", "unauthorized"), status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Code = model.CodeAuthentication
	case has("overloaded"), status == 529:
		e.Code, e.Retryable = model.CodeOverloaded, true
	case has("rate_limit", "too_many_requests", "resource_exhausted", "tokens_per", "throttl"), status == http.StatusTooManyRequests:
		e.Code, e.Retryable = model.CodeRateLimited, true
	case has("timeout", "timed_out"), status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		e.Code, e.Retryable = model.CodeTimeout, true
	case status == http.StatusConflict, status == http.StatusTooEarly:
		e.Code, e.Retryable = model.CodeUnavailable, true
	case status >= 500:
		e.Code, e.Retryable = model.CodeUnavailable, true
		if status == http.StatusNotImplemented {
			e.Code, e.Retryable = model.CodeInvalidRequest, false
		}
	case has("server_error", "internal", "unavailable", "api_error"):
		e.Code, e.Retryable = model.CodeUnavailable, true
	case has("invalid", "not_found", "bad_request"), status >= 300:
		e.Code = model.CodeInvalidRequest
	case strings.Contains(message, "overloaded"):
		e.Code, e.Retryable = model.CodeOverloaded, true
	case contains(message, "rate limit", "too many requests"):
		e.Code, e.Retryable = model.CodeRateLimited, true
	default:
		e.Retryable = true // nothing that is known says otherwise
	}
	return e
}

// tooLong knows the words of providers that have no code for a conversation that
// is longer than the model takes.
func tooLong(message string) bool {
	return contains(message, "maximum context length", "context window", "prompt is too long", "input is too long", "exceeds the context",
		"exceed context limit", "input token count", "available context size", "greater than the context length", "exceeds the maximum context",
		"maximum prompt length", "reduce the length of the messages", "exceeded model token limit", "too large for model")
}

func contains(s string, list ...string) bool {
	return slices.ContainsFunc(list, func(words string) bool { return strings.Contains(s, words) })
}

// retryAfter reads how long to wait. A date counts from the answer's own Date.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return bounded(ms / 1000)
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return bounded(s)
	}
	if at, err := http.ParseTime(v); err == nil {
		if now, err := http.ParseTime(h.Get("Date")); err == nil {
			return max(0, at.Sub(now))
		}
	}
	return 0
}

func bounded(seconds float64) time.Duration {
	if !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, 86400) * float64(time.Second))
}

// Excerpt returns the beginning of s, on one line.
func Excerpt(s string) string {
	const most = 400
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	if len(s) <= most {
		return s
	}
	end := most
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

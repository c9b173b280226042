package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool/chunk"
)

// The client's own errors.
var (
	ErrAddress        = &chunk.Error{Code: "invalid", Message: "the address is not one of a server", Hint: "want an address like http://127.0.0.1:8080"}
	ErrUnreachable    = &chunk.Error{Code: "unreachable", Message: "the server cannot be reached", Hint: "check the address, and that the server runs there"}
	ErrUnknownOutcome = &chunk.Error{Code: "unknown_outcome", Message: "the request got no answer, and the server may have taken it", Hint: "look at the session before you send it again"}
	ErrNoFollow       = &chunk.Error{Code: "unsupported", Message: "streams of this wire end with the turn", Hint: "follow a session on the native wire"}
)

// Error is an error answer of the server. It matches [chunk.Error] values of its code.
type Error struct {
	Status     int           // of HTTP
	Code       string        // stable; "http_502" and the like if the answer was not Spool's
	Message    string        // for people
	Hint       string        // what to do about it; may be ""
	RunID      string        // busy: the active run
	Attach     string        // busy: the URL at which to follow it
	RetryAfter time.Duration // 0 if the server named none
}

func (e *Error) Error() string { return "spool: " + e.Message }

// Unwrap returns the error as a [*chunk.Error], which has its code and its hint.
func (e *Error) Unwrap() error {
	return &chunk.Error{Code: e.Code, Message: e.Message, Hint: e.Hint}
}

// maxProblem bounds the body of an error answer.
const maxProblem = 64 << 10

// problem reads an error answer. An answer that breaks off is none: its code is unknown.
func problem(res *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err != nil {
		return err
	}
	var p struct {
		Error  string `json:"error"`
		Code   string `json:"code"`
		Hint   string `json:"hint"`
		RunID  string `json:"runId"`
		Attach string `json:"attach"`
	}
	e := &Error{Status: res.StatusCode}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(min(seconds, 3600)) * time.Second
	}
	if json.Unmarshal(data, &p) != nil || p.Code == "" {
		e.Code = "http_" + strconv.Itoa(res.StatusCode)
		e.Message = res.Request.URL.Host + " answered " + res.Status + " (is it a Spool server?)"
		return e
	}
	e.Code, e.Hint, e.RunID = p.Code, p.Hint, p.RunID
	e.Message = strings.TrimPrefix(p.Error, "spool: ")
	if p.Attach != "" {
		if u, err := res.Request.URL.Parse(p.Attach); err == nil {
			e.Attach = u.String()
		}
	}
	return e
}

// temporary reports whether the same request may succeed soon: the server, or a proxy
// before it, could not take it now.
func temporary(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return true // no answer, or half of one
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// untaken reports whether the server certainly has not acted on the request.
func untaken(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		switch e.Code {
		case "draining", "too_many_readers", "too_many_bodies", "body_timeout":
			return true
		}
		return e.Status == http.StatusTooManyRequests
	}
	return isDial(err)
}

package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spool-run/spool/chunk"
)

// maxAnswer bounds a JSON answer.
const maxAnswer = 256 << 20

var (
	errSlow = errors.New("no answer in time")
	errIdle = errors.New("the connection was silent for too long")
)

// request is one request, which may be sent several times.
type request struct {
	method  string
	path    string // relative to the base
	query   url.Values
	header  http.Header
	body    []byte
	session string // for errors
	// once: the server would not know a repeat. It is repeated only while it was
	// certainly not taken.
	once bool
}

// call sends a request until it has an answer, and decodes it into v, which may be nil.
func (c *Client) call(ctx context.Context, r request, v any) error {
	for failures := 1; ; failures++ {
		err := c.attempt(ctx, r, v)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !temporary(err) || errors.As(err, new(*prepareError)):
			return err
		case r.once && !untaken(err):
			return ErrUnknownOutcome.With(r.session, err)
		}
		if err := c.o.Retry.pause(ctx, r.session, failures, err); err != nil {
			return err
		}
	}
}

// attempt sends a request once.
func (c *Client) attempt(ctx context.Context, r request, v any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.Timeout, errSlow)
	defer cancel()
	r.header = with(r.header, "Accept", "application/json")
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if v == nil || res.StatusCode == http.StatusNoContent {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return caused(ctx, err)
	}
	if len(data) > maxAnswer {
		return &Error{Status: res.StatusCode, Code: chunk.ErrTooLarge.Code, Message: fmt.Sprintf("the answer is larger than %d bytes", maxAnswer)}
	}
	if raw, ok := v.(*[]byte); ok {
		*raw = data
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return &Error{Status: res.StatusCode, Code: "malformed_json", Message: "the answer of " + res.Request.URL.Host + " is not the JSON of a Spool server"}
	}
	return nil
}

// prepareError is an error of Options.Prepare.
type prepareError struct{ err error }

func (e *prepareError) Error() string { return e.err.Error() }
func (e *prepareError) Unwrap() error { return e.err }

// send sends a request once and returns the answer, unless it is an error.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	u := *c.base
	u.RawPath = c.base.EscapedPath() + r.path
	var err error
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return nil, err
	}
	u.RawQuery = r.query.Encode()
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.o.Header)
	maps.Copy(req.Header, r.header)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.o.Prepare != nil {
		if err := c.o.Prepare(req); err != nil {
			return nil, &prepareError{err}
		}
	}
	res, err := c.o.HTTP.Do(req)
	if err != nil {
		return nil, caused(ctx, unaddressed(err))
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		return nil, caused(ctx, problem(res))
	}
	return res, nil
}

// caused returns why a context ended, if it did, or else the error.
func caused(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// unaddressed takes the address out of a transport's error: it may hold credentials. A
// connection that was closed before its answer is no end of anything.
func unaddressed(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func with(h http.Header, name, value string) http.Header {
	h = maps.Clone(h)
	if h == nil {
		h = http.Header{}
	}
	h.Set(name, value)
	return h
}

// get sends a GET, which can always be repeated.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	v := new(T)
	if err := c.call(ctx, request{method: http.MethodGet, path: path, query: query}, v); err != nil {
		return nil, err
	}
	return v, nil
}

// post sends a command.
func post[T any](ctx context.Context, s *Session, path string, body any, once bool) (*T, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := s.c.call(ctx, request{method: http.MethodPost, path: path, body: data, session: s.id, once: once}, v); err != nil {
		return nil, err
	}
	return v, nil
}

// alarm cancels a request when nothing has happened for some time.
type alarm struct {
	timer *time.Timer
	after time.Duration
}

func newAlarm(after time.Duration, cause error, cancel context.CancelCauseFunc) *alarm {
	a := &alarm{after: after}
	if after > 0 {
		a.timer = time.AfterFunc(after, func() { cancel(cause) })
	}
	return a
}

func (a *alarm) reset() {
	if a.timer != nil {
		a.timer.Reset(a.after)
	}
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// pattern fills a session's id into a wire's route.
func pattern(route, session string) string {
	return strings.TrimPrefix(strings.Replace(route, "{session}", url.PathEscape(session), 1), "/")
}

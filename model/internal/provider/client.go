// Package provider is what the clients of model providers share: HTTP with two
// idle limits, and the classification of what goes wrong.
package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/model"
)

// How long a provider may be silent, unless the options say otherwise.
const (
	DefaultIdleTimeout     = 5 * time.Minute
	DefaultProgressTimeout = 10 * time.Minute
)

// Client talks to one endpoint.
type Client struct {
	BaseURL  string
	Secret   string      // never appears in an error
	Header   http.Header // of every request
	HTTP     *http.Client
	Idle     time.Duration // without a byte; <= 0: no limit
	Progress time.Duration // without data; <= 0: no limit
}

// Defaults fills in what an options struct left at zero.
func (c *Client) Defaults(baseURL string) {
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	if c.BaseURL == "" {
		c.BaseURL = baseURL
	}
	client := http.Client{}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	if client.CheckRedirect == nil {
		client.CheckRedirect = sameHost
	}
	c.HTTP = &client
	if c.Idle == 0 {
		c.Idle = DefaultIdleTimeout
	}
	if c.Progress == 0 {
		c.Progress = DefaultProgressTimeout
	}
}

// sameHost follows redirections to where the first request went. The headers hold
// keys, of which net/http knows but some.
func sameHost(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) >= 10 || r.URL.Host != first.Host || first.Scheme == "https" && r.URL.Scheme != "https" {
		return http.ErrUseLastResponse
	}
	return nil
}

// Request is one call of an endpoint.
type Request struct {
	Method string
	Path   string // behind the base URL
	Query  url.Values
	Body   []byte // JSON; nil for none
}

// Ingest takes an answer's bytes apart. It calls onData for every event with data.
type Ingest func(src io.Reader, onData func()) iter.Seq2[model.Part, error]

// Stream makes a request and takes its answer apart. It never retries.
func (c *Client) Stream(ctx context.Context, r Request, ingest Ingest) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		w := newWatch(ctx, c.Idle, c.Progress)
		defer w.stop()
		resp, err := c.do(w.ctx, r)
		if err != nil {
			yield(nil, c.failed(ctx, w, err))
			return
		}
		defer resp.Body.Close()
		w.watch(resp.Body)
		for p, err := range ingest(w, w.data) {
			if err != nil {
				err = c.failed(ctx, w, err)
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// Prepare finds out a model's id and builds the body of a request to it. Its errors
// are for the caller.
func Prepare(ctx context.Context, id func(context.Context) (string, error), body func(id string) ([]byte, error)) ([]byte, error) {
	name, err := id(ctx)
	if err != nil {
		return nil, err
	}
	data, err := body(name)
	if err != nil {
		return nil, &model.Error{Code: model.CodeInvalidRequest, Message: "the request cannot be encoded", Err: err}
	}
	return data, nil
}

// Ask prepares a POST and makes it.
func (c *Client) Ask(ctx context.Context, path string, id func(context.Context) (string, error), body func(id string) ([]byte, error), ingest Ingest) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		data, err := Prepare(ctx, id, body)
		if err != nil {
			yield(nil, err)
			return
		}
		c.Stream(ctx, Request{Method: http.MethodPost, Path: path, Body: data}, ingest)(yield)
	}
}

// Read makes a request and gives fn the answer's bytes. onData is to be called for
// every event with data.
func (c *Client) Read(ctx context.Context, r Request, fn func(src io.Reader, onData func()) error) error {
	w := newWatch(ctx, c.Idle, c.Progress)
	defer w.stop()
	resp, err := c.do(w.ctx, r)
	if err != nil {
		return c.failed(ctx, w, err)
	}
	defer resp.Body.Close()
	w.watch(resp.Body)
	if err := fn(w, w.data); err != nil {
		return c.failed(ctx, w, err)
	}
	return nil
}

// Bytes makes a request and returns its answer, at most 16 MiB of it.
func (c *Client) Bytes(ctx context.Context, r Request) ([]byte, error) {
	w := newWatch(ctx, c.Idle, c.Progress)
	defer w.stop()
	resp, err := c.do(w.ctx, r)
	if err != nil {
		return nil, c.failed(ctx, w, err)
	}
	defer resp.Body.Close()
	w.watch(resp.Body)
	body, err := io.ReadAll(io.LimitReader(w, 16<<20))
	if err != nil {
		return nil, c.failed(ctx, w, transport(err))
	}
	return body, nil
}

// do makes a request and turns every answer but a success into an error.
func (c *Client) do(ctx context.Context, r Request) (*http.Response, error) {
	address, err := url.Parse(c.BaseURL)
	if err != nil {
		// The parser's text holds the address, which may hold a secret.
		return nil, &model.Error{Code: model.CodeInvalidRequest, Message: "the base URL is not a URL"}
	}
	address.Path = strings.TrimRight(address.Path, "/") + r.Path
	if len(r.Query) > 0 {
		query := address.Query()
		maps.Copy(query, r.Query)
		address.RawQuery = query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, address.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, &model.Error{Code: model.CodeInvalidRequest, Message: "the base URL is not a URL"}
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "text/event-stream")
	}
	maps.Copy(req.Header, c.Header)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, transport(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // a part is enough
	return nil, ParseError(resp.StatusCode, resp.Header, answer)
}

// transport is the error of a request that was not answered. The client's own
// text holds the address; its cause does not, but may name hosts: it is not for
// everyone.
func transport(err error) *model.Error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	e := &model.Error{Code: model.CodeUnavailable, Message: "the provider cannot be reached", Retryable: true, Err: err}
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		e.Code, e.Message = model.CodeTimeout, "the provider did not answer in time"
	}
	return e
}

// failed decides what caused an error: the caller's cancellation, a watch that ran
// out, or the provider. It takes the key out of the error.
func (c *Client) failed(ctx context.Context, w *watch, err error) error {
	failure, ok := errors.AsType[*model.Error](err)
	// Only what a dead connection can cause may be put down to its end.
	if !ok || failure.Code == model.CodeTruncated || failure.Code == model.CodeUnavailable && failure.StatusCode == 0 || failure.Code == model.CodeTimeout {
		if err := ctx.Err(); err != nil {
			return err
		}
		if timeout, ok := errors.AsType[*model.Error](context.Cause(w.ctx)); ok {
			return timeout
		}
	}
	if !ok {
		failure = transport(err)
	}
	return c.Clean(failure)
}

// Clean takes secrets out of an error: the key, the values of headers that
// authenticate, and the address.
func (c *Client) Clean(failure *model.Error) *model.Error {
	clean := *failure
	secrets := c.secrets()
	clean.Message = redact.Secrets(clean.Message, secrets...)
	if clean.Err != nil && redact.Secrets(clean.Err.Error(), secrets...) != clean.Err.Error() {
		clean.Err = nil
	}
	return &clean
}

func (c *Client) secrets() []string {
	secrets := []string{c.Secret}
	for name, values := range c.Header {
		if !secretName.MatchString(name) {
			continue
		}
		for _, v := range values {
			_, rest, _ := strings.Cut(v, " ") // behind a scheme
			secrets = append(secrets, v, rest)
		}
	}
	if address, err := url.Parse(c.BaseURL); err == nil {
		if password, ok := address.User.Password(); ok {
			secrets = append(secrets, password)
		} else {
			secrets = append(secrets, address.User.Username())
		}
		for name, values := range address.Query() {
			if secretName.MatchString(name) {
				secrets = append(secrets, values...)
			}
		}
	}
	return secrets
}

var secretName = regexp.MustCompile(`(?i)auth|key|token|secret|cookie|password`)

// Package openai talks to OpenAI's chat completions and to everything that speaks
// the same protocol, more or less.
package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool/model"
)

// DefaultBaseURL is OpenAI's own endpoint.
const DefaultBaseURL = "https://api.openai.com/v1"

// How long a provider may be silent, unless the options say otherwise.
const (
	DefaultIdleTimeout     = 5 * time.Minute
	DefaultProgressTimeout = 10 * time.Minute
)

// Options are a model's settings. The zero value talks to OpenAI without a key.
type Options struct {
	BaseURL    string       // without /chat/completions; "": [DefaultBaseURL]
	APIKey     string       // sent as a bearer token; "": none
	Model      string       // the model's id at the endpoint; "": see [Model.ID]
	Header     http.Header  // more headers, which win
	HTTPClient *http.Client // nil: one without a timeout of its own

	// IdleTimeout bounds how long no byte may come, comments included: is the
	// provider there? 0: [DefaultIdleTimeout]; negative: no limit.
	IdleTimeout time.Duration
	// ProgressTimeout bounds how long no data may come, from the request on: does
	// it get anywhere? 0: [DefaultProgressTimeout]; negative: no limit.
	ProgressTimeout time.Duration

	// StrictOutput asks for strict schema adherence of structured output, which
	// not every schema allows.
	StrictOutput bool
	// NoStreamOptions leaves out stream_options, for endpoints that refuse it.
	NoStreamOptions bool
	// Extra members of the request's body; they win.
	Extra map[string]any
	// MaxLine is [IngestOptions.MaxLine].
	MaxLine int
}

// Model is a [model.Model] over HTTP. It is safe for concurrent use.
type Model struct {
	o Options

	mu sync.Mutex
	id string
}

var _ model.Model = (*Model)(nil)

// New returns a model. Options may be nil.
func New(o *Options) *Model {
	m := new(Model)
	if o != nil {
		m.o = *o
	}
	m.id = m.o.Model
	m.o.BaseURL = strings.TrimRight(m.o.BaseURL, "/")
	if m.o.BaseURL == "" {
		m.o.BaseURL = DefaultBaseURL
	}
	if m.o.HTTPClient == nil {
		m.o.HTTPClient = new(http.Client)
	}
	if m.o.IdleTimeout == 0 {
		m.o.IdleTimeout = DefaultIdleTimeout
	}
	if m.o.ProgressTimeout == 0 {
		m.o.ProgressTimeout = DefaultProgressTimeout
	}
	return m
}

// Stream makes one streaming request. It never retries.
func (m *Model) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		id, err := m.ID(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		body, err := m.body(r, id)
		if err != nil {
			yield(nil, &model.Error{Code: model.CodeInvalidRequest, Message: "the request cannot be encoded", Err: err})
			return
		}
		w := newWatch(ctx, m.o.IdleTimeout, m.o.ProgressTimeout)
		defer w.stop()
		resp, err := m.do(w.ctx, http.MethodPost, "/chat/completions", body)
		if err != nil {
			yield(nil, m.failed(ctx, w, err))
			return
		}
		defer resp.Body.Close()
		w.watch(resp.Body)
		for p, err := range Ingest(w, &IngestOptions{MaxLine: m.o.MaxLine, OnData: w.data}) {
			if err != nil {
				err = m.failed(ctx, w, err)
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// ID returns the model's id: the option, or else the first that the endpoint
// lists and that does not look made for something other than chat. It remembers the answer.
func (m *Model) ID(ctx context.Context) (string, error) {
	m.mu.Lock()
	id := m.id
	m.mu.Unlock()
	if id != "" {
		return id, nil
	}
	ids, err := m.Models(ctx)
	if err != nil {
		return "", err
	}
	if len(ids) == 0 {
		return "", &model.Error{Code: model.CodeInvalidRequest, Message: "no model is named, and the endpoint lists none"}
	}
	first := max(0, slices.IndexFunc(ids, func(id string) bool { return !otherUse.MatchString(id) }))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id = ids[first]
	return m.id, nil
}

var otherUse = regexp.MustCompile(`(?i)embed|whisper|tts|dall-e|image|moderation|audio|realtime|transcribe|babbage|davinci|sora|rerank|guard`)

// Models lists the ids of the endpoint's models, in its order.
func (m *Model) Models(ctx context.Context) ([]string, error) {
	w := newWatch(ctx, m.o.IdleTimeout, m.o.ProgressTimeout)
	defer w.stop()
	resp, err := m.do(w.ctx, http.MethodGet, "/models", nil)
	if err != nil {
		return nil, m.failed(ctx, w, err)
	}
	defer resp.Body.Close()
	w.watch(resp.Body)
	body, err := io.ReadAll(io.LimitReader(w, 16<<20))
	if err != nil {
		return nil, m.failed(ctx, w, transport(err))
	}
	type entry struct{ ID, Name string }
	var list struct{ Data, Models []entry }
	if err := decode(body, &list); err != nil {
		return nil, m.failed(ctx, w, &model.Error{Code: model.CodeProtocol, Message: "the endpoint's model list is not JSON: " + excerpt(string(body))})
	}
	var ids []string
	for _, e := range slices.Concat(list.Data, list.Models) {
		if id := e.ID; id != "" {
			ids = append(ids, id)
		} else if e.Name != "" {
			ids = append(ids, e.Name)
		}
	}
	return ids, nil
}

// do makes a request and turns every answer but a success into an error.
func (m *Model) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	address, err := url.Parse(m.o.BaseURL)
	if err != nil {
		// The parser's text holds the address, which may hold a secret.
		return nil, &model.Error{Code: model.CodeInvalidRequest, Message: "the base URL is not a URL"}
	}
	address.Path = strings.TrimRight(address.Path, "/") + path
	req, err := http.NewRequestWithContext(ctx, method, address.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &model.Error{Code: model.CodeInvalidRequest, Message: "the base URL is not a URL"}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "text/event-stream")
	}
	if m.o.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+m.o.APIKey)
	}
	maps.Copy(req.Header, m.o.Header)
	resp, err := m.o.HTTPClient.Do(req)
	if err != nil {
		return nil, transport(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what came of it is enough
	return nil, parseError(resp.StatusCode, resp.Header, answer)
}

// transport is the error of a request that was not answered. The client's own
// text holds the address; its cause does not.
func transport(err error) *model.Error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	e := &model.Error{Code: model.CodeUnavailable, Message: "the provider cannot be reached: " + excerpt(err.Error()), Retryable: true, Err: err}
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		e.Code, e.Message = model.CodeTimeout, "the provider did not answer in time"
	}
	return e
}

// failed decides what an error was: the caller's cancellation, a watch that ran
// out, or the provider's; and takes the key out of it.
func (m *Model) failed(ctx context.Context, w *watch, err error) error {
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
	clean := *failure
	clean.Message = redact(clean.Message)
	if len(m.o.APIKey) > 3 {
		clean.Message = strings.ReplaceAll(clean.Message, m.o.APIKey, "[redacted]")
		if clean.Err != nil && strings.Contains(clean.Err.Error(), m.o.APIKey) {
			clean.Err = nil
		}
	}
	return &clean
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

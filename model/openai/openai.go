// Package openai talks to OpenAI's chat completions and Responses APIs, and to other
// servers that speak nearly the same protocols.
package openai

import (
	"context"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

// defaultBaseURL is OpenAI's own endpoint.
const defaultBaseURL = "https://api.openai.com/v1"

// Options are a model's settings. The zero value talks to OpenAI without a key.
type Options struct {
	BaseURL    string       // without /chat/completions; "": OpenAI's own
	APIKey     string       // sent as a bearer token; "": none
	Model      string       // the model's id at the endpoint; "": see [Model.ID]
	Header     http.Header  // more headers, which win
	HTTPClient *http.Client // nil: one without a timeout of its own

	// IdleTimeout bounds how long no byte may come, comments included: then the
	// provider is gone. 0: 5 minutes; negative: no limit.
	IdleTimeout time.Duration
	// ProgressTimeout bounds how long no data may come, from the request on: then the
	// provider gets nowhere. 0: 10 minutes; negative: no limit.
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

	// The rest is for [NewResponses].

	// Background has the provider work on, and keep, an answer whose connection is
	// lost; see [Responses].
	Background bool
	// NoStore asks the provider to keep nothing: reasoning comes encrypted and goes
	// back so. Not with Background.
	NoStore bool
	// Tools are server tools, as the API wants them.
	Tools []map[string]any
	// Sleep waits between attempts to reach a background answer; nil: by the clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Model is a [model.Model] over HTTP. It is safe for concurrent use.
type Model struct {
	o      Options
	client provider.Client

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
	header := http.Header{}
	if m.o.APIKey != "" {
		header.Set("Authorization", "Bearer "+m.o.APIKey)
	}
	maps.Copy(header, m.o.Header)
	m.client = provider.Client{BaseURL: m.o.BaseURL, Secret: m.o.APIKey, Header: header,
		HTTP: m.o.HTTPClient, Idle: m.o.IdleTimeout, Progress: m.o.ProgressTimeout}
	m.client.Defaults(defaultBaseURL)
	return m
}

// Stream makes one streaming request. It never retries.
func (m *Model) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Part, error] {
	return m.client.Ask(ctx, "/chat/completions", m.ID, func(id string) ([]byte, error) { return m.body(r, id) },
		func(src io.Reader, onData func()) iter.Seq2[model.Part, error] {
			return Ingest(src, &IngestOptions{MaxLine: m.o.MaxLine, OnData: onData, From: m.host()})
		})
}

// host is the host of the endpoint.
func (m *Model) host() string {
	u, err := url.Parse(m.client.BaseURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
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
	body, err := m.client.Bytes(ctx, provider.Request{Method: http.MethodGet, Path: "/models"})
	if err != nil {
		return nil, err
	}
	type entry struct{ ID, Name string }
	var list struct{ Data, Models []entry }
	if err := provider.Decode(body, &list); err != nil {
		return nil, &model.Error{Code: model.CodeProtocol, Message: "the endpoint's model list is not JSON: " + provider.Excerpt(string(body))}
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

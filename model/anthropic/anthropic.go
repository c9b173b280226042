// Package anthropic talks to Anthropic's messages API and to what speaks the same
// protocol.
package anthropic

import (
	"context"
	"io"
	"iter"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

// defaultBaseURL is Anthropic's own endpoint.
const defaultBaseURL = "https://api.anthropic.com"

// defaultMaxTokens bounds an answer unless the request or the options say
// otherwise: this API wants a bound.
const defaultMaxTokens = 8192

// Options are a model's settings. The zero value talks to Anthropic without a key.
type Options struct {
	BaseURL    string       // with or without /v1; "": Anthropic's own
	APIKey     string       // sent as x-api-key; "": none
	AuthToken  string       // sent as a bearer token, for gateways; "": none
	Model      string       // the model's id; "": the first that the endpoint lists
	Header     http.Header  // more headers, such as anthropic-beta, which win
	HTTPClient *http.Client // nil: one without a timeout of its own

	// IdleTimeout bounds how long no byte may come, and ProgressTimeout how long no
	// data, pings included. 0: 5 and 10 minutes; negative: no limit.
	IdleTimeout, ProgressTimeout time.Duration

	MaxTokens int // of an answer, thinking aside; 0: 8192
	// ThinkingBudget asks for extended thinking of at most so many tokens. 0: none.
	ThinkingBudget int
	// Cache asks the provider to keep what requests have in common, for "5m" or
	// "1h": tools, instructions and the history are marked. "": no markers.
	Cache string
	// NativeOutput passes an output schema to the API, which not every model and
	// schema allows; otherwise the instructions hold it.
	NativeOutput bool
	// Tools are server tools, as the API wants them.
	Tools []map[string]any
	// Extra members of the request's body; they win.
	Extra map[string]any
	// MaxLine is [IngestOptions.MaxLine].
	MaxLine int
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
	header.Set("Anthropic-Version", "2023-06-01")
	secret := m.o.APIKey
	if m.o.APIKey != "" {
		header.Set("X-Api-Key", m.o.APIKey)
	}
	if m.o.AuthToken != "" {
		header.Set("Authorization", "Bearer "+m.o.AuthToken)
		if secret == "" {
			secret = m.o.AuthToken
		}
	}
	maps.Copy(header, m.o.Header)
	m.client = provider.Client{BaseURL: m.o.BaseURL, Secret: secret, Header: header,
		HTTP: m.o.HTTPClient, Idle: m.o.IdleTimeout, Progress: m.o.ProgressTimeout}
	m.client.Defaults(defaultBaseURL)
	m.client.BaseURL = strings.TrimSuffix(m.client.BaseURL, "/v1")
	return m
}

// Stream makes one streaming request. It never retries.
func (m *Model) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Part, error] {
	return m.client.Ask(ctx, "/v1/messages", m.ID, func(id string) ([]byte, error) { return m.body(r, id) },
		func(src io.Reader, onData func()) iter.Seq2[model.Part, error] {
			return Ingest(src, &IngestOptions{MaxLine: m.o.MaxLine, OnData: onData})
		})
}

// ID returns the model's id: the option, or else the first that the endpoint
// lists. It remembers the answer.
func (m *Model) ID(ctx context.Context) (string, error) {
	m.mu.Lock()
	id := m.id
	m.mu.Unlock()
	if id != "" {
		return id, nil
	}
	body, err := m.client.Bytes(ctx, provider.Request{Method: http.MethodGet, Path: "/v1/models"})
	if err != nil {
		return "", err
	}
	var list struct{ Data []struct{ ID string } }
	if err := provider.Decode(body, &list); err != nil {
		return "", &model.Error{Code: model.CodeProtocol, Message: "the endpoint's model list is not JSON: " + provider.Excerpt(string(body))}
	}
	if len(list.Data) == 0 || list.Data[0].ID == "" {
		return "", &model.Error{Code: model.CodeInvalidRequest, Message: "no model is named, and the endpoint lists none"}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id = list.Data[0].ID
	return m.id, nil
}

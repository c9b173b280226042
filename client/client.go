// Package client is a Go client of a Spool server's HTTP surface: streams on any wire
// that survive lost connections and restarted servers, commands, snapshots, listings, and
// producers whose appends are stored once.
//
// Requests are repeated while the server cannot be reached, with full-jitter backoff and
// a bound ([Retry]). A request is only repeated if the server knows the repeat: by the
// id of its message or command, by the run that it names, or by a producer's count.
//
// Errors. An answer of the server is an [*Error] with its status, code and hint.
// errors.Is compares codes, so that spool.ErrBusy, spool.ErrNotFound and the other
// sentinels match it. [ErrUnreachable] ends retries, and [ErrUnknownOutcome] a request
// that may have been taken and cannot be repeated.
package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options configure a [Client]. The zero value works.
type Options struct {
	// HTTP sends the requests. Its Timeout must be 0, since it would end streams. nil: a
	// client with the default transport.
	HTTP *http.Client
	// Header is sent with every request, such as Authorization.
	Header http.Header
	// Prepare is called with every request before it is sent, with repeats too: for
	// tokens that expire. Its error ends the call.
	Prepare func(*http.Request) error
	Retry   Retry
	// Timeout is how long an answer may take, of a stream its head. 0: 30 s.
	Timeout time.Duration
	// Idle is how long a stream may be silent before its connection counts as dead and
	// is made again. The server sends a comment after 10 s of silence by default. 0:
	// 30 s; negative: no limit.
	Idle time.Duration
	// NewID makes the ids of sessions, messages and commands. nil: random ids.
	NewID func() string
}

// Client calls one server. Its methods may be called from any goroutine.
type Client struct {
	base *url.URL // its path ends in a slash
	o    Options
}

// New returns a client of the server at an address like http://127.0.0.1:8080, or, if it
// is mounted under a prefix, https://example.com/agents. Options may be nil.
func New(address string, o *Options) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, ErrAddress
	}
	if !strings.HasSuffix(u.Path, "/") {
		u = u.JoinPath("/")
	}
	c := &Client{base: u}
	if o != nil {
		c.o = *o
	}
	if c.o.HTTP == nil {
		c.o.HTTP = &http.Client{}
	}
	if c.o.HTTP.Timeout != 0 {
		return nil, fmt.Errorf("client: Options.HTTP has a Timeout (%v), which would end streams; use Options.Timeout", c.o.HTTP.Timeout)
	}
	c.o.Retry.defaults()
	if c.o.Timeout <= 0 {
		c.o.Timeout = 30 * time.Second
	}
	if c.o.Idle == 0 {
		c.o.Idle = 30 * time.Second
	}
	if c.o.NewID == nil {
		c.o.NewID = rand.Text
	}
	return c, nil
}

// Session returns a session's handle. It sends nothing: the session need not exist. ""
// makes a new id.
func (c *Client) Session(id string) *Session {
	return &Session{c: c, id: c.keyed(id)}
}

// keyed returns an id, or a new one instead of "".
func (c *Client) keyed(id string) string {
	if id == "" {
		return c.o.NewID()
	}
	return id
}

// Session is a session on the server: a root agent's, or for reading, answering and
// stopping a child agent's.
type Session struct {
	c  *Client
	id string
}

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// path returns the path of one of the session's chat routes.
func (s *Session) path(route ...string) string {
	p := "api/chat/" + url.PathEscape(s.id)
	for _, part := range route {
		p += "/" + url.PathEscape(part)
	}
	return p
}

// Info is what the server says about itself.
type Info struct {
	Model string `json:"model"` // the model's name
	Demo  bool   `json:"demo"`  // it is the scripted demo
}

// Info returns what the server says about itself.
func (c *Client) Info(ctx context.Context) (*Info, error) {
	return get[Info](ctx, c, "api/info", nil)
}

// Package mcptool makes tools of what Model Context Protocol servers offer,
// through the official Go SDK.
//
//	files, err := mcptool.Connect(ctx, mcptool.Command("mcp-files", "/srv"), nil)
//	if err != nil {
//		return err
//	}
//	defer files.Close()
//	a := &agent.Agent{Name: "clerk", Model: m, MoreTools: files.Tools}
//
// A server that dies is connected to again when a call needs it; until that
// works, calls fail with an error that the model sees.
package mcptool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool/tool"
)

// Dial returns a new way to a server. It is called for each connection.
type Dial func() mcp.Transport

// Command runs a server as a process that speaks on its standard input and
// output. What it writes to standard error is logged.
func Command(name string, args ...string) Dial {
	return func() mcp.Transport { return &mcp.CommandTransport{Command: exec.Command(name, args...)} }
}

// HTTP reaches a server by the streamable HTTP transport. A nil client is
// [http.DefaultClient]; another one may add headers or credentials.
func HTTP(url string, client *http.Client) Dial {
	return func() mcp.Transport { return &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client} }
}

// Approval says which calls of a server's tools wait for a human's approval. What
// a server says of its tools is a hint and no promise: of one that is not trusted
// everything must be approved.
type Approval string

const (
	ApproveDestructive Approval = ""       // of tools that say that they may destroy something
	ApproveWrites      Approval = "writes" // of all that do not say that they only read
	ApproveAll         Approval = "all"
	ApproveNone        Approval = "none"
)

// Options are a connection's settings. The zero value works.
type Options struct {
	// Name is the server's in errors and logs. "": the name that it gives itself.
	Name string
	// Prefix is put before the names of its tools, to tell servers apart.
	Prefix string
	// Include chooses tools; nil takes all.
	Include func(t *mcp.Tool) bool
	// Approval says which calls a human must approve.
	Approval Approval
	// Timeout bounds a call. 0: the agent's limit.
	Timeout time.Duration
	// ConnectTimeout bounds a connection's beginning, the list of tools included.
	// 0: 30 s.
	ConnectTimeout time.Duration
	// Logger gets what the server logs. nil: discard.
	Logger *slog.Logger
}

const (
	defaultConnect = 30 * time.Second
	maxTools       = 512
	stderrDelay    = 2 * time.Second // for what a process leaves behind that holds its standard error
)

// Server is a connection to an MCP server. Its methods may be used from several
// goroutines.
type Server struct {
	dial   Dial
	o      Options
	log    *slog.Logger
	client *mcp.Client
	dialed chan struct{} // held while connecting
	calls  calls

	mu      sync.Mutex
	session *mcp.ClientSession // nil: not connected
	name    string
	tools   []tool.Tool
	closed  bool
	wg      sync.WaitGroup
}

// Connect connects to a server and lists its tools.
func Connect(ctx context.Context, dial Dial, o *Options) (*Server, error) {
	s := &Server{dial: dial, dialed: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler)}
	if o != nil {
		s.o = *o
	}
	if s.o.Logger != nil {
		s.log = s.o.Logger
	}
	if s.o.ConnectTimeout <= 0 {
		s.o.ConnectTimeout = defaultConnect
	}
	switch s.o.Approval {
	case ApproveDestructive, ApproveWrites, ApproveAll, ApproveNone:
	default:
		return nil, fmt.Errorf("mcptool: there is no approval %q", s.o.Approval)
	}
	s.name = s.o.Name
	s.client = mcp.NewClient(&mcp.Implementation{Name: "spool", Version: "1"}, s.hears(&mcp.ClientOptions{
		Capabilities:                &mcp.ClientCapabilities{},
		ToolListChangedHandler:      s.listChanged,
		ProgressNotificationHandler: s.calls.progress,
	}))
	if _, err := s.connected(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// Tools returns the server's tools as they were listed last. It suits
// agent.Agent's MoreTools.
func (s *Server) Tools() []tool.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tools)
}

// Close ends the connection, and the process if there is one. Calls that are
// under way fail.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	cs := s.session
	s.session = nil
	s.mu.Unlock()
	if cs != nil {
		_ = cs.Close() // how the process ended is no error of ours
	}
	s.wg.Wait()
	return nil
}

var errClosed = errors.New("mcptool: the connection was closed")

// connected returns the session, after connecting if there is none.
func (s *Server) connected(ctx context.Context) (*mcp.ClientSession, error) {
	select {
	case s.dialed <- struct{}{}:
		defer func() { <-s.dialed }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	cs, closed := s.session, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return nil, errClosed
	case cs != nil:
		return cs, nil
	}
	limit, cancel := context.WithTimeout(ctx, s.o.ConnectTimeout)
	defer cancel()
	cs, err := s.open(limit)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("the MCP server %s cannot be reached: %w", s.called(), err)
	}
	return cs, nil
}

func (s *Server) open(ctx context.Context) (*mcp.ClientSession, error) {
	transport := s.dial()
	if c, ok := transport.(*mcp.CommandTransport); ok && c.Command.Stderr == nil {
		c.Command.Stderr = &lineLogger{log: s.log, name: s.called}
		c.Command.WaitDelay = stderrDelay
	}
	cs, err := s.client.Connect(ctx, transport, nil)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if info := cs.InitializeResult(); s.o.Name == "" && info != nil && info.ServerInfo != nil {
		s.name = info.ServerInfo.Name
	}
	s.mu.Unlock()
	s.askForLogs(ctx, cs)
	tools, err := s.list(ctx, cs)
	if err != nil {
		_ = cs.Close()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		go cs.Close()
		return nil, errClosed
	}
	s.session, s.tools = cs, tools
	s.wg.Go(func() {
		_ = cs.Wait()
		s.lost(cs)
		_ = cs.Close() // takes leave of the process
	})
	return cs, nil
}

// lost forgets a session that is over.
func (s *Server) lost(cs *mcp.ClientSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == cs {
		s.session = nil
	}
}

// giveUp closes a session that may be broken: the next call makes another.
func (s *Server) giveUp(cs *mcp.ClientSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == cs && !s.closed {
		s.session = nil
		s.wg.Go(func() { _ = cs.Close() })
	}
}

// called is the server's name in texts.
func (s *Server) called() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.name == "" {
		return "(no name yet)"
	}
	return s.name
}

func (s *Server) list(ctx context.Context, cs *mcp.ClientSession) ([]tool.Tool, error) {
	var listed []*mcp.Tool
	for t, err := range cs.Tools(ctx, nil) {
		switch {
		case err != nil:
			return nil, fmt.Errorf("its tools cannot be listed: %w", err)
		case len(listed) == maxTools:
			return nil, fmt.Errorf("it offers more than %d tools", maxTools)
		}
		listed = append(listed, t)
	}
	return s.wrap(listed), nil
}

// listChanged lists the tools again.
func (s *Server) listChanged(_ context.Context, r *mcp.ToolListChangedRequest) {
	cs := r.Session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.wg.Go(func() { // the handler must not ask the server anything itself
		ctx, cancel := context.WithTimeout(context.Background(), s.o.ConnectTimeout)
		defer cancel()
		tools, err := s.list(ctx, cs)
		if err != nil {
			s.log.Warn("an MCP server's tools have changed and cannot be listed", "server", s.called(), "err", err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.session == cs || s.session == nil {
			s.tools = tools
		}
	})
}

// lineLogger logs what a process writes, line by line.
type lineLogger struct {
	log  *slog.Logger
	name func() string
	rest []byte
}

const maxLine = 8 << 10

func (l *lineLogger) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := strings.Cut(string(l.rest), "\n")
		if !whole && len(l.rest) < maxLine {
			return len(p), nil
		}
		if !whole {
			rest = ""
		}
		l.rest = []byte(rest)
		if line = strings.TrimSpace(line); line != "" {
			l.log.Info("an MCP server writes", "server", l.name(), "line", line)
		}
	}
}

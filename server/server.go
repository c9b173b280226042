// Package server is Spool over HTTP: one http.Handler with the routes of every
// wire, snapshots and commands, listings and operations.
//
// The handler executes nothing. What a request asks for is appended to the
// session's log as a command; a runner, here or on another node, acts on it, and
// every stream is a view of the log.
package server

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/stream"
)

// Action is what a request wants to do with a session.
type Action string

const (
	ActionRead   Action = "read"   // streams, snapshots, messages, blobs
	ActionSend   Action = "send"   // messages and answers; may create the session
	ActionStop   Action = "stop"   //
	ActionDecide Action = "decide" // approvals, and results of client-executed calls
	ActionDelete Action = "delete" //
	ActionAppend Action = "append" // as an external producer; may create the session
	ActionList   Action = "list"   // listings; the session is ""
	ActionOps    Action = "ops"    // metrics; the session is ""
)

// Info is what the page asks about the server: GET /api/info.
type Info struct {
	Model string `json:"model"`
	Demo  bool   `json:"demo"`
}

// Options configure a [Server]. The zero value serves everyone.
type Options struct {
	// Principal says who asks; "" is nobody in particular. An error is answered
	// like a failed Authorize. nil: "" for every request.
	Principal func(r *http.Request) (string, error)
	// Authorize decides every request. Any error is answered with 404
	// not_found, so that strangers learn nothing. nil allows everything.
	Authorize func(ctx context.Context, principal, session string, action Action) error
	// AllowHost says under which host names, without their port, this server may be
	// asked; others get 403. A server that trusts whoever reaches it must not be
	// reachable under a name that somebody else makes point to it. nil: all.
	AllowHost func(host string) bool
	// AllowOrigin names the pages of other hosts that may use this server; nil
	// for none.
	AllowOrigin func(origin string) bool
	// Chat is what a program decides about its chats. A ReplayGrace of 0 is 60 s,
	// a negative one none.
	Chat chat.Options
	// Wires are the options of the wires, and further ones.
	Wires wires.Options

	Heartbeat    time.Duration // a comment after this much silence; 0: 10 s
	WriteTimeout time.Duration // a reader that takes longer for one write is cut; 0: 15 s
	BodyTimeout  time.Duration // a body must have come by then, but for a second each 16 KiB; 0: 30 s
	MaxReaders   int           // streams that may be open at once; more are answered 503; 0: any number
	DrainSpread  time.Duration // readers are cut within this time of Drain; 0: at once
	// NoContentReplay puts a live turn's message, as far as it is written, into
	// snapshots, and lets the stream of a page built from one go on after it. By
	// default the message is left out, and replayed on the stream: the one way
	// that is right for every AI SDK client.
	NoContentReplay bool

	// Metrics are written behind the server's own at /metrics: those of runners
	// ([runner.Metrics]), and others in the same format.
	Metrics []io.WriterTo

	Info   Info         //
	Assets fs.FS        // what / serves; nil for nothing
	Logger *slog.Logger // nil: the logs' own
	Jitter func(n int) int
}

// Server is the HTTP face of a store's logs.
type Server struct {
	logs    *spool.Logs
	o       Options
	chat    *chat.Deps
	front   *frontend.Deps
	log     *slog.Logger
	metrics *metrics
	routes  []route

	external *stream.External

	drain     context.Context // ended by Drain
	startDraw context.CancelFunc
	closed    context.Context // ended when Shutdown gives up waiting
	close     context.CancelFunc
	readers   sync.WaitGroup
	mu        sync.Mutex // orders readers.Add against Shutdown's Wait
	open      int        // readers
}

// New returns a handler over logs. Options may be nil.
func New(logs *spool.Logs, o *Options) *Server {
	s := &Server{logs: logs, metrics: newMetrics()}
	if o != nil {
		s.o = *o
	}
	if s.o.Chat.ReplayGrace == 0 {
		s.o.Chat.ReplayGrace = time.Minute
	}
	s.o.Chat.ReplayGrace = max(s.o.Chat.ReplayGrace, 0)
	if s.o.Heartbeat <= 0 {
		s.o.Heartbeat = 10 * time.Second
	}
	if s.o.WriteTimeout <= 0 {
		s.o.WriteTimeout = 15 * time.Second
	}
	if s.o.BodyTimeout <= 0 {
		s.o.BodyTimeout = 30 * time.Second
	}
	if s.o.Jitter == nil {
		s.o.Jitter = rand.IntN
	}
	if s.log = s.o.Logger; s.log == nil {
		s.log = logs.Logger()
	}
	s.log = redact.Logger(s.log)
	s.front = &frontend.Deps{
		Deps:  chat.Deps{Logs: logs, Options: s.o.Chat, ContentReplay: !s.o.NoContentReplay},
		AISDK: s.o.Wires.AISDK,
	}
	s.chat = &s.front.Deps
	s.external = stream.NewExternal(logs, nil)
	s.drain, s.startDraw = context.WithCancel(context.Background())
	s.closed, s.close = context.WithCancel(context.Background())
	s.routes = s.table()
	return s
}

// Drain cuts every reader, without a terminal frame, so that it comes back
// elsewhere, and refuses new ones with 503. Runs are not touched.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startDraw()
}

// Shutdown drains and waits until every reader is gone or ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	done := make(chan struct{})
	s.logs.Go(func() {
		s.readers.Wait()
		close(done)
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.close()
		return ctx.Err()
	}
}

// enter counts a reader in, unless the server drains or has as many as it may.
func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.drain.Err() != nil:
		return errDraining
	case s.o.MaxReaders > 0 && s.open >= s.o.MaxReaders:
		return errTooMany
	}
	s.open++
	s.readers.Add(1)
	return nil
}

func (s *Server) leave() {
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
	s.readers.Done()
}

func (s *Server) jitter(n int) int {
	if n <= 0 {
		return 0
	}
	return s.o.Jitter(n)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &counted{ResponseWriter: w}
	name := "none"
	defer func() {
		if c.status == 0 {
			c.status = http.StatusOK
		}
		s.metrics.request(name, c.status)
	}()
	s.limitBody(c, r)
	if !s.hosted(r) {
		s.fail(c, r, errHost)
		return
	}
	if !s.cors(c, r) {
		s.fail(c, r, errCrossOrigin)
		return
	}
	if r.Method == http.MethodOptions {
		c.WriteHeader(http.StatusNoContent)
		return
	}
	s.route(c, r, &name)
}

func (s *Server) principal(r *http.Request) (string, error) {
	if s.o.Principal == nil {
		return "", nil
	}
	return s.o.Principal(r)
}

// authorize checks a session's id and whether the request may do this to it. What
// may be done to a child agent's session is what may be done to its root's; it is
// read, answered and stopped, and nothing else.
func (s *Server) authorize(r *http.Request, session string, action Action) (principal string, err error) {
	if action != ActionList && action != ActionOps {
		check := chat.CheckSession
		if action == ActionRead || action == ActionDecide || action == ActionStop {
			check = chat.CheckReadable
		}
		if err := check(session); err != nil {
			return "", err
		}
	}
	root := chunk.RootID(session)
	principal, err = s.principal(r)
	if err == nil && s.o.Authorize != nil {
		err = s.o.Authorize(r.Context(), principal, root, action)
	}
	if err != nil {
		s.log.Debug("refused", "session", session, "action", action, "err", err)
		return "", spool.ErrNotFound
	}
	return principal, nil
}

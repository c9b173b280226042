// Package server is Spool over HTTP: one http.Handler with the routes of every
// wire, snapshots and commands, listings and operations.
//
// The handler executes nothing. It appends a request to the session's log as a command.
// A runner, in this process or on another node, acts on it, and every stream is a view
// of the log.
package server

import (
	"context"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/stream"
)

// Info describes the server to the page: GET /api/info.
type Info struct {
	Model string `json:"model"`
	Demo  bool   `json:"demo"`
}

// Options configure a [Server]. The zero value serves everyone.
type Options struct {
	// Principal returns who makes a request; "" is an anonymous caller. The principal who
	// creates a session owns it, and without an Authorize nobody else may use it: see
	// [OwnerOnly]. [ErrUnauthenticated] gives the response 401, any other error 404
	// (403 for metrics and listings). nil: callers are not told apart.
	Principal func(r *http.Request) (string, error)
	// Authorize decides every request, and replaces [OwnerOnly]. [ErrUnauthenticated]
	// gives the response 401. Any other error gives 404 not_found, so that a caller without
	// rights does not learn whether a session exists; for metrics and listings, which have
	// no session, 403 not_allowed. nil: OwnerOnly decides if Principal is set, and else
	// everything is allowed.
	Authorize func(ctx context.Context, a Access) error
	// AllowHost reports whether requests may name this host, without its port; other
	// requests get 403. A server that trusts every client that can reach it needs this:
	// otherwise a page elsewhere could reach it with a DNS name of its own. nil: all.
	AllowHost func(host string) bool
	// AllowOrigin reports whether pages of another origin may use this server, with the
	// user's cookies. nil: none.
	AllowOrigin func(origin string) bool
	// AllowAnyOrigin lets pages of all other origins use this server, without cookies and
	// whatever else browsers add by themselves.
	AllowAnyOrigin bool
	// Chat configures chats. A ReplayGrace of 0 is 60 s; a negative one is no grace
	// period.
	Chat chat.Options
	// Wires has the options of the wires, and further wires.
	Wires wires.Options

	Heartbeat    time.Duration // a comment is sent after this much silence; 0: 10 s
	WriteTimeout time.Duration // a reader that takes longer for one write is disconnected; 0: 15 s
	BodyTimeout  time.Duration // by how much a body may be behind a rate of 16 KiB a second; 0: 30 s
	MaxReaders   int           // streams that may be open at once; more get 503; 0: no limit
	BodyMemory   int64         // bytes of all bodies that are read or handled; more get 503; 0: 128 MiB, negative: no limit
	DrainSpread  time.Duration // readers are disconnected within this time after Drain; 0: at once
	// HijackStreams takes the connections of GETs that stream a session's log (the native
	// wire) over from net/http, so that a reader who has nothing to read costs about a sixth
	// of the memory: for very many readers of which few get something at a time. Such a
	// connection is closed when its stream ends. It works on HTTP/1.1 without TLS, if the
	// ResponseWriter itself is an [http.Hijacker]; all other streams are served as usual.
	HijackStreams bool
	// NoContentReplay puts a live turn's partial message into snapshots; the stream of
	// a page that was built from one continues after it. By default the message is left
	// out of snapshots and replayed on the stream: only that is right for every AI SDK
	// client.
	NoContentReplay bool

	// Metrics are served at /metrics beside the server's own: those of runners
	// ([runner.Metrics]), and others.
	Metrics []prometheus.Collector

	Info   Info         //
	Assets fs.FS        // the files that / serves; nil for none
	Logger *slog.Logger // nil: the logger of the logs
	Jitter func(n int) int
}

// Server serves a store's logs over HTTP.
type Server struct {
	logs    *spool.Logs
	o       Options
	chat    *chat.Deps
	front   *frontend.Deps
	log     *slog.Logger
	metrics *metrics
	scrapes http.Handler // of /metrics
	routes  []route

	external *stream.External

	hijacks   hijacks
	bodies    budget
	ready     readiness
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
	if s.o.BodyMemory == 0 {
		s.o.BodyMemory = 128 << 20
	}
	s.bodies.limit = max(s.o.BodyMemory, 0)
	if s.o.Jitter == nil {
		s.o.Jitter = rand.IntN
	}
	if s.log = s.o.Logger; s.log == nil {
		s.log = logs.Logger()
	}
	s.log = redact.Logger(s.log)
	s.scrapes = s.metricsHandler()
	s.front = &frontend.Deps{
		Deps:  chat.Deps{Logs: logs, Options: s.o.Chat, ContentReplay: !s.o.NoContentReplay},
		AISDK: s.o.Wires.AISDK,
	}
	s.chat = &s.front.Deps
	s.external = stream.NewExternal(logs, nil)
	s.drain, s.startDraw = context.WithCancel(context.Background())
	s.closed, s.close = context.WithCancel(context.Background())
	s.routes = s.table()
	s.hijacks.init(s)
	return s
}

// Drain disconnects every reader without a terminal frame, so that it reconnects to
// another server, and refuses new readers with 503. It does not affect runs.
func (s *Server) Drain() {
	s.mu.Lock()
	s.startDraw()
	s.mu.Unlock()
	s.drainHijacked()
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

// enter counts a new reader. It fails if the server drains or the limit of readers is
// reached.
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

// ServeHTTP implements [http.Handler].
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
	if a := s.route(c, r, &name); a != nil {
		s.stream(c, r, a)
	}
}

package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/web"
)

type serveCmd struct {
	Addr        string           `default:"127.0.0.1:8080" help:"HOST:PORT to listen on; port 0 takes a free one."`
	TLSCert     string           `name:"tls-cert" placeholder:"FILE" help:"Serve HTTPS with this certificate, in PEM format, with its chain. HTTP/2 is offered, too. The file and that of --tls-key are loaded again when they change."`
	TLSKey      string           `name:"tls-key" placeholder:"FILE" help:"The key of --tls-cert, in PEM format."`
	H2C         bool             `name:"h2c" help:"Accept HTTP/2 in clear text, too, for a proxy that speaks it. Browsers do not."`
	Store       string           `default:"sqlite:spool.db" help:"sqlite:PATH (with ?sync=normal the last writes may be lost when the power fails), redis://HOST, postgres://HOST/DATABASE, nats://HOST or memory."`
	Model       string           `help:"scripted (with ?background=0 its answers are not resumed when this process is lost, but made again), openai:NAME, openai-responses:NAME (with ?background=1 the provider keeps working when the connection or this process is lost, and the answer is resumed), anthropic:NAME or replay:PATH (a recorded provider stream, or a folder of them from which the message names one); default from the environment (OPENAI_ or ANTHROPIC_ with API_KEY, BASE_URL, MODEL), else scripted."`
	DemoRate    float64          `default:"40" help:"Deltas per second of the scripted model; 0 is as fast as possible."`
	ReplayRate  float64          `default:"0" help:"Events per second of a replayed recording; 0 is as recorded."`
	Prompt      string           `name:"instructions" placeholder:"TEXT" help:"The system prompt: text, or @FILE. By default a provider's model gets none."`
	DemoTools   bool             `help:"Serve a provider's model as the demo agent, with the demo's tools and its prompt. What the tools return is invented."`
	MCP         perLine          `name:"mcp" placeholder:"SERVER" help:"Tools of an MCP server: its URL, or stdio:COMMAND to run one. With NAME= before it, NAME_ is put before the names of its tools. Can be repeated; in the environment, one per line."`
	ReplayGrace time.Duration    `default:"60s" help:"How long after its end a turn is replayed to a client that sends no position."`
	Replay      bool             `name:"content-replay" default:"true" negatable:"" help:"Leave the unfinished message out of snapshots and replay it on the stream. With --no-content-replay, snapshots contain its beginning and the stream continues it."`
	LeaseTTL    time.Duration    `name:"lease-ttl" default:"10s" help:"Lease expiry: an owner that does not renew its lease for this long can be replaced."`
	SessionTTL  time.Duration    `name:"session-ttl" default:"0" help:"Delete sessions whose last message or record is longer ago than this, for example 720h; 0 keeps them. It takes up to 15 minutes more until everything in it is deleted."`
	TraceAge    *time.Duration   `placeholder:"DURATION" help:"How long an idle session keeps the deltas and progress of its answers: 24h by default, 10m with --store memory; 0 keeps them for ever. The answers themselves are always kept."`
	TraceLength int              `name:"trace-records" placeholder:"N" default:"10000" help:"How many records, counted back from its end, an idle session keeps in full (10,000 by default); 0 is all."`
	MaxAnswer   int              `name:"max-answer" placeholder:"BYTES" default:"8388608" help:"How many bytes the text, reasoning and arguments of one answer may have (8 MiB by default). A run whose model says more ends with what was said; 0 is no limit."`
	MaxSession  int              `name:"max-session-bytes" placeholder:"BYTES" default:"0" help:"Size in bytes (records and large values) from which on a session takes no further message: 409 quota_exceeded. Nothing is deleted; 0 is no limit."`
	MaxTurns    int              `name:"max-turns" placeholder:"N" default:"0" help:"Turns after which a session takes no further message: 409 quota_exceeded. Nothing is deleted; 0 is no limit."`
	MaxSessions int              `name:"max-sessions" placeholder:"N" default:"0" help:"Sessions in the store from which on no further one begins: 409 quota_exceeded. 0 is no limit."`
	MaxTotal    int              `name:"max-total-bytes" placeholder:"BYTES" default:"0" help:"Size in bytes of all sessions together, from which on they take no further message: 409 quota_exceeded. Nothing is deleted; 0 is no limit."`
	WaitLimit   time.Duration    `default:"0" help:"How long a run waits for an answer. After that, an approval counts as denied and a call that the page executes fails; 0 waits for ever."`
	Linger      time.Duration    `default:"0s" help:"How long a delta of an answer waits for more of its block before it is stored, 50 ms at most. Deltas that come while the store writes are stored as one anyway. If it is negative, each is stored by itself."`
	DrainGrace  time.Duration    `default:"5s" help:"How long open runs may take after SIGTERM to end or to finish their model or tool phase. The next start continues them."`
	Recover     bool             `default:"true" negatable:"" help:"Continue runs whose process was lost. With --no-recover they fail, and what they had shown is kept as their answer."`
	AllowHost   []string         `name:"allow-host" placeholder:"NAME" help:"Further host names under which this server may be called, such as a proxy's. All others get 403. Without this flag, a server on a loopback address accepts only this machine's own names, and one that others can reach accepts all. * allows all."`
	CORSOrigin  []string         `name:"cors-origin" placeholder:"ORIGIN" help:"Other origins whose pages may use this server; pages on this machine always may. * allows all others, without cookies."`
	Heartbeat   time.Duration    `default:"10s" help:"Send a comment on a stream after this much silence."`
	WriteLimit  time.Duration    `name:"write-timeout" default:"15s" help:"A reader that takes longer than this for one write is disconnected."`
	MaxReaders  int              `name:"max-readers" default:"10000" help:"Streams that may be open at once; 0 is no limit."`
	Hijack      bool             `name:"hijack-streams" help:"Take the connections of native streams over from the HTTP server, so that an idle reader costs about 5 KiB instead of 30: for very many readers of which few get something at a time. Only on HTTP/1.1 without TLS. The connection is closed when its stream ends."`
	BodyMemory  int              `name:"body-memory" placeholder:"MIB" default:"128" help:"MiB of request bodies that may be in memory at once (128 by default); handling them takes about five times as much. 0 is no limit."`
	Overrides   bool             `name:"allow-overrides" help:"Let requests replace a session's history or state."`
	Wires       wires.ServeFlags `embed:""`
	OTLP        string           `name:"otlp-endpoint" placeholder:"URL" help:"Export traces and metrics to this OpenTelemetry collector, over HTTP: for example http://127.0.0.1:4318. Without it the variables OTEL_EXPORTER_OTLP_… say where; by default nothing is exported. What is said in sessions never is."`
	LogLevel    string           `enum:"debug,info,warn,error" default:"info" help:"debug (includes what readers do), info, warn or error."`
	Gate        string           `name:"test-gate" hidden:"" env:"SPOOL_TEST_GATE"`
}

// shutdownLimit bounds how long the server waits for open requests when it shuts down.
const shutdownLimit = 10 * time.Second

func (c *serveCmd) Run(ctx context.Context, std streams, known stores, version release) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return err
	}
	log := newLogger(std.err, level)
	if err := c.check(); err != nil {
		return err
	}
	shown, err := c.Wires.Options()
	if err != nil {
		return &usageError{err.Error()}
	}
	secure, err := c.tls(log)
	if err != nil {
		return err
	}
	listener, err := listen(c.Addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	store, err := known.open(ctx, "--store", c.Store, log)
	if err != nil {
		return err
	}
	defer store.Close()
	served, err := c.newAgent(ctx, log)
	if err != nil {
		return err
	}
	defer served.close()
	export, err := c.exporter(ctx, served.info, version, log)
	if err != nil {
		return err
	}
	defer export.close()
	logs := c.logs(store, export, log)
	defer logs.Close()
	agents, metrics := served.agents, new(runner.Metrics)
	runs, err := runner.New(logs, agents, c.runnerOptions(metrics, export))
	if err != nil {
		return err
	}
	o := c.serverOptions(isLocal(listener))
	o.Chat.Agents, o.Info, o.Wires = agents, served.info, shown
	o.Logger, o.Metrics = log, []prometheus.Collector{metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
	handler := server.New(logs, o)
	c.announce(log, listener, served.info)
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	fmt.Fprintf(std.out, "%s://%s\n", scheme, listener.Addr())
	return c.serve(ctx, listener, c.httpServer(export.handler(handler), secure, log), handler, runs, log)
}

// logs returns the logs of a store, behind the test gate if there is one.
func (c *serveCmd) logs(store Store, export *exporter, log *slog.Logger) *spool.Logs {
	o := &spool.Options{Logger: log, Now: now, Policy: spool.Policy{Limits: spool.Limits{TTL: c.SessionTTL, MaxBytes: int64(c.MaxSession), MaxTurns: c.MaxTurns,
		MaxPrincipalSessions: c.MaxSessions, MaxPrincipalBytes: int64(c.MaxTotal)}}}
	if c.Gate == "" {
		return spool.NewLogs(export.store(store), o)
	}
	o.BatchRecords = 1
	return spool.NewLogs(newGate(store, c.Gate), o)
}

func (c *serveCmd) runnerOptions(metrics *runner.Metrics, export *exporter) *runner.Options {
	var observer runner.Observer
	if export.Telemetry != nil {
		observer = export.Observer()
	}
	linger := c.Linger
	if c.Gate != "" {
		linger = -1 // the gate counts appends
	}
	return &runner.Options{
		LeaseTTL:   c.LeaseTTL,
		Linger:     linger,
		DrainGrace: c.DrainGrace,
		FailLost:   !c.Recover,
		Retention:  runner.Retention{Age: c.traceAge(), Records: orNone(c.TraceLength)},
		Metrics:    metrics,
		Observer:   observer,
	}
}

// traceAge is the flag's value as an option's; 0, the runner's default, without the flag.
func (c *serveCmd) traceAge() time.Duration {
	if c.TraceAge == nil {
		return 0
	}
	return orNone(*c.TraceAge)
}

// serverOptions returns the server's options from the flags. local: only this machine
// can reach the server.
func (c *serveCmd) serverOptions(local bool) *server.Options {
	return &server.Options{
		AllowHost:      func(host string) bool { return !local && len(c.AllowHost) == 0 || c.allowHost(host) },
		AllowOrigin:    c.allowOrigin,
		AllowAnyOrigin: slices.Contains(c.CORSOrigin, "*"),

		NoContentReplay: !c.Replay,
		Chat:            chat.Options{AllowOverrides: c.Overrides, ReplayGrace: orNone(c.ReplayGrace)},
		Heartbeat:       c.Heartbeat,
		WriteTimeout:    c.WriteLimit,
		MaxReaders:      c.MaxReaders,
		HijackStreams:   c.Hijack,
		BodyMemory:      int64(orNone(c.BodyMemory)) << 20,
		DrainSpread:     time.Second,
		Assets:          web.FS(),
	}
}

func isLocal(l net.Listener) bool {
	addr, ok := l.Addr().(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}

// announce logs what an operator must know about the model and about who can reach the
// server.
func (c *serveCmd) announce(log *slog.Logger, l net.Listener, info server.Info) {
	if !isLocal(l) {
		log.Warn("everyone who can reach this address can read and write every session; put an authenticating proxy in front of it", "addr", l.Addr().String())
	}
	if info.Demo {
		log.Info("no provider is configured: a scripted demo model answers", "hint", "set OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY")
	}
	if c.DemoTools && !info.Demo {
		log.Warn("the model has the demo's tools: what they return is invented", "model", info.Model)
	}
	log.Info("serving", "model", info.Model, "store", withoutPassword(c.Store))
}

// httpServer returns the HTTP server, which speaks TLS if secure is not nil.
func (c *serveCmd) httpServer(handler http.Handler, secure *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		TLSConfig:         secure,
		Protocols:         c.protocols(),
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: c.WriteLimit}, // a connection that is stuck cannot even reset its streams
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// serve runs the HTTP server and the runner until ctx ends, then drains it: readers are
// disconnected first, so that they reconnect to another server; then open runs get
// their grace period.
func (c *serveCmd) serve(ctx context.Context, l net.Listener, srv *http.Server, handler *server.Server, runs *runner.Runner, log *slog.Logger) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		serve := srv.Serve
		if srv.TLSConfig != nil {
			serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
		}
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error { return runs.Run(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		log.Info("draining", "hint", "send a second signal to exit at once")
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
		defer cancel()
		err := handler.Shutdown(stop)
		return errors.Join(err, srv.Shutdown(stop))
	})
	return group.Wait()
}

// allowHost reports whether requests may name this host. This refuses a page elsewhere
// whose DNS name was made to point to this machine: to a browser, the page and this
// server would be one origin.
func (c *serveCmd) allowHost(host string) bool {
	return server.LoopbackHost(host) || slices.ContainsFunc(c.AllowHost, func(name string) bool { return name == "*" || strings.EqualFold(name, host) })
}

func (c *serveCmd) allowOrigin(origin string) bool {
	return server.LoopbackOrigin(origin) || slices.Contains(c.CORSOrigin, origin)
}

// check refuses numbers that would silently be replaced by defaults.
func (c *serveCmd) check() error {
	for _, f := range []struct {
		name        string
		is, atLeast time.Duration
	}{
		{"--replay-grace", c.ReplayGrace, 0},
		{"--lease-ttl", c.LeaseTTL, time.Second},
		{"--session-ttl", c.SessionTTL, 0},
		{"--wait-limit", c.WaitLimit, 0},
		{"--drain-grace", c.DrainGrace, 0},
		{"--heartbeat", c.Heartbeat, time.Second},
		{"--write-timeout", c.WriteLimit, time.Second},
	} {
		if f.is < f.atLeast {
			return wrong(f.name, f.is, fmt.Sprintf("%v or more", f.atLeast))
		}
	}
	if c.Linger > spool.MaxLinger {
		return wrong("--linger", c.Linger, fmt.Sprintf("%v or less", spool.MaxLinger))
	}
	if c.TraceAge != nil && *c.TraceAge < 0 {
		return wrong("--trace-age", *c.TraceAge, "0s or more")
	}
	for name, rate := range map[string]float64{"--demo-rate": c.DemoRate, "--replay-rate": c.ReplayRate} {
		if !(rate >= 0) || math.IsInf(rate, 1) {
			return wrong(name, rate, "0 or more")
		}
	}
	for name, n := range map[string]int{"--trace-records": c.TraceLength, "--max-readers": c.MaxReaders, "--max-answer": c.MaxAnswer, "--body-memory": c.BodyMemory,
		"--max-session-bytes": c.MaxSession, "--max-turns": c.MaxTurns, "--max-sessions": c.MaxSessions, "--max-total-bytes": c.MaxTotal} {
		if n < 0 {
			return wrong(name, n, "0 or more")
		}
	}
	return nil
}

// listen opens the address. It is called before anything that takes time or changes the
// disk.
func listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--addr %s: another program already listens there (use another port; 0 takes a free one)", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("--addr %s: this machine does not have this address (0.0.0.0 listens on all its addresses)", addr)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("--addr %s: not allowed (ports below 1024 are for privileged programs)", addr)
	}
	if wrongAddr, ok := errors.AsType[*net.OpError](err); ok {
		err = wrongAddr.Err
	}
	return nil, &usageError{fmt.Sprintf("--addr %s: want HOST:PORT: %v", addr, err)}
}

// orNone turns a flag's value into an option's: 0 means no limit for a flag, but the
// default for an option, where -1 means no limit.
func orNone[T time.Duration | int](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model/replay"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/web"
)

type serveCmd struct {
	Addr        string        `default:"127.0.0.1:8080" help:"HOST:PORT to listen on; port 0 takes a free one."`
	Store       string        `default:"sqlite:spool.db" help:"sqlite:PATH or memory."`
	Model       string        `help:"scripted, openai:NAME, openai-responses:NAME (with ?background=1 the provider works on when the connection or this process is lost, and is found again), anthropic:NAME or replay:PATH (a recorded provider stream, or a folder of them from which the message names one); default from the environment (OPENAI_ or ANTHROPIC_ with API_KEY, BASE_URL, MODEL), else scripted."`
	DemoRate    float64       `default:"40" help:"Deltas per second of the scripted model; 0 is as fast as it can."`
	ReplayRate  float64       `default:"0" help:"Events per second of a replayed recording; 0 is as recorded."`
	MCP         []string      `name:"mcp" sep:"\n" placeholder:"[NAME=]URL" help:"Tools of an MCP server: its URL, or stdio:COMMAND to run one. NAME= goes before the names of its tools. Repeatable; in the environment one a line."`
	UI          int           `name:"ui" enum:"6,7" default:"6" help:"Default AI SDK profile: 6 or 7."`
	ReplayGrace time.Duration `default:"60s" help:"How long a settled turn is replayed to a client without a position."`
	LeaseTTL    time.Duration `name:"lease-ttl" default:"10s" help:"After this long without a sign of life a session's owner is replaced."`
	WaitLimit   time.Duration `default:"0" help:"After this long without an answer an approval is denied, and a call that the page executes fails; 0 waits for ever."`
	DrainGrace  time.Duration `default:"5s" help:"How long open runs may go on after SIGTERM; what is still open then goes on at the next start."`
	Recover     bool          `default:"true" negatable:"" help:"Runs whose process was lost go on where they were. With --no-recover they fail, and what they showed is their answer."`
	CORSOrigin  []string      `name:"cors-origin" help:"Origins of pages elsewhere that may use this server; pages on this machine always may. * allows all."`
	Heartbeat   time.Duration `default:"10s" help:"A comment goes out after this much silence."`
	WriteLimit  time.Duration `name:"write-timeout" default:"15s" help:"A reader that takes longer for one write is cut."`
	Overrides   bool          `name:"allow-overrides" help:"Let requests replace a session's history or state."`
	Merlin      merlinServe   `embed:"" prefix:"merlin-"`
	Verbose     bool          `short:"v" help:"Log what readers do."`
	Gate        string        `name:"test-gate" hidden:"" env:"SPOOL_TEST_GATE"`
}

// shutdownLimit bounds what a graceful shutdown waits for beyond its drain.
const shutdownLimit = 10 * time.Second

func (c *serveCmd) Run(ctx context.Context, std streams, log *slog.Logger) error {
	if c.Verbose {
		log = newLogger(std.err, slog.LevelDebug)
	}
	merlinOptions, err := c.Merlin.options()
	if err != nil {
		return err
	}
	store, err := openStore(c.Store)
	if err != nil {
		return err
	}
	defer store.Close()
	o := &spool.Options{Logger: log}
	var logStore spool.Store = store
	if c.Gate != "" {
		o.BatchRecords = 1
		logStore = newGate(store, c.Gate)
	}
	logs := spool.NewLogs(logStore, o)
	defer logs.Close()

	m, info, err := chooseModel(ctx, c.Model, c.DemoRate, c.ReplayRate, log)
	if err != nil {
		return err
	}
	if closer, ok := m.(io.Closer); ok {
		defer closer.Close()
	}
	a := demoAgent(m, c.DemoRate, c.WaitLimit)
	_, a.FailPartial = m.(*replay.Model) // a recording is the same the next time
	if !info.Demo {
		a.FinishMetadata = agent.TokenMetadata(info.Model)
	}
	servers, err := connectMCP(ctx, c.MCP, log)
	if err != nil {
		return err
	}
	defer servers.close()
	a.MoreTools = servers.tools
	agents := []*agent.Agent{a}
	metrics := new(runner.Metrics)
	runs, err := runner.New(logs, agents, &runner.Options{
		LeaseTTL:   c.LeaseTTL,
		DrainGrace: c.DrainGrace,
		FailLost:   !c.Recover,
		Metrics:    metrics,
	})
	if err != nil {
		return err
	}
	handler := server.New(logs, &server.Options{
		AllowOrigin: c.allowOrigin,

		AllowOverrides: c.Overrides,
		Agents:         agents,

		UI:           c.UI,
		Merlin:       merlinOptions,
		ReplayGrace:  grace(c.ReplayGrace),
		Heartbeat:    c.Heartbeat,
		WriteTimeout: c.WriteLimit,
		DrainSpread:  time.Second,
		Info:         info,
		Assets:       web.FS(),
		Logger:       log,
		Metrics:      []io.WriterTo{metrics},
	})
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return err
	}
	if host, ok := listener.Addr().(*net.TCPAddr); ok && !host.IP.IsLoopback() {
		log.Warn("everyone who reaches this address may read and write every session: put an authenticating proxy before it", "addr", host.String())
	}
	if info.Demo {
		log.Info("no provider is configured: a scripted demo model answers", "hint", "set OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY")
	}
	log.Info("serving", "model", info.Model, "store", c.Store)
	fmt.Fprintf(std.out, "http://%s\n", listener.Addr())
	return c.serve(ctx, listener, handler, runs, log)
}

// serve runs the HTTP server and the runner until ctx ends, then drains: readers
// are cut first, so that they come back elsewhere, then open runs get their
// grace.
func (c *serveCmd) serve(ctx context.Context, l net.Listener, handler *server.Server, runs *runner.Runner, log *slog.Logger) error {
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error { return runs.Run(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		log.Info("draining")
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
		defer cancel()
		err := handler.Shutdown(stop)
		return errors.Join(err, srv.Shutdown(stop))
	})
	return group.Wait()
}

func (c *serveCmd) allowOrigin(origin string) bool {
	return server.LoopbackOrigin(origin) || slices.Contains(c.CORSOrigin, "*") || slices.Contains(c.CORSOrigin, origin)
}

// grace makes a flag of 0 mean what it says.
func grace(d time.Duration) time.Duration {
	if d <= 0 {
		return -1
	}
	return d
}

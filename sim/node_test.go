package sim_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/pipenet"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
)

const leaseTTL = 10 * time.Second

// node is a process: a runner and a server over logs of its own.
type node struct {
	w        *world
	name     string
	link     *link
	logs     *spool.Logs
	server   *server.Server
	http     *http.Server
	listener *pipenet.Listener
	leave    context.CancelFunc // the runner drains
	runner   *runner.Runner
	left     chan struct{} // the runner has ended
	skew     atomic.Int64
	ids      atomic.Int64
}

// start starts another node.
func (w *world) start() {
	w.mu.Lock()
	w.names++
	n := &node{w: w, name: fmt.Sprintf("n%d", w.names), listener: pipenet.Listen(), left: make(chan struct{})}
	outage := time.Until(w.outage)
	w.mu.Unlock()
	rnd := w.random(n.name)
	n.skew.Store(rnd.Int64N(int64(2*w.weather.skew)+1) - int64(w.weather.skew))
	n.link = newLink(w, n.name)
	if outage > 0 && !w.isCalm() {
		n.link.interrupt(outage)
	}
	n.logs = spool.NewLogs(n.link, &spool.Options{
		Now:   func() time.Time { return time.Now().Add(time.Duration(n.skew.Load())) },
		NewID: func() string { return fmt.Sprintf("%s-%06d", n.name, n.ids.Add(1)) },
	})
	agents := []*agent.Agent{w.agent(n)}
	var err error
	n.runner, err = runner.New(n.logs, agents, &runner.Options{
		LeaseTTL: leaseTTL, MaxRecoveries: 1 << 20, DrainGrace: 5 * time.Second,
		Observer: runner.Observer{Failed: func(session string, err error) { w.happened("%s cannot serve %s: %v", n.name, session, err) }},
	})
	if err != nil {
		panic(err) // a mistake in the simulator
	}
	n.server = server.New(n.logs, &server.Options{Chat: chat.Options{Agents: agents, ReplayGrace: 24 * time.Hour}})
	n.http = &http.Server{Handler: n.server, ErrorLog: log.New(io.Discard, "", 0)}
	var ctx context.Context
	ctx, n.leave = context.WithCancel(context.Background())
	go func() { _ = n.http.Serve(n.listener) }()
	go func() { defer close(n.left); _ = n.runner.Run(ctx) }()
	w.happened("%s starts, its clock %v", n.name, time.Duration(n.skew.Load()))
	w.mu.Lock()
	w.nodes = append(w.nodes, n)
	w.mu.Unlock()
}

func (w *world) startLater(d time.Duration) {
	w.ended.Go(func() {
		time.Sleep(d)
		if !w.isCalm() {
			w.start()
		}
	})
}

// route returns a node for a connection, nil if there is none.
func (w *world) route(c *chance) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.nodes) == 0 {
		return nil
	}
	return w.nodes[c.below(int64(len(w.nodes)))]
}

func (w *world) anyNode(rnd *rand.Rand) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.nodes) == 0 {
		return nil
	}
	return w.nodes[rnd.IntN(len(w.nodes))]
}

func (w *world) remove(n *node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = slices.DeleteFunc(w.nodes, func(o *node) bool { return o == n })
}

// kill ends a node at once: nothing of it gets through any more.
func (w *world) kill(n *node) {
	w.happened("%s is killed", n.name)
	w.remove(n)
	_ = n.http.Close() // first: the dead give no answers
	n.link.die()
	w.ended.Go(n.end)
}

// drain lets a node hand over and end.
func (w *world) drain(n *node) {
	w.happened("%s drains", n.name)
	w.remove(n)
	w.ended.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = n.server.Shutdown(ctx)
		n.leave()
		<-n.left
		w.happened("%s has drained", n.name)
		_ = n.http.Close()
		n.end()
	})
}

// stop ends a node and waits for it.
func (w *world) stop(n *node) {
	w.remove(n)
	_ = n.http.Close()
	n.end()
}

func (n *node) end() {
	n.leave()
	_ = n.runner.Close()
	<-n.left
	_ = n.logs.Close()
	n.link.die()
}

// step sets the node's clock.
func (n *node) step(skew time.Duration) {
	n.w.happened("the clock of %s steps to %v", n.name, skew)
	n.skew.Store(int64(skew))
}

//go:build nodes

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/internal/netcut"
)

const (
	nodeCount = 3
	nodeLease = 2 * time.Second
	patience  = 4 * time.Minute // which ends what hangs, so that it says what it waits for
	crashRest = 30 * time.Second
)

// Three processes serve one store, while runs are started, watched, stopped and decided on
// any of them, and one fault after the other happens to them: kill -9, a process that stands
// still for longer than its lease, connections to the store that are cut, slow, silent or
// refused, the store's own server killed. In the end every run is settled, every reader shows
// what its log says, nothing that was acknowledged is missing, nothing is doubled, and
// neither the provider nor a tool was asked twice for what is in the log.
//
// Every fault happens once; SPOOL_NODES=5m repeats them for that long, and until there were a
// hundred runs. SPOOL_SEED repeats the choices of a test that failed.
func TestNodes(t *testing.T) {
	for _, s := range sharedStores {
		t.Run(s.name, func(t *testing.T) {
			c := newCluster(t, s)
			c.play()
			c.settle()
			c.report()
		})
	}
}

// cluster is a store's nodes, and what happens to them.
type cluster struct {
	t       *testing.T
	seed    uint64
	rnd     *rand.Rand // of the driver alone
	servers storeServers
	outside *outside
	readers *readers
	nodes   []*clusterNode
	crashed time.Time
	probes  int
	faults  map[string]int
	least   int // runs, without probes

	mu       sync.Mutex
	sessions map[string]*nodesRun
	begun    int
	over     bool
}

type clusterNode struct {
	url    string
	addr   string // HOST:PORT, the same after every start
	store  string
	server *spoolServer
	net    []*netcut.Proxy // its connections to each of the store's servers
}

// nodesRun is a session with one turn.
type nodesRun struct {
	session, scene string
	stopped        bool   // the stop was acknowledged
	log            string // as it was when the run had ended
	outcome        chunk.Outcome
	recovered      int
	progress       atomic.Int64 // the steps and pauses that the log's reader has seen
	ended          atomic.Bool  // that reader has seen the run's end
}

func newCluster(t *testing.T, s sharedStore) *cluster {
	c := &cluster{t: t, seed: 1, outside: newOutside(t), readers: newReaders(t), servers: s.start(t), faults: map[string]int{}, sessions: map[string]*nodesRun{}}
	if text := os.Getenv("SPOOL_SEED"); text != "" {
		var err error
		if c.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	c.rnd = rand.New(rand.NewPCG(c.seed, 0))
	for range nodeCount {
		n := &clusterNode{addr: engines.Loopback(engines.FreePort(t))}
		n.url = "http://" + n.addr
		var through []string
		for _, addr := range c.servers.addrs {
			p, err := netcut.Start(addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			n.net, through = append(n.net, p), append(through, p.Addr())
		}
		n.store = c.servers.url(through)
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes { // some wait for the others
		c.launch(n)
	}
	for _, n := range c.nodes {
		n.server.awaitURL()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("SPOOL_SEED=%d repeats the choices", c.seed)
			for i, n := range c.nodes {
				t.Logf("node %d: %s", i, lastLines(n.server.log.String(), 60))
			}
		}
	})
	return c
}

func lastLines(text string, n int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

// start starts a node's process, after the first time on the same address.
func (c *cluster) start(n *clusterNode) {
	c.t.Helper()
	c.launch(n)
	n.server.awaitURL()
}

func (c *cluster) launch(n *clusterNode) {
	c.t.Helper()
	program := c.servers.program
	if program == "" {
		program = spoolPath(c.t)
	}
	n.server = launchSpool(c.t, program, []string{"OPENAI_BASE_URL=" + c.outside.provider.URL + "/v1"},
		"serve", "--addr", n.addr, "--store", n.store, "--model", "openai:scenes", "--mcp", c.outside.tools.URL,
		"--lease-ttl", nodeLease.String(), "--heartbeat", "1s", "--trace-age", "0", "--trace-records", "0", "--drain-grace", "1s")
}

// anyNode is a client whose requests go to any node.
func (c *cluster) anyNode(seed uint64) *client.Client {
	return c.clientOf("http://spool", &anyNode{rnd: rand.New(rand.NewPCG(c.seed, seed)), nodes: c.urls()})
}

func (c *cluster) clientOf(url string, transport http.RoundTripper) *client.Client {
	k, err := client.New(url, &client.Options{HTTP: &http.Client{Transport: transport}, Timeout: 4 * time.Second, Idle: 4 * time.Second,
		Retry: client.Retry{Max: -1, Base: 10 * time.Millisecond, Cap: 200 * time.Millisecond}})
	if err != nil {
		panic(err) // the options are wrong
	}
	return k
}

func (c *cluster) urls() (list []string) {
	for _, n := range c.nodes {
		list = append(list, n.url)
	}
	return list
}

// anyNode sends each request to any node, as a load balancer without memory does.
type anyNode struct {
	mu    sync.Mutex
	rnd   *rand.Rand
	nodes []string
}

func (a *anyNode) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	to, err := url.Parse(a.nodes[a.rnd.IntN(len(a.nodes))])
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = to.Host, to.Host
	return http.DefaultTransport.RoundTrip(r)
}

// play has users at work while faults happen.
func (c *cluster) play() {
	var users sync.WaitGroup
	defer users.Wait()
	defer func() {
		c.mu.Lock()
		c.over = true
		c.mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	for range 4 {
		users.Go(func() {
			for {
				n, more := c.next()
				if !more {
					return
				}
				scene := []string{"say", "look", "pay", "book"}[n%4]
				if err := c.turn(ctx, uint64(n), scene, nil); err != nil {
					c.t.Errorf("run %d: %v", n, err)
					return
				}
			}
		})
	}
	length := time.Duration(0)
	c.least = 20
	if text := os.Getenv("SPOOL_NODES"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			c.t.Error(err)
			return
		}
		c.least = 100
	}
	for began := time.Now(); !c.t.Failed(); {
		for _, f := range c.shuffled() {
			if c.t.Failed() {
				return
			}
			c.await("a node with a run", func() bool { return c.busiest() != nil })
			c.t.Logf("%s", f.name)
			goOn := c.goOn()
			f.do(c)
			c.faults[f.name]++
			c.probe(ctx)
			c.await("a run to go on after a fault", goOn)
		}
		if c.mu.Lock(); time.Since(began) >= length && c.begun >= c.least {
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// next numbers the next run; false: there are enough.
func (c *cluster) next() (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
	return c.begun, !c.over && !c.t.Failed()
}

// clusterFault is something that happens to a cluster.
type clusterFault struct {
	name string
	do   func(*cluster)
}

func (c *cluster) shuffled() []clusterFault {
	list := []clusterFault{
		{"kill -9 of a node", func(c *cluster) {
			n := c.victim()
			n.server.kill()
			c.start(n)
		}},
		{"a node stands still past its lease", func(c *cluster) {
			p := c.victim().server.cmd.Process
			c.signal(p, stopSignal)
			time.Sleep(2 * nodeLease) // how long the fault lasts
			c.signal(p, continueSignal)
		}},
		{"a run is stopped", (*cluster).stop},
	}
	if len(c.servers.addrs) > 0 {
		list = append(list, connectionFaults...)
	}
	if c.servers.crash != nil {
		list = append(list, clusterFault{"the store's server is killed", func(c *cluster) {
			time.Sleep(time.Until(c.crashed.Add(crashRest))) // the first one comes at once
			c.servers.crash()
			c.crashed = time.Now()
		}})
	}
	c.rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// connectionFaults happen to the connections of a node with the store.
var connectionFaults = []clusterFault{
	{"connections are cut", func(c *cluster) {
		for _, p := range c.victim().net {
			p.Cut()
		}
	}},
	{"connections are cut in a request", func(c *cluster) {
		c.cut(netcut.Request, 1+c.rnd.Int64N(600))
	}},
	{"an answer is lost", func(c *cluster) { c.cut(netcut.Answer, c.rnd.Int64N(50)) }},
	{"connections are slow", func(c *cluster) { c.during(func(p *netcut.Proxy) { p.Delay(netcut.Both, 50*time.Millisecond) }) }},
	{"connections are silent", func(c *cluster) { c.during(func(p *netcut.Proxy) { p.Swallow(netcut.Both) }) }},
	{"what is sent arrives late", func(c *cluster) { c.during(func(p *netcut.Proxy) { p.Hold(netcut.Request) }) }},
	{"the store is away", func(c *cluster) { c.during(func(p *netcut.Proxy) { p.Refuse(); p.Cut() }) }},
}

// during has a fault of a node's connections last for longer than a lease.
func (c *cluster) during(begin func(*netcut.Proxy)) {
	n := c.victim()
	for _, p := range n.net {
		begin(p)
	}
	time.Sleep(2 * nodeLease)
	for _, p := range n.net {
		p.Restore()
	}
}

// cut cuts the node's connections with the first server that gets or sends so many bytes.
func (c *cluster) cut(d netcut.Direction, n int64) {
	victim := c.victim()
	first := make(chan struct{}, len(victim.net))
	for _, p := range victim.net {
		cut := p.CutAfter(d, n)
		go func() {
			select {
			case <-cut:
				first <- struct{}{}
			case <-c.t.Context().Done():
			}
		}()
	}
	select {
	case <-first:
	case <-time.After(patience):
		c.t.Error("nothing is sent to the store")
	}
	for _, p := range victim.net {
		p.Restore()
	}
}

// victim is the node that has the most runs.
func (c *cluster) victim() *clusterNode {
	if n := c.busiest(); n != nil {
		return n
	}
	return c.nodes[c.rnd.IntN(len(c.nodes))]
}

// busiest is the node that has the most runs; nil if none has one.
func (c *cluster) busiest() *clusterNode {
	var found *clusterNode
	most := 0
	for _, n := range c.nodes {
		if served := n.served(); served > most {
			found, most = n, served
		}
	}
	return found
}

// served is how many sessions a node has leases of; 0 if it does not answer.
func (n *clusterNode) served() int {
	k := http.Client{Timeout: 2 * time.Second}
	res, err := k.Get(n.url + "/metrics")
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "spool_sessions_served "); ok {
			served, _ := strconv.Atoi(strings.TrimSpace(value))
			return served
		}
	}
	return 0
}

// await tries until a check holds, for what comes and stays.
func (c *cluster) await(what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Errorf("waited too long for %s", what)
			return
		}
		if c.t.Failed() {
			return
		}
	}
}

func (c *cluster) signal(p *os.Process, s os.Signal) {
	if err := p.Signal(s); err != nil {
		c.t.Error(err)
	}
}

// probe returns when every node has stored something again: a message, which begins a run of
// its own that nobody watches.
func (c *cluster) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.probes++
	for i, n := range c.nodes {
		r := &nodesRun{scene: "say", session: fmt.Sprintf("probe-%d-%d", c.probes, i)}
		if _, err := c.clientOf(n.url, http.DefaultTransport).Session(r.session).Send(ctx, r.message()); err != nil {
			c.t.Errorf("node %d after a fault: %v", i, err)
		}
		c.add(r)
	}
}

// goOn returns a check that each run of now has ended or committed a step since: a run that
// loses its process five times in one step fails.
func (c *cluster) goOn() func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := map[*nodesRun]int64{}
	for _, r := range c.sessions {
		if !r.ended.Load() && r.scene != "story" && !strings.HasPrefix(r.session, "probe-") {
			before[r] = r.progress.Load()
		}
	}
	return func() bool {
		for r, n := range before {
			if !r.ended.Load() && r.progress.Load() == n {
				return false
			}
		}
		return true
	}
}

func (c *cluster) add(r *nodesRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[r.session] = r
}

func (r *nodesRun) message() client.Message {
	return client.Message{ID: "u-" + r.session, Text: r.scene + " " + r.session}
}

// stop stops a run at work, on any node.
func (c *cluster) stop() {
	n, _ := c.next()
	midway := make(chan string, 1)
	stopped := make(chan error, 1)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	go func() {
		select {
		case run := <-midway:
			_, err := c.anyNode(uint64(n)).Session(fmt.Sprintf("story-%d", n)).Stop(ctx, client.StopOptions{RunID: run})
			stopped <- err
		case <-ctx.Done():
			stopped <- ctx.Err()
		}
	}()
	if err := errors.Join(c.turn(ctx, uint64(n), "story", midway), <-stopped); err != nil {
		c.t.Errorf("run %d, which was stopped: %v", n, err)
	}
}

// report says what happened, and checks that enough did.
func (c *cluster) report() {
	outcomes := map[chunk.Outcome]int{}
	runs, recovered, decided := 0, 0, 0
	for _, r := range c.sessions {
		outcomes[r.outcome]++
		if !strings.HasPrefix(r.session, "probe-") {
			runs++
		}
		recovered += r.recovered
		if r.scene == "book" {
			decided++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.faults)) {
		c.t.Logf("%3d × %s", c.faults[name], name)
	}
	c.t.Logf("%d runs and %d probes: %v; %d decisions; %d times another node went on with a run", runs, len(c.sessions)-runs, outcomes, decided, recovered)
	switch {
	case c.t.Failed():
	case runs < c.least, outcomes[chunk.OutcomeCompleted] < len(c.sessions)-c.faults["a run is stopped"], outcomes[chunk.OutcomeStopped] != c.faults["a run is stopped"], decided == 0, recovered == 0:
		c.t.Error("too little has happened")
	}
	for _, f := range c.shuffled() {
		if c.faults[f.name] == 0 && !c.t.Failed() {
			c.t.Errorf("it never happened that %s", f.name)
		}
	}
}

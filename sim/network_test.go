package sim_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
)

// network connects clients with nodes, by pipes that have the time of the bubble. Each
// connection goes to a node of its own, as behind a load balancer.
type network struct {
	w      *world
	chance chance
	client *http.Client

	mu    sync.Mutex
	conns map[*conn]bool
}

func newNetwork(w *world) *network {
	n := &network{w: w, chance: chance{rnd: w.random("network")}, conns: map[*conn]bool{}}
	n.client = &http.Client{Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true, DisableCompression: true}}
	return n
}

func (n *network) close() { n.client.CloseIdleConnections() }

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errors.New("connection refused"))}

// dial connects to one of the nodes.
func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	calm := n.w.isCalm()
	to := n.w.route(&n.chance)
	if to == nil || !calm && n.chance.happens(n.w.weather.dials) {
		return nil, errRefused
	}
	here, err := to.listener.Dial(ctx, "", "")
	switch {
	case errors.Is(err, net.ErrClosed):
		return nil, errRefused
	case err != nil:
		return nil, err
	}
	c := &conn{Conn: here, n: n, left: -1}
	if !calm && n.chance.happens(n.w.weather.cuts) {
		c.left = int(n.chance.below(int64(n.w.weather.bytes)))
	}
	n.mu.Lock()
	n.conns[c] = true
	n.mu.Unlock()
	return c, nil
}

// cutAll cuts all connections.
func (n *network) cutAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		_ = c.Conn.Close()
	}
	clear(n.conns)
}

// conn is a client's connection, which is cut after some bytes of the answer.
type conn struct {
	net.Conn
	n    *network
	left int // -1: it is not cut
}

var errCut = errors.New("sim: the connection was cut")

func (c *conn) Read(p []byte) (int, error) {
	if c.left == 0 {
		_ = c.Close()
		return 0, errCut
	}
	if c.left > 0 {
		p = p[:min(len(p), c.left)]
	}
	k, err := c.Conn.Read(p)
	if c.left > 0 {
		c.left -= k
	}
	return k, err
}

func (c *conn) Close() error {
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return c.Conn.Close()
}

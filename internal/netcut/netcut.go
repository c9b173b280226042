// Package netcut is a TCP proxy for tests that makes the faults of a network: connections
// that end, at once or after a number of bytes, that are refused, that are slow, that wait,
// and that lose what is sent. Each fault is for one direction, or for both.
package netcut

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Direction is where bytes go. Both names both directions.
type Direction int

const (
	Request Direction = 1 << iota // from the client to the server
	Answer                        // from the server to the client
	Both    = Request | Answer
)

// fault is what happens to the bytes of one direction.
type fault struct {
	delay   time.Duration
	hold    bool
	swallow bool
	armed   chan struct{} // of CutAfter, closed when it has cut; nil: it was not called
	left    int64         // bytes that still pass before that
}

// Proxy passes connections on to a server. Its methods may be called at any time, by
// several goroutines.
type Proxy struct {
	listener net.Listener
	pumps    sync.WaitGroup

	mu      sync.Mutex
	target  string
	closed  bool
	refuse  bool
	request fault
	answer  fault
	conns   map[*conn]bool
	changed chan struct{} // closed, and replaced, when held bytes may go on
}

// conn is a client's connection and the one to the server that belongs to it.
type conn struct {
	client, server *net.TCPConn
	once           sync.Once
	gone           chan struct{}

	// The proxy's mutex guards these.
	holed  bool // bytes were swallowed
	doomed bool // by CutAfter: nothing passes any more
}

// Start listens on a free loopback port and passes connections on to the target, HOST:PORT.
func Start(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, conns: map[*conn]bool{}, changed: make(chan struct{})}
	p.pumps.Go(p.accept)
	return p, nil
}

// Addr is where clients connect, HOST:PORT.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends everything and waits for it.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.pumps.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // Close was called before
	}
	return err
}

// SetTarget passes new connections on to another server. Open ones stay where they are.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Cut resets all open connections and returns how many there were.
func (p *Proxy) Cut() int {
	conns := p.open(func(*conn) bool { return true })
	for _, c := range conns {
		c.close(true)
	}
	return len(conns)
}

// CutAfter ends all open connections after n more bytes in a direction, of all connections
// together. With Both each direction has n bytes, and the first to pass them cuts. It happens
// once; the channel is closed then. CutAfter(Answer, 0) loses the next answer to a request
// that has arrived. A later call for the same direction replaces an earlier one.
func (p *Proxy) CutAfter(d Direction, n int64) <-chan struct{} {
	done := make(chan struct{})
	p.set(d, func(f *fault) { f.armed, f.left = done, n })
	return done
}

// Refuse ends new connections at once. Open ones stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
}

// Delay lets each piece of a direction wait before it passes.
func (p *Proxy) Delay(d Direction, by time.Duration) { p.set(d, func(f *fault) { f.delay = by }) }

// Hold keeps the bytes of a direction back until Restore, which lets them pass: a partition
// that ends before the connections do.
func (p *Proxy) Hold(d Direction) { p.set(d, func(f *fault) { f.hold = true }) }

// Swallow loses the bytes of a direction while the connections stay open, so that one side
// thinks the other is silent. Restore resets the connections that lost some.
func (p *Proxy) Swallow(d Direction) { p.set(d, func(f *fault) { f.swallow = true }) }

// Restore ends all faults.
func (p *Proxy) Restore() {
	p.mu.Lock()
	p.refuse = false
	p.mu.Unlock()
	p.set(Both, func(f *fault) { *f = fault{} })
	for _, c := range p.open(func(c *conn) bool { return c.holed }) {
		c.close(true)
	}
}

// Holed returns how many open connections have lost bytes to Swallow.
func (p *Proxy) Holed() int { return len(p.open(func(c *conn) bool { return c.holed })) }

func (p *Proxy) set(d Direction, change func(*fault)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d&Request != 0 {
		change(&p.request)
	}
	if d&Answer != 0 {
		change(&p.answer)
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// open lists the open connections of a kind.
func (p *Proxy) open(want func(*conn) bool) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*conn
	for c := range p.conns {
		if want(c) {
			list = append(list, c)
		}
	}
	return list
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.pumps.Go(func() { p.connect(client.(*net.TCPConn)) })
	}
}

func (p *Proxy) connect(client *net.TCPConn) {
	p.mu.Lock()
	target, refuse := p.target, p.refuse
	p.mu.Unlock()
	if refuse {
		reset(client)
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		reset(client)
		return
	}
	c := &conn{client: client, server: server.(*net.TCPConn), gone: make(chan struct{})}
	p.mu.Lock()
	late := p.closed || p.refuse
	if !late {
		p.conns[c] = true
	}
	p.mu.Unlock()
	if late {
		c.close(true)
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(c, c.server, c.client, &p.request) })
	both.Go(func() { p.pump(c, c.client, c.server, &p.answer) })
	both.Wait()
	c.close(false)
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// pump passes the bytes of one direction of a connection.
func (p *Proxy) pump(c *conn, to, from *net.TCPConn, f *fault) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(c, to, buf[:n], f) {
			return
		}
		if errors.Is(err, io.EOF) {
			_ = to.CloseWrite()
			return
		}
		if err != nil {
			c.close(true)
			return
		}
	}
}

// pass does to a piece what the fault says; false: the connection is over.
func (p *Proxy) pass(c *conn, to *net.TCPConn, piece []byte, f *fault) bool {
	if !p.wait(c, f) {
		return false
	}
	p.mu.Lock()
	if f.swallow {
		c.holed = true
		p.mu.Unlock()
		return true
	}
	if c.doomed {
		p.mu.Unlock()
		return false
	}
	var cut chan struct{}
	if f.armed != nil && int64(len(piece)) >= f.left {
		cut, piece = f.armed, piece[:f.left]
		p.doom(cut)
	} else {
		f.left -= int64(len(piece))
	}
	p.mu.Unlock()
	_, err := to.Write(piece)
	if cut != nil {
		for _, c := range p.open(func(c *conn) bool { return c.doomed }) {
			c.close(false) // not with a reset, which could overtake the bytes before it
		}
		close(cut)
		return false
	}
	if err != nil {
		c.close(true)
	}
	return err == nil
}

// doom ends the fault of CutAfter that has this channel, and lets nothing more pass on the
// open connections.
func (p *Proxy) doom(armed chan struct{}) {
	for _, f := range []*fault{&p.request, &p.answer} {
		if f.armed == armed {
			f.armed = nil
		}
	}
	for c := range p.conns {
		c.doomed = true
	}
}

// wait returns when a piece may pass; false: the connection is over.
func (p *Proxy) wait(c *conn, f *fault) bool {
	p.mu.Lock()
	delay := f.delay
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.gone:
			return false
		}
	}
	for {
		p.mu.Lock()
		hold, changed := f.hold, p.changed
		p.mu.Unlock()
		if !hold {
			return true
		}
		select {
		case <-changed:
		case <-c.gone:
			return false
		}
	}
}

// close ends both sides, with a reset or as a server that closes its connections.
func (c *conn) close(hard bool) {
	c.once.Do(func() {
		close(c.gone)
		for _, side := range []*net.TCPConn{c.client, c.server} {
			if hard {
				reset(side)
			} else {
				_ = side.Close()
			}
		}
	})
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

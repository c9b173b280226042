package netcut_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/netcut"
)

// echo is a server that sends back what it gets, and counts it.
type echo struct {
	l   net.Listener
	all sync.WaitGroup

	mu  sync.Mutex
	got int
}

func newEcho(t *testing.T) *echo {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{l: l}
	e.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.all.Go(func() { e.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		e.all.Wait()
	})
	return e
}

func (e *echo) serve(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 1024)
	for {
		n, err := c.Read(buf)
		e.mu.Lock()
		e.got += n
		e.mu.Unlock()
		if _, werr := c.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (e *echo) received() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got
}

func newProxy(t *testing.T, target string) *netcut.Proxy {
	p, err := netcut.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func dial(t *testing.T, p *netcut.Proxy) net.Conn {
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c net.Conn, text string) {
	t.Helper()
	buf := make([]byte, len(text))
	if n, err := io.ReadFull(c, buf); err != nil || string(buf) != text {
		t.Fatalf("got %q and %v, want %q", buf[:n], err, text)
	}
}

// over checks that a connection has ended, and returns what it brought before.
func over(t *testing.T, c net.Conn) string {
	t.Helper()
	rest, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection is still open")
	}
	return string(rest)
}

// refused checks that a new connection ends at once.
func refused(t *testing.T, p *netcut.Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer c.Close()
	over(t, c)
}

func TestPassesBytesAndTheEnd(t *testing.T) {
	c := dial(t, newProxy(t, newEcho(t).l.Addr().String()))
	send(t, c, "one\n")
	expect(t, c, "one\n")
	send(t, c, "two\n")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := over(t, c); got != "two\n" {
		t.Errorf("after the end of requests came %q", got)
	}
}

func TestCut(t *testing.T) {
	p := newProxy(t, newEcho(t).l.Addr().String())
	a, b := dial(t, p), dial(t, p)
	for _, c := range []net.Conn{a, b} {
		send(t, c, "x")
		expect(t, c, "x")
	}
	if n := p.Cut(); n != 2 {
		t.Errorf("%d connections were cut, want 2", n)
	}
	over(t, a)
	over(t, b)
	c := dial(t, p)
	send(t, c, "y")
	expect(t, c, "y")
}

func TestCutAfter(t *testing.T) {
	for _, test := range []struct {
		name             string
		direction        netcut.Direction
		n                int64
		arrives, returns int
	}{
		{"the whole request, no answer", netcut.Answer, 0, 6, 0},
		{"a part of the answer", netcut.Answer, 4, 6, 4},
		{"a part of the request", netcut.Request, 4, 4, -1},
		{"no request", netcut.Request, 0, 0, 0},
		{"exactly the answer", netcut.Answer, 6, 6, 6},
		{"either direction", netcut.Both, 3, 3, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEcho(t)
			p := newProxy(t, e.l.Addr().String())
			c := dial(t, p)
			send(t, c, "hi")
			expect(t, c, "hi")
			cut := p.CutAfter(test.direction, test.n)
			send(t, c, "123456")
			<-cut
			got := over(t, c)
			if len(got) != test.returns && test.returns >= 0 {
				t.Errorf("%q came back, want %d bytes", got, test.returns)
			}
			// Once only.
			again := dial(t, p)
			send(t, again, "7890")
			expect(t, again, "7890")
			// A reset may overtake what is not read yet.
			if n := e.received() - len("hi") - len("7890"); n > test.arrives || n < test.arrives && test.direction != netcut.Both {
				t.Errorf("%d bytes arrived, want %d", n, test.arrives)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	p := newProxy(t, newEcho(t).l.Addr().String())
	old := dial(t, p)
	send(t, old, "x")
	expect(t, old, "x")
	p.Refuse()
	refused(t, p)
	send(t, old, "y")
	expect(t, old, "y")
	p.Restore()
	c := dial(t, p)
	send(t, c, "z")
	expect(t, c, "z")
}

func TestRefusesWithoutAServer(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, "127.0.0.1:1")
	refused(t, p)
	p.SetTarget(e.l.Addr().String())
	c := dial(t, p)
	send(t, c, "x")
	expect(t, c, "x")
}

func TestHold(t *testing.T) {
	for _, d := range []netcut.Direction{netcut.Request, netcut.Answer, netcut.Both} {
		e := newEcho(t)
		p := newProxy(t, e.l.Addr().String())
		c, other := dial(t, p), dial(t, p)
		p.Hold(d)
		send(t, c, "123")
		send(t, other, "456")
		if err := c.SetReadDeadline(time.Now()); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 9)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read %d bytes that are held, and %v", n, err)
		}
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		p.Restore()
		expect(t, c, "123")
		expect(t, other, "456")
	}
}

func TestSwallow(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.l.Addr().String())
	c, quiet := dial(t, p), dial(t, p)
	for _, c := range []net.Conn{c, quiet} {
		send(t, c, "x")
		expect(t, c, "x")
	}
	p.Swallow(netcut.Request)
	send(t, c, "lost")
	swallowed := dial(t, p)
	send(t, swallowed, "lost too")
	// A connection without anything lost goes on after Restore. Those with a hole do not.
	waitHoled(t, p, 2)
	p.Restore()
	over(t, c)
	over(t, swallowed)
	send(t, quiet, "y")
	expect(t, quiet, "y")
	if n := e.received(); n != 3 {
		t.Errorf("%d bytes arrived, want 3", n)
	}
}

func waitHoled(t *testing.T, p *netcut.Proxy, n int) {
	t.Helper()
	for p.Holed() < n {
		time.Sleep(time.Millisecond)
	}
}

func TestDelay(t *testing.T) {
	p := newProxy(t, newEcho(t).l.Addr().String())
	c := dial(t, p)
	const by = 30 * time.Millisecond
	p.Delay(netcut.Both, by)
	began := time.Now()
	send(t, c, "x")
	expect(t, c, "x")
	if took := time.Since(began); took < 2*by {
		t.Errorf("there and back took %v, want %v at least", took, 2*by)
	}
	// A connection that waits ends at once when it is cut.
	p.Delay(netcut.Answer, time.Hour)
	send(t, c, "y")
	p.Cut()
	over(t, c)
	p.Restore()
}

// Faults come and go while connections are busy: nothing is doubled or out of order.
func TestFaultsWhileBusy(t *testing.T) {
	p := newProxy(t, newEcho(t).l.Addr().String())
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 20 {
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue // refused
				}
				talk(t, c)
				_ = c.Close()
			}
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	for n := int64(0); ; n++ {
		select {
		case <-done:
			return
		default:
		}
		switch n % 5 {
		case 0:
			p.Cut()
		case 1:
			p.CutAfter(netcut.Both, n%40)
		case 2:
			p.Delay(netcut.Both, time.Microsecond)
		case 3:
			p.Hold(netcut.Answer)
			p.Refuse()
		case 4:
			p.Swallow(netcut.Request)
		}
		p.Restore()
	}
}

// talk sends lines until the connection ends; each must come back as it was.
func talk(t *testing.T, c net.Conn) {
	r := bufio.NewReader(c)
	for n := range 50 {
		line := string(rune('a'+n%26)) + "line\n"
		if _, err := io.WriteString(c, line); err != nil {
			return
		}
		got, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if got != line {
			t.Errorf("got %q, want %q", got, line)
			return
		}
	}
}

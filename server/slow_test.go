package server_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// pipes is a network without buffers that has the time of its bubble.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.dialed <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// TestSlowReader: a reader that stops reading is cut by the write deadline, and
// not before, while others go on; it comes back to the same message.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKitAt(t, memstore.New(nil), &server.Options{WriteTimeout: 3 * time.Second})
		network := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
		_ = k.http.Listener.Close()
		k.http.Listener = network
		k.http.Start()
		k.http.Client().Transport.(*http.Transport).DialContext = network.dial

		e := k.say("s", "u1", "hi")
		o := k.own("s")
		o.start("u1")
		conn, err := network.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /api/chat/s/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		fast := make(chan []event)
		go func() { fast <- e.all() }()
		o.text("begins ")
		slow := bufio.NewReader(conn)
		for line := ""; !strings.Contains(line, "begins"); {
			if line, err = slow.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}

		cut := func() bool {
			return strings.Contains(string(k.status(http.StatusOK, "GET", "/metrics", "")), `spool_reader_ends_total{reason="slow"} 1`)
		}
		o.text("goes on ")
		time.Sleep(2 * time.Second)
		if cut() {
			t.Error("a reader was cut before its time")
		}
		time.Sleep(2 * time.Second)
		if !cut() {
			t.Error("a reader that reads nothing was not cut")
		}
		o.text("ends")
		o.finish()
		const want = "begins goes on ends"
		if got := textOf(<-fast); got != want {
			t.Errorf("the other reader has %q", got)
		}
		// What reached the slow one ends in the middle, and never with an end.
		raw, _ := io.ReadAll(slow)
		if strings.Contains(string(raw), "[DONE]") || strings.HasSuffix(string(raw), "0\r\n\r\n") {
			t.Errorf("the slow reader was told that the stream is complete: %q", raw)
		}
		if got := textOf(k.stream("GET", "/api/chat/s/stream", "").all()); got != want {
			t.Errorf("back again it has %q", got)
		}
	})
}

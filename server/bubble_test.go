package server_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

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

// inBubble runs a test whose server has a time of its own, which no slow machine
// can use up.
func inBubble(t *testing.T, o *server.Options, test func(k *kit)) {
	inBubbleAs(t, o, func(*kit, *http.Transport) {}, test)
}

// inBubbleAs is inBubble; prepare is called before the server starts.
func inBubbleAs(t *testing.T, o *server.Options, prepare func(k *kit, client *http.Transport), test func(k *kit)) {
	synctest.Test(t, func(t *testing.T) {
		k := newKitAt(t, memstore.New(nil), o)
		network := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
		_ = k.http.Listener.Close()
		k.http.Listener = network
		client := &http.Transport{DialContext: network.dial}
		prepare(k, client)
		k.http.Start()
		k.http.Client().Transport = client
		test(k)
	})
}

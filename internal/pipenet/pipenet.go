// Package pipenet is a network of pipes for tests in virtual time: its connections have no
// buffers, and block as [testing/synctest] sees it.
package pipenet

import (
	"context"
	"net"
	"sync"
)

// Listener accepts the connections of its Dial. Make one with [Listen].
type Listener struct {
	dialed chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func Listen() *Listener {
	return &Listener{dialed: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept waits for a call of Dial. After Close it fails with [net.ErrClosed].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialed:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *Listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// Dial waits until the connection is accepted, whatever the address. After Close it fails
// with [net.ErrClosed].
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.dialed <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

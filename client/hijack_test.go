package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/server"
)

// short is a connection that breaks when so many bytes have come.
type short struct {
	net.Conn
	left int
}

func (c *short) Read(p []byte) (int, error) {
	if c.left == 0 {
		_ = c.Conn.Close()
		return 0, errors.New("the connection is broken")
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// A client whose connections break after any number of bytes has the whole log, if the
// server has taken the connections over: of a log that is finished, and of one that is
// written meanwhile.
func TestCutHijackedStreams(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{HijackStreams: true}, true)
	var length, cuts atomic.Int64 // of connections; 0: they are not cut
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if n := int(length.Load()); err == nil && n > 0 {
			cuts.Add(1)
			conn = &short{conn, n}
		}
		return conn, err
	}}
	broken := k.client(&client.Options{HTTP: &http.Client{Transport: transport}})
	s := k.client(nil).Session("s 1")
	k.send(s, "talk")
	if end, _ := k.ended(s); end.Status != chunk.StatusEnded {
		t.Fatalf("%+v", end)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for name, o := range profiles() {
		if !strings.HasPrefix(name, "native") {
			continue
		}
		want := events(t, s.Attach(t.Context(), o))
		for range 25 {
			n := 1500 + random.IntN(1500) // the head and an event have room
			length.Store(int64(n))
			got := events(t, broken.Session("s 1").Attach(t.Context(), o))
			length.Store(0)
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Fatalf("%s, cut after %d bytes: %d events\n%s\nwant %d\n%s", name, n, len(got), strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
			}
		}
	}
	for i := range 10 {
		id := fmt.Sprintf("live-%d", i)
		length.Store(int64(1500 + random.IntN(1500)))
		l := broken.Session(id).Log(t.Context(), client.LogOptions{Wait: true})
		live := k.client(nil).Session(id)
		k.send(live, "talk")
		got := k.rest(l)
		length.Store(0)
		_, want := k.ended(live)
		if len(got) != len(want) {
			t.Fatalf("%d entries, want %d", len(got), len(want))
		}
		for i := range want {
			if got[i].Seq != uint64(i+1) || string(got[i].Data) != string(want[i].Data) {
				t.Fatalf("entry %d is %d %s, want %s", i, got[i].Seq, got[i].Data, want[i].Data)
			}
		}
	}
	if n := cuts.Load(); n < 100 {
		t.Errorf("only %d connections", n)
	}
}

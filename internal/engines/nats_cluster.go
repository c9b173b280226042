//go:build unix

package engines

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// NATSCluster starts several nats-servers that replicate their JetStream. They do not tell
// clients of each other, so that these stay on the addresses that they were given.
func NATSCluster(t testing.TB, size int) []*Server {
	t.Helper()
	ports, routes := make([]int, size), make([]string, size)
	for i := range size {
		ports[i] = FreePort(t)
		routes[i] = "nats-route://" + Loopback(ports[i])
	}
	var whole atomic.Bool // before, none is ready without the others
	servers := make([]*Server, size)
	for i := range size {
		servers[i] = natsStart(t, func(ctx context.Context, addr string) error {
			if whole.Load() {
				return natsReady(ctx, addr)
			}
			_, err := natsGreeting(ctx, addr)
			return err
		}, fmt.Sprintf("server_name: n%d", i),
			fmt.Sprintf("cluster { name: test, listen: %q, no_advertise: true, routes: [%s] }", Loopback(ports[i]), strings.Join(routes, ", ")))
	}
	whole.Store(true)
	for _, s := range servers {
		awaitNATS(t, s)
	}
	return servers
}

// NATSLeader returns the server of a cluster that leads the first of its streams.
func NATSLeader(t testing.TB, servers []*Server) *Server {
	t.Helper()
	for end := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		answer, err := natsAsk(ctx, servers[0].Addr(), "$JS.API.STREAM.LIST")
		cancel()
		if m := natsLeader.FindStringSubmatch(answer); m != nil {
			return servers[m[1][0]-'0']
		}
		if time.Now().After(end) {
			t.Fatalf("nats: no stream has a leader: %v %s", err, answer)
		}
	}
}

var natsLeader = regexp.MustCompile(`"leader":"n(\d)"`)

// awaitNATS waits until a server of a cluster has its JetStream.
func awaitNATS(t testing.TB, s *Server) {
	t.Helper()
	for end := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		err := s.ask(context.Background())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nats: %v\n%s", err, s.Output())
		}
	}
}

// natsGreeting is a server's first line.
func natsGreeting(ctx context.Context, addr string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	return bufio.NewReader(conn).ReadString('\n')
}

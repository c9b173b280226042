//go:build unix

package engines

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Redis starts a redis-server that writes every command to its append-only file before it
// answers, so that nothing acknowledged is lost by a kill. Further arguments come after, and
// win: "--appendfsync", "everysec".
func Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	return Start(t, Engine{
		Name: "redis",
		Command: func(dir string, port int) *exec.Cmd {
			all := []string{
				"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--daemonize", "no",
				"--appendonly", "yes", "--appendfsync", "always", "--save", "",
				// Replicas get what they lack without a file, and at once.
				"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0",
			}
			return exec.Command("redis-server", append(all, args...)...)
		},
		Ready: redisReady,
	})
}

// RedisReplica starts a redis-server that replicates another one. It is ready when it has
// the other's data.
func RedisReplica(t testing.TB, of *Server, args ...string) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(of.Addr())
	if err != nil {
		t.Fatal(err)
	}
	s := Redis(t, append([]string{"--replicaof", host + " " + port}, args...)...)
	for {
		info, err := redisCall(context.Background(), s.Addr(), "INFO replication")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info, "master_link_status:up") {
			return s
		}
	}
}

// RedisCluster starts three primaries, which form a cluster without replicas. They keep
// nothing on a disk, unless further arguments say so.
func RedisCluster(t testing.TB, more ...string) []*Server {
	t.Helper()
	var servers []*Server
	args := []string{"--cluster", "create"}
	for range 3 {
		s := Redis(t, append([]string{"--cluster-enabled", "yes", "--appendonly", "no"}, more...)...)
		servers, args = append(servers, s), append(args, s.Addr())
	}
	if out, err := exec.Command("redis-cli", append(args, "--cluster-yes")...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli: %v: %s", err, out)
	}
	for _, s := range servers {
		for {
			info, err := redisCall(t.Context(), s.Addr(), "CLUSTER INFO")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(info, "cluster_state:ok") {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return servers
}

// redisReady answers when the server has loaded its data.
func redisReady(ctx context.Context, addr string) error {
	_, err := redisCall(ctx, addr, "PING")
	return err
}

// redisCall sends one command without arguments that need quoting, and returns the answer if
// it is a simple or a bulk string.
func redisCall(ctx context.Context, addr, command string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+':
		return rest, nil
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil {
			return "", err
		}
		body := make([]byte, max(n, 0))
		for got := 0; got < len(body); {
			m, err := r.Read(body[got:])
			if err != nil {
				return "", err
			}
			got += m
		}
		return string(body), nil
	}
	return "", fmt.Errorf("redis answers %q", line)
}

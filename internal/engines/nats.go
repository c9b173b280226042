//go:build unix

package engines

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// natsServer builds the server once for each test process; Go's build cache keeps it between
// them. It is a module of its own, so that nothing else depends on it.
var natsServer = sync.OnceValues(func() (string, error) {
	_, here, _, ok := runtime.Caller(0)
	if !ok {
		return "", fmt.Errorf("the source of package engines is not known")
	}
	cmd := exec.Command("go", "tool", "-n", "nats-server")
	cmd.Dir = filepath.Join(filepath.Dir(here), "natsserver")
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building nats-server: %w\n%s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
})

// NATS starts a nats-server with JetStream, whose data outlives a kill, but not a loss of power.
// config has further lines of its configuration.
func NATS(t testing.TB, config ...string) *Server {
	t.Helper()
	return natsStart(t, natsReady, config...)
}

func natsStart(t testing.TB, ready func(context.Context, string) error, config ...string) *Server {
	t.Helper()
	program, err := natsServer()
	if err != nil {
		t.Fatal(err)
	}
	return Start(t, Engine{
		Name: "nats",
		Prepare: func(dir string) error {
			lines := append([]string{fmt.Sprintf("jetstream { store_dir: %q }", filepath.Join(dir, "data"))}, config...)
			return os.WriteFile(filepath.Join(dir, "nats.conf"), []byte(strings.Join(lines, "\n")), 0o600)
		},
		Command: func(dir string, port int) *exec.Cmd {
			return exec.Command(program, "-a", "127.0.0.1", "-p", strconv.Itoa(port), "-c", filepath.Join(dir, "nats.conf"))
		},
		Ready: ready,
		Stop:  syscall.SIGTERM,
	})
}

// natsReady asks for the account's JetStream, which answers once it has its streams.
func natsReady(ctx context.Context, addr string) error {
	_, err := natsAsk(ctx, addr, "$JS.API.INFO")
	return err
}

// natsAsk sends a request without a body and returns the answer's.
func natsAsk(ctx context.Context, addr, subject string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB in 1\r\nPUB %s in 0\r\n\r\n", subject); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", err
		}
		switch {
		case strings.HasPrefix(line, "MSG in"):
			return r.ReadString('\n')
		case strings.HasPrefix(line, "HMSG in"), strings.HasPrefix(line, "-ERR"):
			return "", fmt.Errorf("nats answers %q", line)
		}
	}
}

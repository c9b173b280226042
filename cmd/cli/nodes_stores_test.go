//go:build nodes

package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/engines"
)

// sharedStore is a store that several nodes use at once.
type sharedStore struct {
	name  string
	start func(t *testing.T) storeServers
}

// storeServers are the servers of a store, which the test has started.
type storeServers struct {
	// addrs are where the servers listen. A store without connections has none.
	addrs []string
	// url is the --store of a node that reaches the servers at other addresses.
	url func(addrs []string) string
	// crash kills the server that leads with kill -9, and starts it again. It is nil if the
	// store has no server.
	crash func()
	// program is what the nodes run, "" for spool.
	program string
}

// sharedStores are the stores of TestNodes.
var sharedStores = []sharedStore{
	{"sqlite", func(t *testing.T) storeServers {
		db := filepath.Join(t.TempDir(), "nodes.db")
		return storeServers{url: func([]string) string { return "sqlite:" + db }}
	}},
	{"redis", func(t *testing.T) storeServers {
		s := engines.Redis(t)
		return oneServer(s, func(addr string) string { return "redis://" + addr })
	}},
	{"postgres", func(t *testing.T) storeServers { return oneServer(engines.Postgres(t), engines.PostgresURL) }},
	{"nats", func(t *testing.T) storeServers {
		servers := engines.NATSCluster(t, 3)
		var addrs []string
		for _, s := range servers {
			addrs = append(addrs, s.Addr())
		}
		return storeServers{
			addrs: addrs,
			url:   func(addrs []string) string { return "nats://" + strings.Join(addrs, ",") + "?replicas=3" },
			crash: func() {
				leader := engines.NATSLeader(t, servers)
				leader.Kill()
				leader.Start()
			},
		}
	}},
	{"nats embedded", func(t *testing.T) storeServers {
		program := filepath.Join(t.TempDir(), "spool-nats")
		build := exec.Command("go", "build", "-race", "-o", program, ".")
		build.Dir = "../spool-nats"
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var members []string
		for range nodeCount {
			members = append(members, engines.Loopback(engines.FreePort(t)))
		}
		next := 0
		return storeServers{program: program, url: func([]string) string {
			self := members[next]
			next++
			return "nats:embedded?dir=" + t.TempDir() + "&cluster=" + strings.Join(members, ",") + "&self=" + self
		}}
	}},
}

// oneServer is a store of one server, which has all its data after a kill.
func oneServer(s *engines.Server, url func(addr string) string) storeServers {
	return storeServers{addrs: []string{s.Addr()}, url: func(addrs []string) string { return url(addrs[0]) }, crash: func() {
		s.Kill()
		s.Start()
	}}
}

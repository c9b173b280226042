package redisstore

import (
	"testing"

	"github.com/spool-run/spool/store/contract"
)

// Each setting that loses something is said, with what to change.
func TestExamine(t *testing.T) {
	const good = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nconnected_slaves:0\r\naof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
	for name, x := range map[string]struct {
		more     string // lines of INFO that take the place of others
		fsync    string
		replicas int
		cluster  bool
		check    string
		want     contract.Level
	}{
		"fsync always":     {"", "always", 0, false, "durability", contract.OK},
		"fsync everysec":   {"", "everysec", 0, false, "durability", contract.Warning},
		"fsync no":         {"", "no", 0, false, "durability", contract.Warning},
		"fsync unknown":    {"", "", 0, false, "durability", contract.OK},
		"snapshots only":   {"aof_enabled:0", "everysec", 0, false, "durability", contract.Warning},
		"version":          {"", "", 0, false, "version", contract.OK},
		"an old version":   {"redis_version:6.2.1", "", 0, false, "version", contract.Warning},
		"no version":       {"redis_version:", "", 0, false, "version", contract.Warning},
		"a replica":        {"role:slave", "", 0, false, "role", contract.Problem},
		"eviction":         {"maxmemory:1000\nmaxmemory_policy:allkeys-lru", "", 0, false, "memory", contract.Problem},
		"full":             {"maxmemory:1000\nused_memory:950", "", 0, false, "memory", contract.Warning},
		"no replicas":      {"", "", 1, false, "replicas", contract.Problem},
		"not waited for":   {"connected_slaves:2", "", 0, false, "replicas", contract.Warning},
		"waited for":       {"connected_slaves:2", "", 1, false, "replicas", contract.OK},
		"a cluster":        {"", "", 0, true, "replicas", contract.Warning},
		"memory is enough": {"maxmemory:1000\nused_memory:10", "", 0, false, "memory", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got contract.Level
			for _, f := range examine(parseInfo(good+x.more), x.fsync, x.replicas, x.cluster) {
				if f.Check == x.check && got == "" {
					got = f.Level
				}
				if (f.Hint == "") != (f.Level == contract.OK) {
					t.Errorf("%+v", f)
				}
			}
			if got != x.want {
				t.Errorf("%s: %q, want %q", x.check, got, x.want)
			}
		})
	}
}

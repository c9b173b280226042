package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/store/contract"
)

var _ contract.Checker = (*Store)(nil)

// Check implements [contract.Checker]. On a cluster it looks at one of its nodes.
func (s *Store) Check(ctx context.Context) (found []contract.Finding) {
	var text, fsync string
	err := s.within(ctx, func(ctx context.Context) (err error) {
		text, err = s.client.Do(ctx, s.client.B().Info().Build()).ToString()
		return translate(err)
	})
	if err != nil {
		return []contract.Finding{{Check: "reach", Level: contract.Problem, Text: "the server does not tell its state: " + redact.Text(err.Error()),
			Hint: "see that the server runs, and that this user may call INFO"}}
	}
	_ = s.within(ctx, func(ctx context.Context) error { // servers that others run may not tell it
		settings, err := s.client.Do(ctx, s.client.B().ConfigGet().Parameter("appendfsync").Build()).AsStrMap()
		fsync = settings["appendfsync"]
		return err
	})
	return examine(parseInfo(text), fsync, s.o.Replicas, s.client.Mode() == rueidis.ClientModeCluster)
}

// parseInfo takes the text of INFO apart.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[k] = v
		}
	}
	return info
}

// oldest is the first version of Redis that the store is tested with.
const oldest = 7

// examine says what a server's state and settings mean. fsync is "" if it is not known.
func examine(info map[string]string, fsync string, replicas int, cluster bool) (found []contract.Finding) {
	say := func(check string, level contract.Level, hint, format string, args ...any) {
		found = append(found, contract.Finding{Check: check, Level: level, Hint: hint, Text: fmt.Sprintf(format, args...)})
	}
	number := func(name string) int64 { n, _ := strconv.ParseInt(info[name], 10, 64); return n }

	major, _, _ := strings.Cut(info["redis_version"], ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldest {
		say("version", contract.Warning, fmt.Sprintf("use Redis %d or newer", oldest), "the server is Redis %q, with which the store is not tested", info["redis_version"])
	} else {
		say("version", contract.OK, "", "Redis %s", info["redis_version"])
	}
	if info["role"] == "slave" {
		say("role", contract.Problem, "connect to the primary", "the server is a replica: it takes no writes")
	}
	switch {
	case info["aof_enabled"] != "1":
		say("durability", contract.Warning, "CONFIG SET appendonly yes", "if the server ends, what was stored since its last snapshot is lost")
	case fsync == "always":
		say("durability", contract.OK, "", "an append is on the server's disk before it is acknowledged")
	case fsync == "no":
		say("durability", contract.Warning, "CONFIG SET appendfsync everysec, or always", "if the server's machine fails, what its system has not written yet is lost")
	case fsync == "":
		say("durability", contract.OK, "", "the server writes an append-only file; it does not say when that reaches the disk")
	default:
		say("durability", contract.Warning, "CONFIG SET appendfsync always, if that matters; it costs a write to the disk for each append", "if the server's machine fails, the last second is lost")
	}
	if limit := number("maxmemory"); limit > 0 {
		if policy := info["maxmemory_policy"]; policy != "noeviction" {
			say("memory", contract.Problem, "CONFIG SET maxmemory-policy noeviction", "when its memory is full, the server deletes sessions: its policy is %s", policy)
		}
		if used := number("used_memory"); used > limit/10*9 {
			say("memory", contract.Warning, "raise maxmemory, or have sessions deleted by their age", "%d of the server's %d bytes are used; when they are full, nothing is stored any more", used, limit)
		}
	}
	have := int(number("connected_slaves"))
	switch {
	case replicas > have:
		say("replicas", contract.Problem, "start replicas, or lower ?wait=", "each append waits for %d replicas, and %d are connected", replicas, have)
	case replicas == 0 && (have > 0 || cluster):
		say("replicas", contract.Warning, "?wait=1 in the store's URL", "the promotion of a replica may lose what was acknowledged; that is noticed, and readers begin again")
	case replicas > 0:
		say("replicas", contract.OK, "", "each append waits for %d of %d replicas", replicas, have)
	}
	return found
}

package natsstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/store/contract"
)

var _ contract.Checker = (*Store)(nil)

// condition is what the server says of itself, of the account and of the streams.
type condition struct {
	version    string
	payload    int64 // max_payload
	used, disk int64 // bytes of the account; disk -1: no limit
	streams    []*jetstream.StreamInfo
}

// Check implements [contract.Checker].
func (s *Store) Check(ctx context.Context) []contract.Finding {
	c := condition{version: s.nc.ConnectedServerVersion(), payload: s.nc.MaxPayload()}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	account, err := s.js.AccountInfo(ctx)
	if err != nil {
		return unreachable("the account's JetStream", err)
	}
	c.used, c.disk = int64(account.Store), account.Limits.MaxStore
	for _, name := range []string{s.log, s.values} {
		stream, err := s.js.Stream(ctx, name)
		if err != nil {
			return unreachable("the stream "+name, err)
		}
		c.streams = append(c.streams, stream.CachedInfo())
	}
	return c.findings()
}

func unreachable(what string, err error) []contract.Finding {
	return []contract.Finding{{Check: "reach", Level: contract.Problem, Text: what + " does not tell its state: " + redact.Text(err.Error()),
		Hint: "see that JetStream is enabled for this account, and that this user may use PREFIX.> and $JS.API.>"}}
}

type findings []contract.Finding

func (f *findings) say(check string, level contract.Level, hint, format string, args ...any) {
	*f = append(*f, contract.Finding{Check: check, Level: level, Hint: hint, Text: fmt.Sprintf(format, args...)})
}

// The first version that the store is tested with, and the payload that every append fits in.
const (
	oldestMajor, oldestMinor = 2, 12
	enoughPayload            = 2 << 20
)

// findings says what a condition means.
func (c *condition) findings() []contract.Finding {
	var f findings
	if isOld(c.version) {
		f.say("version", contract.Problem, fmt.Sprintf("use nats-server %d.%d or newer", oldestMajor, oldestMinor), "the server is version %q, with which the store is not tested", c.version)
	} else {
		f.say("version", contract.OK, "", "nats-server %s", c.version)
	}
	if c.payload < enoughPayload {
		f.say("payload", contract.Warning, "max_payload: 2MB in the server's configuration", "messages may have %d bytes: the largest appends are refused", c.payload)
	} else {
		f.say("payload", contract.OK, "", "messages may have %d bytes", c.payload)
	}
	if c.disk > 0 && c.used > c.disk/10*9 {
		f.say("space", contract.Warning, "raise the account's limit, or have sessions deleted by their age", "%d of the account's %d bytes are used; when they are full, nothing is stored any more", c.used, c.disk)
	}
	for _, s := range c.streams {
		f.stream(s)
	}
	return f
}

// stream says how durable a stream is.
func (f *findings) stream(i *jetstream.StreamInfo) {
	o := &i.Config
	if o.Storage != jetstream.FileStorage {
		f.say("durability", contract.Problem, "move the sessions into a store whose stream has storage: file", "%s is in the memory of its servers: all is lost when they end", o.Name)
	}
	if o.MaxAge > 0 || o.MaxMsgs > 0 || o.MaxBytes > 0 || o.MaxMsgsPerSubject > 0 {
		f.say("limits", contract.Problem, "nats stream edit "+o.Name+" --max-age=-1 --max-msgs=-1 --max-bytes=-1 --max-msgs-per-subject=-1", "%s has a limit: the server deletes sessions, or refuses to store", o.Name)
	}
	inCluster := i.Cluster != nil && i.Cluster.Name != ""
	switch {
	case o.Replicas > 1:
		f.say("replicas", contract.OK, "", "%s is on %d servers; more than half of them acknowledge an append", o.Name, o.Replicas)
	case inCluster:
		f.say("replicas", contract.Warning, "nats stream edit "+o.Name+" --replicas=3", "%s is on one server of the cluster: it waits for that one, and is lost with its disk", o.Name)
	default:
		f.say("replicas", contract.OK, "", "%s is on one server, which syncs it to the disk as its sync_interval says: by default every two minutes", o.Name)
	}
	if !inCluster {
		return
	}
	for _, r := range i.Cluster.Replicas {
		if r.Offline || !r.Current {
			f.say("replicas", contract.Warning, "see that "+r.Name+" runs and reaches the others", "%s lacks its replica on %s, or that is behind", o.Name, r.Name)
		}
	}
}

// isOld reports whether a version, MAJOR.MINOR.PATCH, is older than the store's.
func isOld(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	return err != nil || err2 != nil || a < oldestMajor || a == oldestMajor && b < oldestMinor
}

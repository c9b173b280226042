package natsstore

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spool-run/spool/store/contract"
)

// Each setting that loses something is said, with what to change.
func TestExamine(t *testing.T) {
	t.Parallel()
	three := &jetstream.ClusterInfo{Name: "c", Replicas: []*jetstream.PeerInfo{{Name: "b", Current: true}, {Name: "c", Current: true}}}
	for name, x := range map[string]struct {
		change func(*condition, *jetstream.StreamInfo)
		check  string
		want   contract.Level
	}{
		"version":      {func(*condition, *jetstream.StreamInfo) {}, "version", contract.OK},
		"newer":        {func(c *condition, _ *jetstream.StreamInfo) { c.version = "3.0.0" }, "version", contract.OK},
		"old":          {func(c *condition, _ *jetstream.StreamInfo) { c.version = "2.11.9" }, "version", contract.Problem},
		"no version":   {func(c *condition, _ *jetstream.StreamInfo) { c.version = "" }, "version", contract.Problem},
		"payload":      {func(*condition, *jetstream.StreamInfo) {}, "payload", contract.OK},
		"little":       {func(c *condition, _ *jetstream.StreamInfo) { c.payload = 1 << 20 }, "payload", contract.Warning},
		"no limit":     {func(c *condition, _ *jetstream.StreamInfo) { c.used = 1 << 40 }, "space", ""},
		"full":         {func(c *condition, _ *jetstream.StreamInfo) { c.used, c.disk = 95, 100 }, "space", contract.Warning},
		"file":         {func(*condition, *jetstream.StreamInfo) {}, "durability", ""},
		"memory":       {func(_ *condition, i *jetstream.StreamInfo) { i.Config.Storage = jetstream.MemoryStorage }, "durability", contract.Problem},
		"age":          {func(_ *condition, i *jetstream.StreamInfo) { i.Config.MaxAge = time.Hour }, "limits", contract.Problem},
		"bytes":        {func(_ *condition, i *jetstream.StreamInfo) { i.Config.MaxBytes = 1 }, "limits", contract.Problem},
		"unlimited":    {func(_ *condition, i *jetstream.StreamInfo) { i.Config.MaxBytes, i.Config.MaxMsgs = -1, -1 }, "limits", ""},
		"one server":   {func(*condition, *jetstream.StreamInfo) {}, "replicas", contract.OK},
		"one of three": {func(_ *condition, i *jetstream.StreamInfo) { i.Cluster = three }, "replicas", contract.Warning},
		"three":        {func(_ *condition, i *jetstream.StreamInfo) { i.Cluster, i.Config.Replicas = three, 3 }, "replicas", contract.OK},
		"one is away": {func(_ *condition, i *jetstream.StreamInfo) {
			i.Cluster, i.Config.Replicas = &jetstream.ClusterInfo{Name: "c", Replicas: []*jetstream.PeerInfo{{Name: "b", Offline: true}}}, 3
		}, "replicas", contract.Warning},
	} {
		i := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "s", Storage: jetstream.FileStorage, Replicas: 1}}
		c := condition{version: "2.12.0", payload: 2 << 20, disk: -1, streams: []*jetstream.StreamInfo{i}}
		x.change(&c, i)
		var got contract.Level
		for _, f := range c.findings() {
			if f.Check == x.check && (got == "" || got == contract.OK) {
				got = f.Level
			}
			if (f.Hint == "") != (f.Level == contract.OK) {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if got != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

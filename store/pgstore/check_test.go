package pgstore

import (
	"testing"

	"github.com/spool-run/spool/store/contract"
)

// Each way in which a server is set up wrong is found, and there is something to change.
func TestConditionOfAServer(t *testing.T) {
	well := condition{version: 150004, commit: "on", fsync: true, full: true, walLevel: "replica", archive: "off",
		identity: true, creates: true, schema: schemaVersion, vacuum: true, live: 10, used: 5, limit: 97}
	for _, f := range well.findings() {
		if f.Level != contract.OK || f.Hint != "" {
			t.Errorf("a server that is set up well: %+v", f)
		}
	}
	for name, x := range map[string]struct {
		change func(*condition)
		check  string
		want   contract.Level
	}{
		"no fsync":              {func(c *condition) { c.fsync = false }, "durability", contract.Problem},
		"no synchronous commit": {func(c *condition) { c.commit = "off" }, "durability", contract.Problem},
		"torn pages":            {func(c *condition) { c.full = false }, "durability", contract.Warning},
		"asynchronous standby":  {func(c *condition) { c.others = 1 }, "standbys", contract.Warning},
		"local commit":          {func(c *condition) { c.standbys, c.together, c.commit = "*", 1, "local" }, "standbys", contract.Warning},
		"synchronous standby":   {func(c *condition) { c.standbys, c.together = "*", 1 }, "standbys", contract.OK},
		"standby that is away":  {func(c *condition) { c.standbys = "*" }, "standbys", contract.Problem},
		"minimal log":           {func(c *condition) { c.walLevel = "minimal" }, "standbys", contract.Warning},
		"no privileges":         {func(c *condition) { c.lacks = "record: INSERT" }, "permissions", contract.Problem},
		"no creation":           {func(c *condition) { c.creates = false }, "permissions", contract.OK},
		"no identity":           {func(c *condition) { c.identity = false }, "losses", contract.Warning},
		"pooled":                {func(c *condition) { c.pooled = true }, "pooler", contract.OK},
		"few connections":       {func(c *condition) { c.used = 95 }, "connections", contract.Warning},
		"no vacuum":             {func(c *condition) { c.vacuum = false }, "vacuum", contract.Warning},
		"dead rows":             {func(c *condition) { c.dead = 1_000_000 }, "vacuum", contract.Warning},
	} {
		c := well
		x.change(&c)
		found := false
		for _, f := range c.findings() {
			if f.Check == x.check && f.Level == x.want {
				found = f.Level == contract.OK || f.Hint != ""
			} else if f.Level != contract.OK {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if !found {
			t.Errorf("%s: there is no %s for %s in %+v", name, x.want, x.check, c.findings())
		}
	}
}

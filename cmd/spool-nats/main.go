// Command spool-nats is spool with a NATS server in it, for --store nats:embedded?dir=PATH:
// a store in one process, or in three or five that are a cluster, without another server.
package main

import (
	"os"

	"github.com/spool-run/spool/cmd/cli"
)

// stamped is the version of a release, set by the linker.
var stamped string

func main() {
	os.Exit(cli.Binary{Name: "spool-nats", Version: stamped, Stores: []cli.Driver{embeddedNATS}}.Main())
}

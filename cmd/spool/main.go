// Command spool runs durable, resumable AI agents: a server in one binary, and filters
// for its logs.
//
//	spool serve                     run everything on an embedded SQLite log
//	spool chat [SESSION]            talk to a running server's agent
//	spool tail SESSION              follow a session of a running server
//	spool sessions                  list the sessions of a running server
//	spool copy FROM TO              copy sessions from one store to another
//	spool export FROM SESSION FILE  write a session to a file
//	spool import FILE TO            copy the session of a file into a store
//	spool doctor                    examine a store, and say what to change
//	spool migrations STORE          print the SQL that makes a store's tables
//	spool ingest --from NAME        turn a provider's bytes on standard input into chunks
//	spool project --wire NAME       turn chunks on standard input into a wire's bytes
package main

import (
	"os"

	"github.com/spool-run/spool/cmd/cli"
)

// stamped is the version of a release, set by the linker.
var stamped string

func main() { os.Exit(cli.Binary{Name: "spool", Version: stamped}.Main()) }

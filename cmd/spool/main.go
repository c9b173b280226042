// Command spool keeps AI agent runs alive and watchable: a server in one binary,
// and filters for its logs.
//
//	spool serve                     run everything on an embedded SQLite log
//	spool tail SESSION              follow a session of a running server
//	spool sessions                  list the sessions of a running server
//	spool ingest --from NAME        turn a provider's bytes on standard input into chunks
//	spool project --wire NAME       turn chunks on standard input into a wire's bytes
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/spool-run/spool/internal/redact"
)

type cli struct {
	Serve    serveCmd    `cmd:"" help:"Run the server."`
	Tail     tailCmd     `cmd:"" help:"Follow a session of a running server."`
	Sessions sessionsCmd `cmd:"" help:"List the sessions of a running server."`
	Ingest   ingestCmd   `cmd:"" help:"Turn a provider's bytes on standard input into chunks, one JSON a line."`
	Project  projectCmd  `cmd:"" help:"Turn chunks on standard input, one JSON a line, into a wire's bytes."`
}

// streams are the command's surroundings.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

func main() { os.Exit(run(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})) }

// run is main with its surroundings as arguments. Exit codes: 0 done, 1 failed,
// 2 used wrongly.
func run(args []string, std streams) int {
	var c cli
	exit := -1
	parser, err := kong.New(&c,
		kong.Name("spool"),
		kong.Description("Keeps AI agent runs alive and watchable."),
		kong.DefaultEnvars("SPOOL"),
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { exit = code }),
		kong.UsageOnError(),
	)
	if err != nil {
		fmt.Fprintln(std.err, "spool:", err)
		return 1
	}
	k, err := parser.Parse(args)
	if exit >= 0 { // --help
		return exit
	}
	if err != nil {
		fmt.Fprintln(std.err, "spool:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal does not ask
	k.BindTo(ctx, (*context.Context)(nil))
	k.Bind(std, newLogger(std.err, slog.LevelInfo))
	if err := k.Run(); err != nil {
		var usage *usageError
		fmt.Fprintln(std.err, "spool:", redact.Text(err.Error()))
		if errors.As(err, &usage) {
			return 2
		}
		return 1
	}
	return 0
}

// usageError is a wrong flag that only the command itself can tell.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

// Package cli holds the commands of the binaries: of spool, and of those with further stores.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"reflect"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/server/wires"
)

type cli struct {
	Version kong.VersionFlag `env:"-" help:"Print the version."`

	Serve      serveCmd      `cmd:"" help:"Run the server."`
	Chat       chatCmd       `cmd:"" help:"Talk to a running server's agent."`
	Tail       tailCmd       `cmd:"" help:"Follow a session of a running server."`
	Sessions   sessionsCmd   `cmd:"" help:"List the sessions of a running server."`
	Copy       copyCmd       `cmd:"" help:"Copy sessions from one store to another."`
	Export     exportCmd     `cmd:"" help:"Write a session to a file, which spool import reads into any store."`
	Import     importCmd     `cmd:"" help:"Copy the session of a file into a store."`
	Doctor     doctorCmd     `cmd:"" help:"Examine a store, and say what to change."`
	Migrations migrationsCmd `cmd:"" help:"Print the SQL that makes a store's tables, or brings them up to date, for a role that may."`
	Ingest     ingestCmd     `cmd:"" help:"Turn a provider's bytes on standard input into chunks, one JSON object per line."`
	Project    projectCmd    `cmd:"" help:"Turn chunks on standard input, one JSON object per line, into a wire's bytes."`

	Completion completionCmd `cmd:"" help:"Print a script that completes commands, flags and sessions in a shell."`
}

// streams are the command's standard input, output and error output.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// Binary is one of the binaries.
type Binary struct {
	Name    string   // what users call it
	Version string   // of a release; "": that of the module
	Stores  []Driver // beside those of all binaries, or in place of them
}

// Main runs the command that the process's arguments name, and returns the exit code: 0 for
// success, 1 for a failure, 2 for wrong usage.
func (b Binary) Main() int { return b.run(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}) }

// run is Main with its environment as arguments.
func (b Binary) run(args []string, std streams) int {
	var c cli
	exit := -1
	parser, err := b.parserOf(&c, kong.Writers(std.out, std.err), kong.Exit(func(code int) { exit = code }))
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
	if err := checkEmpty(k); err != nil {
		fmt.Fprintln(std.err, "spool:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), endsOf(k)...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills the process
	k.BindTo(ctx, (*context.Context)(nil))
	k.Bind(std, parser.Model, append(stores(b.Stores), drivers...), release(b.version()))
	if err := k.Run(); err != nil {
		var usage *usageError
		fmt.Fprintln(std.err, "spool:", said(err))
		if errors.As(err, &usage) {
			return 2
		}
		return 1
	}
	return 0
}

// parserOf returns the parser of the command line.
func (b Binary) parserOf(c *cli, more ...kong.Option) (*kong.Kong, error) {
	return kong.New(c, append(more,
		kong.Name(b.Name),
		kong.Description("Durable, resumable AI agent runs."),
		kong.DefaultEnvars("SPOOL"),
		kong.UsageOnError(),
		kong.Vars{"server": localServer, "version": "spool " + b.version(), "wires": strings.Join(wires.Names(), ",")},
	)...)
}

// checkEmpty refuses empty values. Commands would take one for the default, or for
// something else that nobody meant, as listening on all addresses. Flags with the tag
// empty take them.
func checkEmpty(k *kong.Context) error {
	given := map[*kong.Flag]bool{}
	for _, p := range k.Path {
		given[p.Flag] = true
	}
	for _, f := range k.Flags() {
		if !given[f] && f.Default == "" || f.Tag.Has("empty") || !isEmpty(f.Target) {
			continue
		}
		hint := "leave it out"
		if f.Default != "" {
			hint += " for " + f.Default
		}
		return fmt.Errorf("--%s: the value is empty (%s, or see spool %s --help)", f.Name, hint, k.Selected().Name)
	}
	return nil
}

// isEmpty reports whether the value of a flag is an empty text or list, or a list with an
// empty text.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return v.Len() == 0
	case reflect.Slice:
		for i := range v.Len() {
			if isEmpty(v.Index(i)) {
				return true
			}
		}
		return v.Len() == 0
	}
	return false
}

// endsOf returns the signals that end a command.
func endsOf(k *kong.Context) []os.Signal {
	if own, ok := k.Selected().Target.Addr().Interface().(interface{ signals() []os.Signal }); ok {
		return own.signals()
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM}
}

// said returns an error as one line for the user, with a hint about what to do.
func said(err error) string {
	text := strings.TrimPrefix(err.Error(), "spool: ")
	if hint := hintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	return redact.Text(text)
}

// hintOf returns what an error says about what to do, or "".
func hintOf(err error) string {
	if e, ok := errors.AsType[*chunk.Error](err); ok {
		return e.Hint
	}
	return ""
}

// usageError is an error in a flag that the flag parser cannot detect.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

// wrong returns a usageError for a flag or an environment variable.
func wrong(flag string, value any, want string) error {
	return &usageError{fmt.Sprintf("%s %v: want %s", flag, value, want)}
}

// webAddress reports whether s is an address that a request can be sent to.
func webAddress(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// release is the version that the binary was built from.
type release string

func (b Binary) version() string {
	if b.Version != "" {
		return b.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown version)"
}

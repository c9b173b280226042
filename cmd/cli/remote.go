package cli

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/redact"
)

// localServer is the server that commands talk to if nothing says another.
const localServer = "http://127.0.0.1:8080"

// remote is the server that a command talks to.
type remote struct {
	Server string `aliases:"url" default:"${server}" help:"The server's address."`
	CACert string `name:"cacert" placeholder:"FILE" help:"Trust the certificates in this file, in PEM format, beside the system's."`
}

// client returns a client of the server. retry.Max is how often in a row it may fail.
func (r *remote) client(retry client.Retry) (*client.Client, error) {
	o := client.Options{Retry: retry}
	if r.CACert != "" {
		var err error
		if o.HTTP, err = trusting(r.CACert); err != nil {
			return nil, fmt.Errorf("--cacert %s: %w", r.CACert, err)
		}
	}
	c, err := client.New(strings.TrimRight(r.Server, "/"), &o)
	if errors.Is(err, client.ErrAddress) {
		return nil, wrong("--server", r.Server, "the address of a server, like http://127.0.0.1:8080")
	}
	return c, err
}

// explained returns an error as a person at the terminal needs it.
func (r *remote) explained(err error) error {
	if answer, ok := errors.AsType[*client.Error](err); ok && !errors.Is(err, client.ErrUnreachable) {
		hint := answer.Hint
		if answer.Code == spool.ErrNotFound.Code {
			hint = "list the sessions with: " + r.command("spool sessions")
		}
		text := answer.Message
		if !strings.HasPrefix(answer.Code, "http_") {
			text = answer.Code + ": " + text
		}
		return &chunk.Error{Code: answer.Code, Message: text, Hint: hint}
	}
	if unreached, ok := errors.AsType[*chunk.Error](err); ok && unreached.Code == client.ErrUnreachable.Code {
		err = unreached.Err
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%s is not trusted: %w (trust its certificate with --cacert FILE)", r.Server, e.Err)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s cannot be reached: %w (is spool serve running there?)", r.Server, e.Err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the connection was lost")
	}
	return err
}

// command returns a command line for the same server: with --server and --cacert, unless
// the command would use them anyway.
func (r *remote) command(line string) string {
	if r.Server != cmp.Or(os.Getenv("SPOOL_SERVER"), localServer) {
		line += " --server " + shellWord(redact.Text(r.Server))
	}
	if r.CACert != os.Getenv("SPOOL_CACERT") {
		line += " --cacert " + shellWord(r.CACert)
	}
	return line
}

// shellWord quotes a word of a command line if a shell would not read it as one.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+=,", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// terminal reports whether a stream is a terminal, and its file.
func terminal(stream any) (*os.File, bool) {
	f, ok := stream.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

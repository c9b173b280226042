package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/wire"
)

type tailCmd struct {
	Session string `arg:"" help:"The session's id."`
	remote
	Wire  string `enum:"${wires}" default:"native" help:"${wires}; only native follows a session beyond one turn."`
	UI    int    `name:"ui" enum:"6,7" default:"6" help:"AI SDK profile."`
	After string `empty:"" help:"Begin after this position."`
	Wait  bool   `help:"Wait for a session that does not exist yet (native only)."`
	Once  bool   `help:"Exit when the turn ends, instead of following the session."`
	JSON  bool   `name:"json" help:"Print JSON events even on a terminal."`
}

// Run prints the session: for people on a terminal, and otherwise the data of each event,
// one per line. Whenever the connection breaks, it reconnects after the last event.
func (c *tailCmd) Run(ctx context.Context, std streams) error {
	if c.Wait && c.Wire != "native" {
		return wrong("--wait", "with --wire "+c.Wire, "the native wire")
	}
	lost := &lostNotice{w: std.err, of: &c.remote}
	remote, err := c.client(client.Retry{Max: -1, Base: 50 * time.Millisecond, Cap: 5 * time.Second, Notify: lost.notify})
	if err != nil {
		return err
	}
	of, _ := wires.Find(wires.List(wires.Options{}), c.Wire) // the flag accepts no others
	out := bufio.NewWriter(std.out)
	defer out.Flush()
	next, err := c.source(ctx, remote.Session(c.Session), of, out, std, lost)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		err := next()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF) && n == 0 && c.After == "":
			return errors.New("there is nothing to show: this session has no open turn, and none that ended recently (--wire native shows the whole log)")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.explained(err)
		}
		lost.over()
		if err := out.Flush(); err != nil {
			return nil // the reader of the output has closed it
		}
	}
}

// source returns a function that prints the next event.
func (c *tailCmd) source(ctx context.Context, s *client.Session, of wire.Wire, out *bufio.Writer, std streams, lost *lostNotice) (func() error, error) {
	follow := !c.Once && of.Follow != ""
	f, tty := terminal(std.out)
	if !tty || c.JSON || c.Wire != "native" {
		read := of.Read()
		st := s.Attach(ctx, client.AttachOptions{Wire: of, Query: url.Values{"ui": {strconv.Itoa(c.UI)}, "framing": {"lean"}}, After: c.After, Follow: follow, Wait: c.Wait})
		return func() error {
			e, err := st.Next()
			if err == nil {
				err = line(out, read(e.Name, e.Data))
			}
			return err
		}, nil
	}
	o := client.LogOptions{Follow: follow, Wait: c.Wait}
	if c.After != "" {
		var err error
		if o.After, err = spool.ParseCursor(c.After); err != nil {
			return nil, err
		}
	}
	log, p := s.Log(ctx, o), newPrinter(out, c.Session, widthOf(f), true)
	lost.before = func() {
		p.endLine()
		_ = out.Flush()
	}
	return func() error {
		e, err := log.Next()
		if err == nil {
			p.chunk(e.Chunk)
		}
		return err
	}, nil
}

// line prints an event.
func line(out *bufio.Writer, said wire.Event) error {
	if said.Line != nil {
		_, _ = out.Write(said.Line)
		return out.WriteByte('\n')
	}
	return nil
}

// lostNotice tells that a connection was lost; a lasting problem only once.
type lostNotice struct {
	w      io.Writer
	of     *remote
	told   string
	before func() // ends the line that is on the screen; may be nil
}

func (l *lostNotice) notify(err error, _ time.Duration) {
	if why := said(l.of.explained(err)); why != l.told {
		if l.before != nil {
			l.before()
		}
		fmt.Fprintf(l.w, "spool: %s; coming back\n", why)
		l.told = why
	}
}

func (l *lostNotice) over() { l.told = "" }

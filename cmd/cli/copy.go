package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/transfer"
)

type copyCmd struct {
	From     string   `arg:"" help:"The store to copy from, as in spool serve --store. Stop the servers that use it first."`
	To       string   `arg:"" help:"The store to copy to. It is created if it does not exist."`
	Sessions []string `name:"session" sep:"none" placeholder:"ID" help:"Copy only this session; may be given several times. Default: all."`
}

// Run copies the sessions that the other store lacks. It can be called again after it was
// interrupted.
func (c *copyCmd) Run(ctx context.Context, std streams, known stores) error {
	from, err := known.other(ctx, "FROM", c.From, true)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := known.other(ctx, "TO", c.To, false)
	if err != nil {
		return err
	}
	defer to.Close()
	k := &copier{from: from, to: to, progress: progressOn(std)}
	err = k.all(ctx, c.Sessions)
	k.clear()
	if err != nil {
		return err
	}
	fmt.Fprintf(std.out, "copied %d, there already %d\n", k.copied, k.there)
	if k.refused > 0 {
		return fmt.Errorf("%d not copied", k.refused)
	}
	return nil
}

// other opens a store that is named by an argument. One that is read must be there.
func (all stores) other(ctx context.Context, arg, name string, read bool) (Store, error) {
	n, d, err := all.parse(arg, name)
	switch {
	case err != nil || d.Brief:
		return nil, n.Wrong(all.forms(false))
	case read && d.Exists != nil:
		if err := d.Exists(n); err != nil {
			return nil, err
		}
	}
	return d.Open(ctx, n)
}

// copier copies sessions one after another.
type copier struct {
	progress
	from, to               Store
	copied, there, refused int
}

// all copies these sessions, or all that can be listed.
func (k *copier) all(ctx context.Context, sessions []string) error {
	if sessions != nil {
		for _, id := range sessions {
			if err := k.session(ctx, id); err != nil {
				return err
			}
		}
		return nil
	}
	for q := (spool.SessionQuery{}); ; {
		page, err := k.from.Sessions(ctx, q)
		if err != nil {
			return err
		}
		for _, s := range page.Sessions {
			if err := k.session(ctx, s.Session); err != nil {
				return err
			}
		}
		if q.After = page.NextAfter; q.After == "" {
			return nil
		}
	}
}

// session copies one session. If another one has its id, it says so and goes on.
func (k *copier) session(ctx context.Context, id string) error {
	copied, err := transfer.Session(ctx, k.from, k.to, id, &transfer.Options{Progress: func(seq, head uint64) { k.show(id, seq, head) }})
	switch {
	case errors.Is(err, spool.ErrExists), errors.Is(err, spool.ErrNotFound), errors.Is(err, transfer.ErrDamaged):
		k.clear()
		fmt.Fprintf(k.out, "spool: %s: %s\n", printable(id), why(err))
		k.refused++
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", printable(id), err)
	case copied:
		k.copied++
	default:
		k.there++
	}
	return nil
}

func why(err error) string {
	switch {
	case errors.Is(err, spool.ErrNotFound):
		return "there is no such session"
	case errors.Is(err, spool.ErrExists):
		return "the other store has another session with this id, or this one has gone on there"
	}
	return said(err)
}

// progress is a line on a terminal that shows how far a copy is.
type progress struct {
	out   io.Writer
	shows bool
}

func progressOn(std streams) progress {
	_, shows := terminal(std.err)
	return progress{std.err, shows}
}

func (p progress) show(session string, seq, head uint64) {
	if p.shows {
		fmt.Fprintf(p.out, "\r\x1b[K%s: %d of %d records", printable(session), seq, head)
	}
}

// clear removes the line.
func (p progress) clear() {
	if p.shows {
		_, _ = io.WriteString(p.out, "\r\x1b[K")
	}
}

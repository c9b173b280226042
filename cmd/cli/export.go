package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/transfer"
)

type exportCmd struct {
	From    string `arg:"" help:"The store that has the session, as in spool serve --store."`
	Session string `arg:"" help:"The session."`
	File    string `arg:"" help:"The file to write. It must not exist."`
}

// Run writes a session to a file. There is no file before it is whole.
func (c *exportCmd) Run(ctx context.Context, std streams, known stores) error {
	if _, err := os.Lstat(c.File); !errors.Is(err, fs.ErrNotExist) {
		return &usageError{fmt.Sprintf("FILE %s: it exists already", c.File)}
	}
	from, err := known.other(ctx, "FROM", c.From, true)
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.CreateTemp(filepath.Dir(c.File), ".spool-export-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	if err := exportTo(ctx, from, c.Session, out); err != nil {
		return err
	}
	if err := errors.Join(out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(out.Name(), c.File); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "exported %s\n", printable(c.Session))
	return nil
}

// exportTo exports a session. If it is trimmed meanwhile, it begins again.
func exportTo(ctx context.Context, from spool.Store, session string, out *os.File) error {
	const tries = 5
	for n := 1; ; n++ {
		err := transfer.Export(ctx, from, session, out)
		if !errors.Is(err, transfer.ErrChanged) || n == tries {
			return err
		}
		if _, err := out.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := out.Truncate(0); err != nil {
			return err
		}
	}
}

type importCmd struct {
	File string `arg:"" help:"A file that spool export wrote."`
	To   string `arg:"" help:"The store to copy the session to. It is created if it does not exist."`
}

// Run copies the session of a file into a store. It can be called again after it was
// interrupted.
func (c *importCmd) Run(ctx context.Context, std streams, known stores) error {
	in, err := os.Open(c.File)
	if err != nil {
		return err
	}
	defer in.Close()
	to, err := known.other(ctx, "TO", c.To, false)
	if err != nil {
		return err
	}
	defer to.Close()
	p, id := progressOn(std), filepath.Base(c.File)
	session, copied, err := transfer.Import(ctx, in, to, &transfer.Options{Progress: func(seq, head uint64) { p.show(id, seq, head) }})
	p.clear()
	switch {
	case errors.Is(err, spool.ErrExists):
		return fmt.Errorf("%s: %s", printable(session), why(err))
	case err != nil:
		return err
	case copied:
		fmt.Fprintf(std.out, "imported %s\n", printable(session))
	default:
		fmt.Fprintf(std.out, "%s is there already\n", printable(session))
	}
	return nil
}

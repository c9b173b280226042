package transfer

import (
	"context"
	"errors"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Import copies the session of a file that [Export] wrote into a store, as [Session] copies
// it from another store. The whole file is checked before anything is stored. It returns the
// session's id, and false if the store has the session already.
//
// Errors: those of [Session]; [chunk.ErrInvalid] and [chunk.ErrTooLarge] if this is not the
// file of a session, [spool.ErrUnsupported] if it is one of another version, [ErrDamaged] if
// something in it is missing or changed, and those of r.
func Import(ctx context.Context, r io.ReadSeeker, to spool.Store, o *Options) (session string, copied bool, err error) {
	f := &file{in: r}
	if err := f.restart(); err != nil {
		return "", false, err
	}
	session = f.r.header.Session
	for !errors.Is(err, io.EOF) {
		if _, err = f.r.next(); err != nil && !errors.Is(err, io.EOF) {
			return session, false, err
		}
		if err := ctx.Err(); err != nil {
			return session, false, err
		}
	}
	if err := f.restart(); err != nil {
		return session, false, err
	}
	copied, err = run(ctx, f, to, session, o)
	return session, copied, err
}

// file is a source: a file that was checked.
type file struct {
	in   io.ReadSeeker
	r    *lineReader
	read uint64 // the last record that next returned
}

func (f *file) restart() (err error) {
	if _, err := f.in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	f.r, err = readHeader(f.in)
	f.read = 0
	return err
}

func (f *file) look(context.Context) (spool.SessionInfo, error) { return f.r.header.info(), nil }

// next implements source. A file is read from its beginning to its end; it begins again if
// after is before its place.
func (f *file) next(ctx context.Context, h spool.Head, after uint64, put putter) (page, error) {
	p := page{head: f.r.header.info().Head, at: after}
	if after < f.read {
		if err := f.restart(); err != nil {
			return p, err
		}
	}
	for size := 0; len(p.recs) < spool.MaxRead && size < spool.MaxReadBytes; {
		rec, err := f.record(ctx, put)
		if errors.Is(err, io.EOF) {
			p.at = p.head.Seq
			break
		}
		if err != nil {
			return p, err
		}
		f.read = rec.Seq
		if rec.Seq <= after || rec.Seq <= h.Floor || rec.Seq <= h.TraceFloor && rec.Class != chunk.Kept {
			continue
		}
		p.recs, p.at = append(p.recs, *rec), rec.Seq
		p.values += f.r.refers(rec.Data)
		size += len(rec.Data)
	}
	return p, nil
}

// record returns the next record of the file.
func (f *file) record(ctx context.Context, put putter) (*chunk.Record, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := f.r.next()
		if err != nil || e.rec != nil {
			return e.rec, err
		}
		if e.value != "" {
			if err := put(e.value, e.data); err != nil {
				return nil, err
			}
		}
	}
}

// find reads the file from its beginning until found says so.
func (f *file) find(ctx context.Context, found func(entry) bool) error {
	if err := f.restart(); err != nil {
		return err
	}
	for {
		e, err := f.r.next()
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, io.EOF) || err == nil && found(e) {
			return f.restart()
		}
		if err != nil {
			return err
		}
	}
}

func (f *file) last(ctx context.Context, seq uint64) (last chunk.Record, err error) {
	err = f.find(ctx, func(e entry) bool {
		if e.rec != nil && e.rec.Seq <= seq && e.rec.Class == chunk.Kept {
			last = *e.rec
		}
		return e.rec != nil && e.rec.Seq >= seq
	})
	return last, err
}

// fold implements source. The values that it refers to have been put with the others.
func (f *file) fold(ctx context.Context, _ spool.Head, _ putter) (saved spool.SavedFold, err error) {
	there := false
	err = f.find(ctx, func(e entry) bool {
		if e.fold != nil {
			saved, there = *e.fold, true
		}
		return there || e.rec != nil
	})
	if err == nil && !there {
		err = spool.ErrNotFound
	}
	return saved, err
}

// Package transfer copies sessions between stores. A copy has the sequences, floors and
// incarnation of its source, so that cursors stay valid, and larger epochs, so that owners
// from before are refused. In a store that has given out larger incarnations, the copy's is
// larger, too, and readers are told to load the session once more.
package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Options configures a copy; nil means the zero value.
type Options struct {
	// Progress is called after each part: the session is copied up to seq of head. nil:
	// nobody is told.
	Progress func(seq, head uint64)
}

// Session copies a session. It returns false if the other store has it already. Nobody sees
// the copy before it is whole, has been read back, and has the same records and large values
// as its source, by count and hash. A copy that was cut short is continued by the next one.
//
// Nothing is written to the source. The session must not be written to meanwhile: what its
// owner appends after the copy is only in the source, and a run that is open goes on in both
// stores.
//
// A saved fold is left behind, since it is made again from the records. Only where the
// session's first records are gone the copy gets it.
//
// Errors: [spool.ErrNotFound], [spool.ErrExists] if the other store has another session
// with this id, or one that went on, [spool.ErrUnsupported], [spool.ErrSuperseded] if
// another process copies the session, [ErrDamaged], and those of the stores.
func Session(ctx context.Context, from, to spool.Store, session string, o *Options) (copied bool, err error) {
	src, err := storedIn(from, session)
	if err != nil {
		return false, err
	}
	return run(ctx, src, to, session, o)
}

// run copies a session from a source.
func run(ctx context.Context, from source, to spool.Store, session string, o *Options) (copied bool, err error) {
	c := &copying{from: from, to: to, session: session, told: newTeller()}
	if o != nil {
		c.Options = *o
	}
	var leased, takes bool
	c.leaser, leased = to.(spool.Leaser)
	c.importer, takes = to.(spool.Importer)
	if c.copied, err = storedIn(to, session); err != nil {
		return false, err
	}
	if !leased || !takes {
		return false, spool.ErrUnsupported.With(session, nil)
	}
	if err := c.look(ctx); err != nil {
		return false, err
	}
	switch h, err := to.Head(ctx, session); {
	case err != nil && !errors.Is(err, spool.ErrNotFound):
		return false, err
	case err == nil && !h.Hidden:
		if c.info.Head.Seq != h.Seq {
			return false, spool.ErrExists.With(session, nil)
		}
		return false, c.compare(ctx, h)
	}
	return true, c.copy(ctx)
}

// copying is a copy that is being made.
type copying struct {
	Options
	from     source
	to       spool.Store
	copied   *stored // what to has
	leaser   spool.Leaser
	importer spool.Importer
	session  string

	info  spool.SessionInfo // of the source
	lease spool.Lease
	head  spool.Head // of the copy
	read  uint64     // the next record of the source is after this one
	at    uint64     // the copy's last record
	told  *teller    // of what was read from the floor on; nil: some was copied earlier, or is gone
}

// look asks the source what the session is now.
func (c *copying) look(ctx context.Context) error {
	info, err := c.from.look(ctx)
	if was := c.info.Head; err == nil && was.Incarnation != 0 {
		switch h := info.Head; {
		case h.Incarnation != was.Incarnation: // another log, of which nothing is copied
			c.at, c.read, c.told = 0, 0, newTeller()
		case h.TraceFloor != was.TraceFloor || h.Floor != was.Floor:
			c.told = nil
		}
	}
	c.info = info
	return err
}

// compare fails with ErrExists if the other store's log is not the source's up to its head.
func (c *copying) compare(ctx context.Context, h spool.Head) error {
	if h.Seq == 0 {
		return nil
	}
	if h.Incarnation >= c.info.Head.Incarnation {
		mine, err := c.from.last(ctx, h.Seq)
		if err != nil {
			return err
		}
		theirs, err := c.copied.last(ctx, h.Seq)
		if err != nil {
			return err
		}
		if mine.Seq > 0 && mine.Seq == theirs.Seq && mine.Time == theirs.Time && bytes.Equal(mine.Data, theirs.Data) {
			return nil
		}
	}
	return spool.ErrExists.With(c.session, nil)
}

// copy takes the hidden session of the other store, or makes it, and copies what it lacks.
func (c *copying) copy(ctx context.Context) (err error) {
	c.lease, err = c.leaser.Claim(ctx, spool.Claim{ID: "copy-" + rand.Text(), Owner: "copy", Session: c.session, Force: true, Hidden: true,
		InProcess: true, Principal: c.info.Principal})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = c.leaser.Release(context.WithoutCancel(ctx), c.lease)
		}
	}()
	c.head = c.lease.Head
	if h := c.head; !h.Hidden {
		return spool.ErrExists.With(c.session, nil) // it was created in between
	} else if err := c.compare(ctx, h); err == nil {
		if c.at, c.read = h.Seq, h.Seq; h.Seq > 0 {
			c.told = nil
		}
	} else if !errors.Is(err, spool.ErrExists) {
		return err
	}
	for {
		if err := c.part(ctx); err != nil {
			return err
		}
		if c.read < c.info.Head.Seq {
			continue
		}
		done, err := c.finish(ctx)
		if done || err != nil {
			return err
		}
	}
}

// part copies the next page, if there is one.
func (c *copying) part(ctx context.Context) error {
	p, err := c.from.next(ctx, c.info.Head, c.read, c.put(ctx))
	if errors.Is(err, spool.ErrTrimmed) || err == nil && p.head.Incarnation != c.info.Head.Incarnation {
		return c.look(ctx) // the source was trimmed, or deleted and made again
	}
	if err != nil {
		return err
	}
	if p.head.TraceFloor != c.info.Head.TraceFloor || p.head.Floor != c.info.Head.Floor {
		c.told = nil
	}
	c.info.Head, c.read = p.head, p.at
	if c.told != nil {
		c.told.add(p)
	}
	for recs := p.recs; len(recs) > 0; {
		n, size := 0, 0
		for n < len(recs) && n < spool.MaxAppendRecords && size+len(recs[n].Data) <= spool.MaxAppendBytes {
			size += len(recs[n].Data)
			n++
		}
		if err := c.send(ctx, recs[:n], false); err != nil {
			return err
		}
		recs = recs[n:]
	}
	return nil
}

// finish checks the copy and sends the last part, if the copy has reached the head.
func (c *copying) finish(ctx context.Context) (done bool, err error) {
	if err := c.look(ctx); err != nil || c.read != c.info.Head.Seq {
		return false, err
	}
	if h := c.info.Head; c.at == 0 || c.head.TraceFloor < h.TraceFloor || c.head.Floor < h.Floor || c.head.Incarnation < h.Incarnation {
		if err := c.send(ctx, nil, false); err != nil {
			return false, err
		}
	}
	if err := c.check(ctx); err != nil {
		return false, err
	}
	if err := c.keepFold(ctx); err != nil {
		return false, err
	}
	return true, c.send(ctx, nil, true)
}

// check reads the copy and compares it with what it was made from. A copy that differs is
// given up, so that the next one begins at the start.
func (c *copying) check(ctx context.Context) error {
	h := c.head
	h.Seq = c.info.Head.Seq // in the copy it is the last record's
	var want tally
	var err error
	if c.told != nil && h.TraceFloor == c.info.Head.TraceFloor && h.Floor == c.info.Head.Floor {
		want = c.told.total()
	} else if want, err = tell(ctx, c.from, h); err != nil {
		return err
	}
	have, err := tell(ctx, c.copied, h)
	if err != nil && !errors.Is(err, ErrDamaged) {
		return err
	}
	if err == nil && have == want {
		return nil
	}
	if err == nil {
		err = ErrDamaged.Because(fmt.Sprintf("the copy differs from its source: %d records and %d large values, want %d and %d",
			have.records, have.values, want.records, want.values)).With(c.session, nil)
	}
	c.at = 0
	return errors.Join(err, c.send(ctx, nil, false))
}

// keepFold copies the saved fold that stands for records which are gone.
func (c *copying) keepFold(ctx context.Context) error {
	f, err := c.from.fold(ctx, c.info.Head, c.put(ctx))
	if errors.Is(err, spool.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	to, takes := c.to.(spool.FoldStore)
	if !takes {
		return spool.ErrUnsupported.With(c.session, nil)
	}
	f.Incarnation = c.head.Incarnation
	return to.SaveFold(ctx, c.session, spool.FoldName, f)
}

// send stores a part.
func (c *copying) send(ctx context.Context, recs []chunk.Record, done bool) error {
	h, err := c.importer.Import(ctx, spool.Import{Info: c.info, Epoch: c.lease.Epoch, After: c.at, Records: recs, Done: done})
	if err != nil {
		return err
	}
	c.head = h
	if n := len(recs); n > 0 {
		c.at = recs[n-1].Seq
	}
	if c.Progress != nil {
		c.Progress(max(c.at, c.read), c.info.Head.Seq)
	}
	return nil
}

// put stores large values, before the records that refer to them.
func (c *copying) put(ctx context.Context) putter {
	return func(hash string, data []byte) error {
		to, takes := c.to.(spool.BlobStore)
		if !takes {
			return spool.ErrUnsupported.With(c.session, nil)
		}
		return to.PutBlob(ctx, c.session, hash, data)
	}
}

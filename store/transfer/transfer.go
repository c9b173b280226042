// Package transfer copies sessions between stores. A copy has the sequences, floors and
// incarnation of its source, so that cursors stay valid, and larger epochs, so that owners
// from before are refused.
package transfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/blobref"
)

// Options configures a copy; nil means the zero value.
type Options struct {
	// Progress is called after each part: the session is copied up to seq of head. nil:
	// nobody is told.
	Progress func(seq, head uint64)
}

// Session copies a session. It returns false if the other store has it already. Nobody sees
// the copy before it is whole. A copy that was cut short is continued by the next one.
//
// The session must not be written to meanwhile: what its owner appends after the copy is
// only in the source, and a run that is open goes on in both stores.
//
// Errors: [spool.ErrNotFound], [spool.ErrExists] if the other store has another session
// with this id, or one that went on, [spool.ErrUnsupported], [spool.ErrSuperseded] if
// another process copies the session, and those of the stores.
func Session(ctx context.Context, from, to spool.Store, session string, o *Options) (copied bool, err error) {
	c := &copying{from: from, to: to, session: session}
	if o != nil {
		c.Options = *o
	}
	var listed, leased, takes bool
	c.lister, listed = from.(spool.Lister)
	c.leaser, leased = to.(spool.Leaser)
	c.importer, takes = to.(spool.Importer)
	if !listed || !leased || !takes {
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
	from, to spool.Store
	lister   spool.Lister
	leaser   spool.Leaser
	importer spool.Importer
	session  string

	info  spool.SessionInfo // of the source
	lease spool.Lease
	read  uint64 // the next record of the source is after this one
	at    uint64 // the copy's last record
	blobs map[string]bool
}

// look asks the source what the session is now.
func (c *copying) look(ctx context.Context) error {
	info, err := c.lister.Session(ctx, c.session)
	if err == nil && info.Head.Hidden {
		err = spool.ErrNotFound.With(c.session, nil)
	}
	if err == nil && info.Head.Incarnation != c.info.Head.Incarnation {
		c.at, c.read = 0, 0 // another log, of which nothing is copied
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
		mine, err := last(ctx, c.from, c.session, h.Seq)
		if err != nil {
			return err
		}
		theirs, err := last(ctx, c.to, c.session, h.Seq)
		if err != nil {
			return err
		}
		if mine.Seq > 0 && mine.Seq == theirs.Seq && mine.Time == theirs.Time && bytes.Equal(mine.Data, theirs.Data) {
			return nil
		}
	}
	return spool.ErrExists.With(c.session, nil)
}

// last returns the last kept record up to a sequence: trace may be gone in one of the stores.
func last(ctx context.Context, s spool.Store, session string, seq uint64) (chunk.Record, error) {
	recs, _, err := s.ReadKept(ctx, session, spool.KeptQuery{Backwards: true, Before: seq + 1, Max: 1})
	if err != nil || len(recs) == 0 {
		return chunk.Record{}, err
	}
	return recs[0], nil
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
	if h := c.lease.Head; !h.Hidden {
		return spool.ErrExists.With(c.session, nil) // it was created in between
	} else if err := c.compare(ctx, h); err == nil {
		c.at, c.read = h.Seq, h.Seq
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
	recs, h, err := c.page(ctx)
	if errors.Is(err, spool.ErrTrimmed) || err == nil && h.Incarnation != c.info.Head.Incarnation {
		return c.look(ctx) // the source was trimmed, or deleted and made again
	}
	if err != nil {
		return err
	}
	c.info.Head = h
	for _, r := range recs {
		for _, hash := range blobref.In(r.Data) {
			if err := c.blob(ctx, hash); err != nil {
				return err
			}
		}
	}
	for len(recs) > 0 {
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

// page reads the next records of the source: kept ones up to the trace floor, then all.
func (c *copying) page(ctx context.Context) ([]chunk.Record, spool.Head, error) {
	if c.read >= c.info.Head.TraceFloor {
		recs, h, err := c.from.Read(ctx, c.session, c.read, 0)
		if n := len(recs); n > 0 {
			c.read = recs[n-1].Seq
		}
		return recs, h, err
	}
	recs, h, err := c.from.ReadKept(ctx, c.session, spool.KeptQuery{After: max(c.read, c.info.Head.Floor)})
	if err != nil {
		return nil, h, err
	}
	n := 0
	for n < len(recs) && recs[n].Seq <= h.TraceFloor {
		n++
	}
	if c.read = h.TraceFloor; n > 0 && n == len(recs) {
		c.read = recs[n-1].Seq // others may follow
	}
	return recs[:n], h, nil
}

// finish sends the last part, if the copy has reached the head.
func (c *copying) finish(ctx context.Context) (done bool, err error) {
	if err := c.look(ctx); err != nil || c.read != c.info.Head.Seq {
		return false, err
	}
	return true, c.send(ctx, nil, true)
}

// send stores a part.
func (c *copying) send(ctx context.Context, recs []chunk.Record, done bool) error {
	_, err := c.importer.Import(ctx, spool.Import{Info: c.info, Epoch: c.lease.Epoch, After: c.at, Records: recs, Done: done})
	if err != nil {
		return err
	}
	if n := len(recs); n > 0 {
		c.at = recs[n-1].Seq
	}
	if c.Progress != nil {
		c.Progress(max(c.at, c.read), c.info.Head.Seq)
	}
	return nil
}

// blob copies a large value, before the record that refers to it.
func (c *copying) blob(ctx context.Context, hash string) error {
	from, can := c.from.(spool.BlobStore)
	to, takes := c.to.(spool.BlobStore)
	if !can || c.blobs[hash] {
		return nil
	}
	data, err := from.GetBlob(ctx, c.session, hash)
	if errors.Is(err, spool.ErrNotFound) {
		return nil // it only looks like a reference
	}
	if err != nil {
		return err
	}
	if !takes {
		return spool.ErrUnsupported.With(c.session, nil)
	}
	if err := to.PutBlob(ctx, c.session, hash, data); err != nil {
		return err
	}
	if c.blobs == nil || len(c.blobs) > 1000 {
		c.blobs = map[string]bool{}
	}
	c.blobs[hash] = true
	return nil
}

package spool

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/spool-run/spool/chunk"
)

// ReadOptions define what a [Reader] reads.
type ReadOptions struct {
	// After is where to begin; the zero Cursor is the start of the log.
	After Cursor
	// Follow reads for ever. Otherwise the reader ends with io.EOF once the log
	// is quiet at its head: no run open and no command due.
	Follow bool
	// Max bounds the records of one Next. 0: 1000.
	Max int
}

// Reader reads a log in order, each record once: first the stored records, then new
// ones as they are committed. It is only a cursor, without goroutine and buffer, so an
// idle one costs nothing. Use it from one goroutine at a time.
type Reader struct {
	g           *Log
	o           ReadOptions
	after       uint64
	incarnation uint64 // 0 until the first record or head
	checked     bool   // the store was asked since the reader was made
	page        int    // records of the next private read
	head        Head
	err         error
}

// Reader returns a reader. There is nothing to close.
func (g *Log) Reader(o ReadOptions) *Reader {
	if o.Max <= 0 || o.Max > pageRecords {
		o.Max = pageRecords
	}
	return &Reader{g: g, o: o, after: o.After.Seq, page: min(64, o.Max)}
}

// Cursor is the position after the last record that Next returned.
func (r *Reader) Cursor() Cursor {
	c := Cursor{Seq: r.after, Incarnation: r.incarnation}
	if c.Incarnation == 0 {
		c.Incarnation = r.o.After.Incarnation
	}
	return c
}

// Head is the newest head that the reader has seen; zero before the first Next.
func (r *Reader) Head() Head { return r.head }

// Next returns the next records, at least one, and blocks until there are some. The
// slice belongs to the caller; the records' Data is shared.
//
// It fails with io.EOF as described at Follow, [ErrTrimmed] if records after the cursor
// are gone, [ErrCursorAhead] if the cursor lies beyond the log or the log is in another
// incarnation, [ErrNotFound] if there is no such session (with Follow and no cursor it
// waits for it instead), [ErrClosed], the store's errors and ctx's. Only the store's
// and ctx's errors are temporary: call Next again.
func (r *Reader) Next(ctx context.Context) ([]chunk.Record, error) {
	for {
		recs, err := r.poll(ctx)
		if err != nil || recs != nil {
			return recs, err
		}
		t := r.g.tail
		t.mu.Lock()
		if t.known && (t.head != r.head || t.end() > r.after) || !t.known && !t.missing {
			t.mu.Unlock()
			continue
		}
		if t.known && !r.o.Follow && quiet(t.head, t.logs.Now().UnixMilli()) {
			t.mu.Unlock()
			r.err = io.EOF
			return nil, io.EOF
		}
		if err := t.awaitLocked(ctx); err != nil {
			return nil, r.keep(err)
		}
	}
}

// poll is Next without waiting. If it returns neither records nor an error, the reader
// is at the head.
func (r *Reader) poll(ctx context.Context) ([]chunk.Record, error) {
	for r.err == nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		recs, atHead, err := r.step(ctx)
		if err != nil {
			return nil, r.keep(err)
		}
		if len(recs) > 0 {
			r.after = recs[len(recs)-1].Seq
			return recs, nil
		}
		if atHead {
			return nil, nil
		}
	}
	return nil, r.err
}

// keep makes an error sticky unless it is temporary.
func (r *Reader) keep(err error) error {
	if Final(err) {
		r.err = err
	}
	return err
}

// step takes the next records from the tail, or reads. If it returns neither records
// nor the head nor an error, call it again.
func (r *Reader) step(ctx context.Context) (recs []chunk.Record, atHead bool, err error) {
	t := r.g.tail
	if t.logs.ctx.Err() != nil {
		return nil, false, ErrClosed
	}
	if !r.checked { // the head that this process knows may be old
		err := t.refresh(ctx)
		r.checked = err == nil
		return nil, false, err
	}
	t.mu.Lock()
	if !t.known {
		defer t.mu.Unlock()
		return nil, true, r.missing()
	}
	if err := r.bindLocked(); err != nil {
		t.mu.Unlock()
		return nil, false, err
	}
	r.head = t.head
	recs = t.pageLocked(r.after, r.o.Max)
	end := t.end()
	t.mu.Unlock()
	switch {
	case recs != nil:
	case r.after >= r.head.Seq:
		return nil, true, nil
	case r.after == end:
		err = t.catchUp(ctx, r.after)
	default:
		recs, err = r.read(ctx)
	}
	return recs, false, err
}

// missing decides what to do if the session does not exist.
func (r *Reader) missing() error {
	switch {
	case r.incarnation != 0 || r.o.After != (Cursor{}):
		return ErrCursorAhead.With(r.g.session, nil)
	case !r.o.Follow:
		return ErrNotFound.With(r.g.session, nil)
	}
	return nil
}

// bindLocked binds the reader to the log's incarnation. It fails if the reader belongs
// to another one.
func (r *Reader) bindLocked() error {
	t := r.g.tail
	if r.incarnation == 0 {
		if errors.Is(r.o.After.Check(t.head), ErrCursorAhead) {
			return ErrCursorAhead.With(t.session, nil)
		}
		r.incarnation = t.head.Incarnation
	}
	if r.incarnation != t.head.Incarnation {
		return ErrCursorAhead.With(t.session, nil)
	}
	return nil
}

// read reads for this reader alone, which is behind the tail.
func (r *Reader) read(ctx context.Context) ([]chunk.Record, error) {
	t := r.g.tail
	recs, err := t.readChecked(ctx, r.after, r.page, r.head.Incarnation)
	if err != nil {
		return nil, err
	}
	if len(recs) == 0 {
		return nil, t.logs.Sleep(ctx, backoff(0)) // the head is newer than the readable records
	}
	r.page = min(nextPage(r.page, recs), r.o.Max)
	return recs, nil
}

// quiet reports whether no record will follow without a new command: no run is open,
// and the session is not due. A due time in the future counts as quiet only in a paused
// session, where it is the expiry of the pause. In other sessions it is that of a
// waiting command, by the store's clock, which may be ahead of ours.
func quiet(h Head, now int64) bool {
	return h.Status != chunk.StatusActive && (h.Due == 0 || h.Status == chunk.StatusPaused && h.Due > now)
}

// Records is [Log.Reader] as an iterator. Like Next it ends when the log is quiet, or
// with an error.
func (g *Log) Records(ctx context.Context, o ReadOptions) iter.Seq2[chunk.Record, error] {
	return func(yield func(chunk.Record, error) bool) {
		r := g.Reader(o)
		for {
			recs, err := r.Next(ctx)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(chunk.Record{}, err)
				return
			}
			for i := range recs {
				if !yield(recs[i], nil) {
					return
				}
			}
		}
	}
}

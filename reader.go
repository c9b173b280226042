package spool

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/wait"
)

// ReadOptions define what a [Reader] reads.
type ReadOptions struct {
	// After is where to begin; the zero Cursor is the start of the log. Where trace was
	// trimmed, a reader that begins at the start gets what remains: first a record with
	// Seq 0, of type [chunk.TypeTraceOmitted], that says so, then the kept records up to
	// the trace floor, then all. [Reader.Cursor] names places in that part, too.
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
	era         uint64 // of the tail, at that time
	checked     bool   // the store was asked since the reader was made
	page        int    // records of the next private read
	remains     bool   // where trace was trimmed it reads kept records
	tells       bool   // and says so
	keptTo      uint64 // up to here it has read kept records only
	passed      uint64 // of the records that remain,
	seen        uint64 // and how many of them the caller has
	head        Head
	err         error
}

// Reader returns a reader. There is nothing to close.
func (g *Log) Reader(o ReadOptions) *Reader {
	if o.Max <= 0 || o.Max > pageRecords {
		o.Max = pageRecords
	}
	r := &Reader{g: g, o: o, after: o.After.Seq, page: min(64, o.Max)}
	if o.After.Seq == 0 || o.After.InPlan {
		r.after, r.remains, r.tells = 0, true, true
		r.keptTo, r.seen = o.After.Seq, o.After.PlanFrames
	}
	return r
}

// Cursor is the position after the last record that Next returned.
func (r *Reader) Cursor() Cursor {
	c := Cursor{Seq: r.after, Incarnation: cmp.Or(r.incarnation, r.o.After.Incarnation)}
	if r.remains && r.after < r.keptTo {
		c.Seq, c.InPlan, c.PlanFrames = r.keptTo, true, r.seen
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
func (r *Reader) Next(ctx context.Context) (recs []chunk.Record, err error) {
	err = r.g.logs.retry(ctx, r.g.session, func() error {
		recs, err = r.next(ctx)
		return err
	})
	return recs, err
}

func (r *Reader) next(ctx context.Context) ([]chunk.Record, error) {
	for {
		recs, err := r.poll(ctx)
		if err != nil || recs != nil {
			return recs, err
		}
		t := r.g.tail
		t.mu.Lock()
		if t.known && (t.head != r.head || t.era != r.era || t.end() > r.after) || !t.known && !t.missing {
			t.mu.Unlock()
			continue
		}
		if t.known && !r.o.Follow && quiet(t.head) {
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
	if floor := t.head.TraceFloor; r.remains && r.after < floor {
		t.mu.Unlock()
		recs, err = r.readRemains(ctx, floor)
		return recs, false, err
	}
	recs = t.pageLocked(r.after, r.o.Max)
	end, near := t.end(), t.nearLocked(r.after)
	t.mu.Unlock()
	switch {
	case recs != nil:
	case r.after >= r.head.Seq:
		return nil, true, nil
	case r.after == end, near:
		recs, err = t.share(ctx, r.after, r.o.Max, seen{r.head, r.era})
	default:
		recs, err = r.read(ctx)
	}
	switch {
	case r.remains && errors.Is(err, ErrTrimmed): // since the head was read
		err = t.refresh(ctx)
	case len(recs) > 0:
		r.after, r.remains = recs[len(recs)-1].Seq, false
	}
	return recs, false, err
}

// readRemains reads some of the kept records up to the trace floor.
func (r *Reader) readRemains(ctx context.Context, floor uint64) ([]chunk.Record, error) {
	t := r.g.tail
	var recs []chunk.Record
	var h Head
	err := t.logs.call(ctx, t.session, func(ctx context.Context) (err error) {
		recs, h, err = t.logs.store.ReadKept(ctx, t.session, KeptQuery{After: max(r.after, r.head.Floor), Max: r.page})
		return err
	})
	if err == nil {
		err = t.sameLog(h, seen{r.head, r.era})
	}
	if err != nil {
		return nil, err
	}
	r.page, r.keptTo = min(nextPage(r.page, recs), r.o.Max), floor
	n := 0
	for n < len(recs) && recs[n].Seq <= floor {
		n++
	}
	if r.after = floor; n > 0 && n == len(recs) {
		r.after = min(floor, recs[n-1].Seq) // others may follow
	}
	if !r.tells {
		return recs[:n], nil
	}
	return r.tell(recs[:n]), nil
}

// tell returns those of the records that remain that the caller lacks. The first says
// that trace is missing; a branch has others of its type, which are left out.
func (r *Reader) tell(remain []chunk.Record) (recs []chunk.Record) {
	lacks := func(rec chunk.Record) {
		if r.passed++; r.passed > r.seen {
			r.seen = r.passed
			recs = append(recs, rec)
		}
	}
	if r.passed == 0 {
		at := int64(0)
		if len(remain) > 0 {
			at = remain[0].Time
		}
		lacks(chunk.TraceOmitted(r.g.session, at, r.keptTo))
	}
	for _, rec := range remain {
		if rec.Type != chunk.TypeTraceOmitted {
			lacks(rec)
		}
	}
	return recs
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

// bindLocked binds the reader to the log as it is known. It fails if the reader belongs
// to another incarnation, or to what the log was before it lost records.
func (r *Reader) bindLocked() error {
	t := r.g.tail
	if r.incarnation == 0 {
		switch err := r.o.After.CheckInLog(t.head); {
		case errors.Is(err, ErrCursorAhead):
			return ErrCursorAhead.With(t.session, nil)
		case err != nil && r.o.After.InPlan:
			return ErrTrimmed.With(t.session, nil)
		}
		r.incarnation, r.era = t.head.Incarnation, t.era
	}
	if r.era != t.era {
		return ErrCursorAhead.With(t.session, nil)
	}
	return nil
}

// read reads for this reader alone, which is behind the tail.
func (r *Reader) read(ctx context.Context) ([]chunk.Record, error) {
	t := r.g.tail
	recs, err := t.readChecked(ctx, r.after, r.page, seen{r.head, r.era})
	if err != nil {
		return nil, err
	}
	if len(recs) == 0 {
		return nil, t.logs.Sleep(ctx, wait.Backoff(0)) // the head is newer than the readable records
	}
	r.page = min(nextPage(r.page, recs), r.o.Max)
	return recs, nil
}

// quiet reports whether no record will follow without a new command, unless a pause
// expires: no run is open, and an owner has seen every command.
func quiet(h Head) bool { return h.Status != chunk.StatusActive && !h.Pending }

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

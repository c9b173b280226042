package spool

import (
	"cmp"
	"context"
	"slices"
	"weak"

	"github.com/spool-run/spool/chunk"
)

// Follower is one reader's position in a [Projection]. It holds no resources, except a
// projector of its own while it is too far behind for the shared frames, and, for a few
// of a projection's followers, after that. Use it from one goroutine at a time; there is
// nothing to close.
type Follower struct {
	p       *Projection
	after   uint64
	whole   bool   // it began at the projection's start, so it lacks nothing if trace is trimmed
	remains bool   // where trace was trimmed it gets what remains
	seen    uint64 // frames of that which its reader has
	checked bool
	polled  reached // where Poll has found nothing
	own     *ownProjector
	primed  bool // its reader has the latest record before after that had frames
}

// At is the follower's position.
func (f *Follower) At() uint64 { return f.after }

// Next returns the frames after the follower's position, and moves it. It blocks until
// there are frames, or until the log is quiet.
//
// It fails with [ErrTrimmed] if the frames after the position can no longer be
// computed, [ErrCursorAhead] if the log is shorter or in another incarnation,
// [ErrNotFound], [ErrClosed], the projector's error, the store's or ctx's. Only the
// store's and ctx's errors are temporary.
func (f *Follower) Next(ctx context.Context) (Batch, error) { return f.next(ctx, untilQuiet, 0) }

// NextUntil is Next for a reader that needs the log only up to a sequence. Once the
// position has reached it, NextUntil returns no frames instead of waiting.
func (f *Follower) NextUntil(ctx context.Context, seq uint64) (Batch, error) {
	return f.next(ctx, untilQuiet, seq)
}

// NextFollowing is Next for a reader that stays when the log becomes quiet. It waits
// for frames without a limit.
func (f *Follower) NextFollowing(ctx context.Context) (Batch, error) {
	return f.next(ctx, following, 0)
}

// Poll is Next without waiting. If it returns neither frames nor quiet, the follower is
// at the head.
func (f *Follower) Poll(ctx context.Context) (Batch, error) { return f.next(ctx, polling, 0) }

// Await blocks until the log's head differs from the one at which Poll has found
// nothing.
func (f *Follower) Await(ctx context.Context) error {
	t := f.p.g.tail
	t.mu.Lock()
	if !t.known || t.head != f.polled.head || t.era != f.polled.era {
		t.mu.Unlock()
		return nil
	}
	return t.awaitLocked(ctx)
}

// patience is how long a follower waits for frames.
type patience uint8

const (
	untilQuiet patience = iota
	following
	polling
)

func (f *Follower) next(ctx context.Context, waits patience, until uint64) (b Batch, err error) {
	err = f.p.g.logs.retry(ctx, f.p.g.session, func() error {
		b, err = f.once(ctx, waits, until)
		return err
	})
	return b, err
}

func (f *Follower) once(ctx context.Context, waits patience, until uint64) (Batch, error) {
	if err := f.check(ctx); err != nil {
		return Batch{}, err
	}
	for {
		b, to, err := f.take(ctx)
		if err != nil || len(b.Frames) > 0 {
			return b, err
		}
		if until != 0 && f.after >= until {
			return Batch{At: f.after}, nil
		}
		if stays, b, err := f.stand(ctx, to, waits); stays || err != nil {
			return b, err
		}
	}
}

// reached is how far a projection has come, and the log's head then.
type reached struct {
	at, era uint64
	head    Head
}

// take moves the follower to the next frames, or, if there are none, to where the
// projection has come.
func (f *Follower) take(ctx context.Context) (Batch, reached, error) {
	p := f.p
	for {
		p.mu.Lock()
		if p.err != nil || !f.whole && f.after < p.keptTo {
			err := cmp.Or(p.err, error(ErrTrimmed.With(p.g.session, nil)))
			p.mu.Unlock()
			return Batch{}, reached{}, err
		}
		b, state := p.ring.after(f.after, p.at)
		to := reached{p.at, p.era, p.head}
		if state != ringLost && f.own != nil && !p.keepLocked(f.own) {
			f.own = nil
		}
		p.mu.Unlock()
		if f.remains = f.remains && f.after < p.g.tail.current().TraceFloor; f.remains {
			state = ringLost // the shared frames may begin inside the trimmed trace
		}
		size := segmentBytes
		if state == ringHas && p.o.Chained && !f.primed {
			state, size = ringLost, 1
		}
		switch state {
		case ringHas:
			f.after, f.primed = b.At, true
			b.Quiet = b.At == to.at && to.at == to.head.Seq && quiet(to.head) && p.g.tail.current() == to.head
			return b, to, nil
		case ringNone:
			f.after = max(f.after, to.at)
			return Batch{At: f.after}, to, nil
		}
		if b, err := f.catchUp(ctx, size); err != nil || len(b.Frames) > 0 {
			return b, to, err
		}
	}
}

// stand decides what a follower does when there are no frames for it. It stays where
// it is, or waits for the log, or advances the projection; in the last two cases it
// must take again.
func (f *Follower) stand(ctx context.Context, to reached, waits patience) (stays bool, b Batch, err error) {
	t := f.p.g.tail
	t.mu.Lock()
	if !t.known || t.era != to.era || t.head != to.head || to.head.Seq != to.at {
		t.mu.Unlock()
		return false, Batch{}, f.p.advance(ctx)
	}
	still := quiet(to.head)
	switch {
	case f.after > to.at:
		t.mu.Unlock()
		return true, Batch{}, ErrCursorAhead.With(t.session, nil)
	case waits == polling, waits == untilQuiet && still:
		t.mu.Unlock()
		f.polled = to
		return true, Batch{At: f.after, Quiet: still}, nil
	}
	return false, Batch{}, t.awaitLocked(ctx)
}

// check asks the store for the log's head, unless a watcher follows it already and has
// seen as much as the follower.
func (f *Follower) check(ctx context.Context) error {
	if f.checked {
		return nil
	}
	t := f.p.g.tail
	t.mu.Lock()
	seen := t.watching && t.known && f.after <= t.head.Seq
	t.mu.Unlock()
	if !seen {
		if err := t.refresh(ctx); err != nil {
			return err
		}
	}
	f.checked = true
	return nil
}

// ownProjector brings one follower to the beginning of the shared frames.
type ownProjector struct {
	proj    Projector
	src     *source
	scratch []Frame
	recs    []chunk.Record // read, but not yet projected
	remains uint64         // frames of what remains
	kept    bool           // its follower was in the shared frames since
	seg     segment        // of a stateless projection: the latest batch, whose memory is reused
}

// keptProjectors is how many followers of a projection keep their own projector when they
// have reached the shared frames. Each holds what its projector folds: a turn's message.
const keptProjectors = 4

// keepLocked reports whether a follower that has reached the shared frames keeps its
// projector, to continue with it when it falls behind again, not from the start.
func (p *Projection) keepLocked(o *ownProjector) bool {
	if o.kept || p.o.Stateless {
		return o.kept
	}
	p.kept = slices.DeleteFunc(p.kept, func(w weak.Pointer[ownProjector]) bool { return w.Value() == nil })
	if o.kept = len(p.kept) < keptProjectors; o.kept {
		p.kept = append(p.kept, weak.Make(o))
	}
	return o.kept
}

// catchUp projects for this follower alone, from the projection's start, and returns at least
// size bytes of the frames after its position, if there are so many. A temporary error keeps
// what was projected, so that a reader with a short deadline on every call gets there, too.
func (f *Follower) catchUp(ctx context.Context, size int) (Batch, error) {
	if f.own == nil {
		from := f.after
		if f.remains {
			from = 0
		}
		src, err := f.p.source(ctx, from)
		if err != nil {
			return Batch{}, err
		}
		if f.remains {
			src.r.remains, src.r.tells = true, true
		}
		f.own = &ownProjector{proj: f.p.o.New(), src: src}
	}
	o := f.own
	direct, renders := o.proj.(Renderer)
	seg := &segment{}
	if f.p.o.Stateless {
		seg = &o.seg
		seg.reset(size)
	}
	at := f.after
	for len(seg.marks) == 0 || len(seg.buf) < size && !seg.last().stop {
		r, err := f.record(ctx)
		if err != nil {
			if Final(err) {
				f.own = nil
				if o.kept { // one from the start may do without what was trimmed since
					return f.catchUp(ctx, size)
				}
				return Batch{}, err
			}
			if len(seg.marks) == 0 {
				f.after = at
				return Batch{}, err
			}
			break // the next call meets the error again, if it lasts
		}
		if r == nil {
			at = max(at, o.src.at)
			break
		}
		at = max(at, r.Seq)
		if renders && !f.remains && r.Seq > f.after {
			seg.render(direct, r, o.src.r.incarnation)
			continue
		}
		if o.scratch, err = o.proj.Apply(o.scratch[:0], *r); err != nil {
			f.own = nil
			return Batch{}, err
		}
		if f.remains && r.Seq <= o.src.r.keptTo {
			if f.addRemaining(seg, r.Seq) {
				at = o.src.at
				break // what follows has ids of its own
			}
		} else if r.Seq > f.after && len(o.scratch) > 0 {
			seg.add(r.Seq, o.scratch, Cursor{Incarnation: o.src.r.incarnation})
		}
	}
	b := Batch{}
	if len(seg.marks) > 0 {
		b = seg.after(f.after)
		b.Remains, b.More, f.primed = f.remains, len(o.recs) > 0 && size > 1, !f.remains
	}
	f.after, b.At = at, at
	return b, nil
}

// addRemaining adds the frames of a record that remains, but for those that the reader
// has. It reports whether no other record remains.
func (f *Follower) addRemaining(seg *segment, seq uint64) (last bool) {
	o := f.own
	last = len(o.recs) == 0 && o.src.at >= o.src.r.keptTo
	for i := range o.scratch {
		if o.remains++; o.remains <= f.seen {
			o.proj = f.p.o.New() // as if this record had not been
			continue
		}
		f.seen = o.remains
		id := Cursor{Seq: o.src.r.keptTo, Incarnation: o.src.r.incarnation, InPlan: true, PlanFrames: o.remains}
		if last && i == len(o.scratch)-1 {
			id.InPlan = false
		}
		seg.add(max(seq, f.after+1), o.scratch[i:i+1], id)
	}
	return last
}

// record returns the next record for the follower's own projector, or nil at the head.
func (f *Follower) record(ctx context.Context) (r *chunk.Record, err error) {
	o := f.own
	if len(o.recs) == 0 {
		if o.recs, err = o.src.next(ctx); err != nil {
			return nil, err
		}
		if o.src.lossy || !f.whole && f.after < o.src.r.keptTo {
			return nil, ErrTrimmed.With(f.p.g.session, nil)
		}
		if len(o.recs) == 0 {
			return nil, nil
		}
	}
	r, o.recs = &o.recs[0], o.recs[1:]
	return r, nil
}

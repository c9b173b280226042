package spool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"weak"

	"github.com/spool-run/spool/chunk"
)

const (
	segmentBytes = 64 << 10 // the size that a Batch should not much exceed, and that a stalled reader keeps in memory
	warmViews    = 2        // unused projections that a log keeps: about a MiB each
)

// Batch is what a reader of a [Projection] gets: the frames of the records after its
// position, both as frames and rendered. All of it is shared between readers and must
// not be changed.
type Batch struct {
	// Frames of the batch. No frame follows a terminal or cut one of an earlier
	// record: those end a batch.
	Frames []Frame
	// Bytes are the same frames, concatenated. Before each frame that has a Seq comes
	// its line "id: CURSOR\n". They are ready for one write to an SSE stream.
	Bytes []byte
	// Plain is how many of the Bytes, PlainFrames how many of the Frames, come
	// before the first terminal or cut frame.
	Plain, PlainFrames int
	// At is the reader's new position. It continues there even if it did not send all
	// of the batch.
	At uint64
	// Quiet is set if the log is quiet and no frame follows.
	Quiet bool
}

// ProjectionOptions define what a [Projection] shows.
type ProjectionOptions struct {
	// Key names the projection within its log. Calls with the same key get the same
	// projection, so the other options must be the same, too.
	Key string
	// After is the sequence after which the projector begins.
	After uint64
	// Incarnation is the log's incarnation: records of another one are not shown. 0
	// takes the one that is found.
	Incarnation uint64
	// New makes a projector that has applied no record.
	New func() Projector
	// Stateless is set if a record's frames depend on the record alone, so that a
	// reader may begin anywhere. Then there is no plan, and After is ignored.
	Stateless bool
}

// Projection is a projector that all readers of a log share. It projects each record
// once, when the first reader asks for it, and keeps the latest frames in rendered
// form. A further reader costs a lock and a slice header.
type Projection struct {
	g *Log
	o ProjectionOptions

	lock    chan struct{} // held by the reader that projects
	proj    Projector     // under lock, like all fields up to scratch
	src     *source
	scratch []Frame

	mu      sync.Mutex
	ring    ring
	life    uint64  // the log's incarnation; 0 as long as it is not known
	at      uint64  // everything up to here is projected
	keptTo  uint64  // up to here it was projected from kept records alone
	head    Head    // of the log, when at was reached
	plan    []Frame // the plan at planAt
	planAt  uint64
	planned bool
	cuts    []cut
	err     error
}

// cut is a record with cut frames, and the first record whose frames they retract.
type cut struct{ since, at uint64 }

// Projection returns the log's projection with that key. It makes one if there is none.
func (g *Log) Projection(o ProjectionOptions) *Projection {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.projections[o.Key].Value()
	if p == nil || p.failed() {
		if o.Stateless {
			o.After = 0
		}
		p = &Projection{g: g, o: o, lock: make(chan struct{}, 1), life: o.Incarnation}
		p.ring.max = g.logs.o.TailBytes
		for old, w := range g.projections {
			if w.Value() == nil {
				delete(g.projections, old)
			}
		}
		if g.projections == nil {
			g.projections = make(map[string]weak.Pointer[Projection])
		}
		g.projections[o.Key] = weak.Make(p)
	}
	if i := slices.Index(g.views, p); i >= 0 {
		g.views = append(g.views[:i], g.views[i+1:]...)
	} else if len(g.views) == warmViews {
		g.views = append(g.views[:0], g.views[1:]...)
	}
	g.views = append(g.views, p)
	return p
}

func (p *Projection) failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil
}

// Attach brings the projection to the head and returns the projector's plan there. A
// caller that has just got the head passes it, to save a request to the store; the zero
// Head makes Attach ask. Errors are those of [Follower.Next].
func (p *Projection) Attach(ctx context.Context, just Head) (plan []Frame, at uint64, err error) {
	if err := p.reach(ctx, just); err != nil {
		return nil, 0, err
	}
	if err := p.acquire(ctx); err != nil {
		return nil, 0, err
	}
	defer p.release()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, 0, p.err
	}
	if !p.planned || p.planAt != p.at {
		if p.plan, p.err = p.proj.Plan(); p.err != nil {
			return nil, 0, p.err
		}
		p.planAt, p.planned = p.at, true
	}
	return p.plan, p.at, nil
}

// reach brings the projection to the head.
func (p *Projection) reach(ctx context.Context, just Head) error {
	if err := p.g.tail.reach(ctx, just); err != nil {
		return err
	}
	for target := p.g.tail.current(); ; {
		p.mu.Lock()
		at, head, failed := p.at, p.head, p.err
		p.mu.Unlock()
		if failed != nil {
			return failed
		}
		if head.Incarnation == target.Incarnation && head.Incarnation > 0 && at >= target.Seq {
			return nil
		}
		if err := p.advance(ctx); err != nil {
			return err
		}
	}
}

// Retracted reports whether content that a reader at this sequence has received was
// retracted later by cut frames. If the reader continued there, it would be
// disconnected, and reconnect, again and again. Errors are those of [Follower.Next].
func (p *Projection) Retracted(ctx context.Context, just Head, seq uint64) (bool, error) {
	if err := p.reach(ctx, just); err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.cuts, func(c cut) bool { return c.since <= seq && seq < c.at }), nil
}

// At returns a new projector that has applied the records up to a sequence. It fails
// with [ErrCursorAhead] beyond the head, and with [ErrTrimmed] where the records are
// gone.
func (p *Projection) At(ctx context.Context, just Head, seq uint64) (Projector, error) {
	proj := p.o.New()
	if seq <= p.o.After {
		return proj, nil
	}
	src, err := newSource(ctx, p.g, just, p.o.After, seq)
	if err == nil {
		err = p.bind(src)
	}
	if err != nil {
		return nil, err
	}
	var scratch []Frame
	for {
		recs, err := src.next(ctx)
		if err != nil || recs == nil {
			return proj, err
		}
		for _, r := range recs {
			if scratch, err = proj.Apply(scratch[:0], r); err != nil {
				return nil, err
			}
		}
	}
}

// Follow returns a reader of the frames of the records after a position. A caller that
// has just got the head passes it, to save a request to the store; the zero Head makes
// Follow ask.
func (p *Projection) Follow(just Head, after uint64) *Follower {
	return &Follower{p: p, after: max(after, p.o.After), whole: after <= p.o.After, checked: just != Head{}}
}

// Follower is one reader's position in a [Projection]. It holds no resources, except a
// projector of its own while it is too far behind for the shared frames. Use it from
// one goroutine at a time; there is nothing to close.
type Follower struct {
	p       *Projection
	after   uint64
	whole   bool // it began at the projection's start, so it lacks nothing if trace is trimmed
	checked bool
	polled  Head // at which Poll has found nothing
	own     *ownProjector
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
	if !t.known || t.head != f.polled {
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

func (f *Follower) next(ctx context.Context, waits patience, until uint64) (Batch, error) {
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
	at   uint64
	head Head
}

// take moves the follower to the next frames, or, if there are none, to where the
// projection has come.
func (f *Follower) take(ctx context.Context) (Batch, reached, error) {
	p := f.p
	for {
		p.mu.Lock()
		if p.err != nil || !f.whole && f.after < p.keptTo {
			err := p.err
			p.mu.Unlock()
			if err == nil {
				err = ErrTrimmed.With(p.g.session, nil)
			}
			return Batch{}, reached{}, err
		}
		b, state := p.ring.after(f.after, p.at)
		to := reached{p.at, p.head}
		p.mu.Unlock()
		switch state {
		case ringHas:
			f.after, f.own = b.At, nil
			b.Quiet = b.At == to.at && to.at == to.head.Seq && quiet(to.head, p.g.logs.Now().UnixMilli()) && p.g.tail.current() == to.head
			return b, to, nil
		case ringNone:
			f.after, f.own = max(f.after, to.at), nil
			return Batch{At: f.after}, to, nil
		}
		if b, err := f.catchUp(ctx); err != nil || len(b.Frames) > 0 {
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
	if !t.known || t.head != to.head || to.head.Seq != to.at {
		t.mu.Unlock()
		return false, Batch{}, f.p.advance(ctx)
	}
	still := quiet(to.head, t.logs.Now().UnixMilli())
	switch {
	case f.after > to.at:
		t.mu.Unlock()
		return true, Batch{}, ErrCursorAhead.With(t.session, nil)
	case waits == polling, waits == untilQuiet && still:
		t.mu.Unlock()
		f.polled = to.head
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
}

// catchUp projects for this follower alone, from the projection's start, and returns
// about one segment of the frames after its position. A temporary error keeps what was
// projected, so that a reader with a short deadline on every call gets there, too.
func (f *Follower) catchUp(ctx context.Context) (Batch, error) {
	if f.own == nil {
		src, err := f.p.source(ctx, f.after)
		if err != nil {
			return Batch{}, err
		}
		f.own = &ownProjector{proj: f.p.o.New(), src: src}
	}
	o := f.own
	var seg segment
	at := f.after
	for len(seg.marks) == 0 || len(seg.buf) < segmentBytes && !seg.last().stop {
		r, err := f.record(ctx)
		if err != nil {
			if Final(err) {
				f.own = nil
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
		if o.scratch, err = o.proj.Apply(o.scratch[:0], *r); err != nil {
			f.own = nil
			return Batch{}, err
		}
		if r.Seq > f.after && len(o.scratch) > 0 {
			seg.add(r.Seq, o.scratch, o.src.incarnation)
		}
		at = max(at, r.Seq)
	}
	b := Batch{}
	if len(seg.marks) > 0 {
		b = seg.after(f.after)
	}
	f.after, b.At = at, at
	return b, nil
}

// record returns the next record for the follower's own projector, or nil at the head.
func (f *Follower) record(ctx context.Context) (r *chunk.Record, err error) {
	o := f.own
	if len(o.recs) == 0 {
		if o.recs, err = o.src.next(ctx); err != nil {
			return nil, err
		}
		if o.src.lossy || !f.whole && f.after < o.src.keptTo {
			return nil, ErrTrimmed.With(f.p.g.session, nil)
		}
		if len(o.recs) == 0 {
			return nil, nil
		}
	}
	r, o.recs = &o.recs[0], o.recs[1:]
	return r, nil
}

func (p *Projection) acquire(ctx context.Context) error {
	select {
	case p.lock <- struct{}{}:
		return nil
	default:
	}
	select {
	case p.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.g.logs.ctx.Done():
		return ErrClosed
	}
}

func (p *Projection) release() { <-p.lock }

// advance projects the next records for all readers, if there are any.
func (p *Projection) advance(ctx context.Context) error {
	p.mu.Lock()
	before, head := p.at, p.head
	p.mu.Unlock()
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.release()
	p.mu.Lock()
	done, failed := p.at != before || p.head != head, p.err
	p.mu.Unlock()
	if done || failed != nil {
		return failed
	}
	if err := p.open(ctx); err != nil {
		return err
	}
	head = p.g.tail.current()
	recs, err := p.src.next(ctx)
	if err == nil && p.src.lossy {
		err = ErrTrimmed.With(p.g.session, nil)
	}
	if p.o.Stateless && errors.Is(err, ErrTrimmed) {
		p.src = nil // begin again behind the trim: who was there already misses nothing
		return nil
	}
	if err != nil {
		return p.fail(err)
	}
	p.mu.Lock()
	p.keptTo = p.src.keptTo
	p.mu.Unlock()
	for i := range recs {
		if p.scratch, err = p.proj.Apply(p.scratch[:0], recs[i]); err != nil {
			return p.failWith(err)
		}
		if len(p.scratch) > 0 {
			p.mu.Lock()
			if last := &p.scratch[len(p.scratch)-1]; last.Cut {
				p.cuts = append(p.cuts, cut{last.Since, recs[i].Seq})
			}
			p.ring.add(recs[i].Seq, p.scratch, p.src.incarnation)
			p.at = recs[i].Seq
			p.mu.Unlock()
		}
	}
	clear(p.scratch)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.head = p.src.at, head
	return nil
}

// open makes sure that there is a projector. A stateless one skips the records that
// only readers with positions of their own need.
func (p *Projection) open(ctx context.Context) error {
	from := p.o.After
	if p.o.Stateless {
		if err := p.ask(ctx); err != nil {
			return err
		}
		from = p.g.tail.start()
	}
	if p.src != nil && (!p.o.Stateless || p.src.at >= from) {
		return nil
	}
	src, err := p.source(ctx, from)
	if err != nil {
		return err
	}
	p.src = src
	if p.proj == nil {
		p.proj = p.o.New()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.ring = src.at, ring{max: p.ring.max, base: src.at}
	return nil
}

// source reads the records for a projector of this projection: all from its start, or,
// if it is stateless, those after a position.
func (p *Projection) source(ctx context.Context, after uint64) (*source, error) {
	if !p.o.Stateless {
		after = p.o.After
		if err := p.ask(ctx); err != nil {
			return nil, err
		}
	}
	src, err := newSource(ctx, p.g, p.g.tail.current(), after, 0)
	if err == nil {
		err = p.bind(src)
	}
	if err != nil || !p.o.Stateless {
		return src, err
	}
	src.at = after
	src.follow() // trimmed trace cannot be projected
	return src, nil
}

// ask asks the store where the log stands, unless this process has seen the
// projection's incarnation.
func (p *Projection) ask(ctx context.Context) error {
	known := p.g.tail.current()
	if known == (Head{}) || p.o.Incarnation != 0 && known.Incarnation != p.o.Incarnation {
		return p.g.tail.refresh(ctx)
	}
	return nil
}

// bind ties the projection to the incarnation of its first source, unless its
// options have, and says whether a source reads another.
func (p *Projection) bind(src *source) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == 0 {
		p.life = src.incarnation
	}
	if p.life != src.incarnation {
		return ErrCursorAhead.With(p.g.session, nil)
	}
	return nil
}

// fail remembers permanent errors, so that the next call of Log.Projection returns
// another projection.
func (p *Projection) fail(err error) error {
	if Final(err) {
		return p.failWith(err)
	}
	return err
}

func (p *Projection) failWith(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	return err
}

package spool

import (
	"context"
	"errors"
	"sync"
	"weak"

	"github.com/spool-run/spool/chunk"
)

const (
	segmentBytes = 64 << 10 // what a Batch should not much exceed, and a stalled reader can hold on to
	warmViews    = 2        // projections that a log keeps although nobody uses them: about a MiB each
)

// Batch is what a reader of a [Projection] is given: the frames of the records
// after its position, both as frames and rendered. All of it is shared between
// readers and must not be changed.
type Batch struct {
	// Frames of the batch. No frame follows a terminal or cut one of an earlier
	// record: those end a batch.
	Frames []Frame
	// Bytes are the same frames one behind the other, each that has a Seq with
	// its line "id: CURSOR\n" in front, ready for one write to an SSE stream.
	Bytes []byte
	// Plain is how many of the Bytes, PlainFrames how many of the Frames, come
	// before the first terminal or cut frame.
	Plain, PlainFrames int
	// At is the reader's new position, where to go on whatever was sent.
	At uint64
	// Quiet says that the log is quiet and nothing follows.
	Quiet bool
}

// Projection is a projector that all readers of a log share. It projects each
// record once, when the first reader asks for it, and keeps the latest frames,
// rendered, so that a further reader costs a lock and a slice header.
type Projection struct {
	g     *Log
	key   string
	start uint64
	mk    func() Projector

	turn    chan struct{} // held by whoever projects
	proj    Projector     // under turn, as all up to scratch
	src     *source
	scratch []Frame

	mu      sync.Mutex
	ring    ring
	at      uint64  // everything up to here is projected
	keptTo  uint64  // up to here from kept records alone
	head    Head    // of the log, when at was reached
	plan    []Frame // of planAt
	planAt  uint64
	planned bool
	cutAt   uint64 // the latest record whose frames cut their reader
	err     error
}

// Projection returns the log's projection of that name, and makes it if there is
// none: a projector made by mk, over the records after a sequence. Key, after
// and what mk makes must belong together.
func (g *Log) Projection(key string, after uint64, mk func() Projector) *Projection {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.projections[key].Value()
	if p == nil || p.failed() {
		p = &Projection{g: g, key: key, start: after, mk: mk, turn: make(chan struct{}, 1)}
		p.ring.max = g.logs.o.TailBytes
		for old, w := range g.projections {
			if w.Value() == nil {
				delete(g.projections, old)
			}
		}
		if g.projections == nil {
			g.projections = make(map[string]weak.Pointer[Projection])
		}
		g.projections[key] = weak.Make(p)
	}
	if i := indexOf(g.views, p); i >= 0 {
		g.views = append(g.views[:i], g.views[i+1:]...)
	} else if len(g.views) == warmViews {
		g.views = append(g.views[:0], g.views[1:]...)
	}
	g.views = append(g.views, p)
	return p
}

func indexOf(list []*Projection, p *Projection) int {
	for i := range list {
		if list[i] == p {
			return i
		}
	}
	return -1
}

func (p *Projection) failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil
}

// Attach brings the projection to the head and returns the projector's plan
// there. Errors are those of Next.
func (p *Projection) Attach(ctx context.Context) (plan []Frame, at uint64, err error) {
	if err := p.reach(ctx); err != nil {
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
		plan, err := planOf(p.proj)
		if err != nil {
			p.err = err
			return nil, 0, err
		}
		p.plan, p.planAt, p.planned = plan, p.at, true
	}
	return p.plan, p.at, nil
}

// reach brings the projection to the head.
func (p *Projection) reach(ctx context.Context) error {
	if err := p.g.tail.refresh(ctx); err != nil {
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

// CutSince reports whether frames between a sequence and the head cut their
// reader: one that comes back with that cursor would be cut again. Errors are
// those of Next.
func (p *Projection) CutSince(ctx context.Context, after uint64) (bool, error) {
	if err := p.reach(ctx); err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cutAt > after, nil
}

// At returns the plan as it was at a sequence: that of a projector of its own
// over the records up to there. It fails with [ErrCursorAhead] beyond the head,
// and with [ErrTrimmed] where the records are gone.
func (p *Projection) At(ctx context.Context, seq uint64) ([]Frame, error) {
	proj := p.mk()
	if seq <= p.start {
		return planOf(proj)
	}
	src, err := newSource(ctx, p.g, p.start, seq)
	if err != nil {
		return nil, err
	}
	var scratch []Frame
	for {
		recs, err := src.next(ctx)
		if err != nil {
			return nil, err
		}
		if recs == nil {
			return planOf(proj)
		}
		for _, r := range recs {
			if scratch, err = proj.Apply(scratch[:0], r); err != nil {
				return nil, err
			}
		}
	}
}

// planOf returns a projector's plan, unless the projector says that it lacks
// something for it.
func planOf(proj Projector) ([]Frame, error) {
	plan := proj.Plan()
	if p, ok := proj.(interface{ Err() error }); ok && p.Err() != nil {
		return nil, p.Err()
	}
	return plan, nil
}

// Next is [Follower.Next] for a position that is not kept between calls; a
// position too old for the shared frames is expensive here.
func (p *Projection) Next(ctx context.Context, after uint64) (frames []Frame, at uint64, quiet bool, err error) {
	b, err := p.Follow(after).Next(ctx)
	return b.Frames, b.At, b.Quiet, err
}

// Follow returns a reader of the frames of the records after a position.
func (p *Projection) Follow(after uint64) *Follower {
	return &Follower{p: p, after: max(after, p.start), whole: after <= p.start}
}

// Follower is one reader's position in a [Projection]. It holds nothing, except,
// as long as it is too far behind for the shared frames, a projector of its own.
// Use it from one goroutine at a time; there is nothing to close.
type Follower struct {
	p       *Projection
	after   uint64
	whole   bool // it began at the projection's start, so that nothing is missing if trace is
	checked bool
	own     *ownProjector
}

// Next returns the frames after the follower's position, and moves it. It blocks
// until there are some, or until the log is quiet and there are none.
//
// It fails with [ErrTrimmed] if the frames after the position can no longer be
// told, [ErrCursorAhead] if the log is another incarnation's or shorter,
// [ErrNotFound], [ErrClosed], the projector's error, the store's or ctx's. Only
// the store's and ctx's may pass.
func (f *Follower) Next(ctx context.Context) (Batch, error) { return f.next(ctx, 0) }

// NextUntil is Next for who only wants what the log holds up to a sequence: once
// the position is there it returns no frames instead of waiting for some.
func (f *Follower) NextUntil(ctx context.Context, seq uint64) (Batch, error) { return f.next(ctx, seq) }

// next is Next, or, unless until is 0, NextUntil.
func (f *Follower) next(ctx context.Context, until uint64) (Batch, error) {
	p, t := f.p, f.p.g.tail
	if err := f.check(ctx); err != nil {
		return Batch{}, err
	}
	for {
		p.mu.Lock()
		if p.err != nil || !f.whole && f.after < p.keptTo {
			err := p.err
			p.mu.Unlock()
			if err == nil {
				err = ErrTrimmed.With(p.g.session, nil)
			}
			return Batch{}, err
		}
		b, state := p.ring.after(f.after, p.at)
		at, head := p.at, p.head
		p.mu.Unlock()
		switch state {
		case ringHas:
			f.after, f.own = b.At, nil
			b.Quiet = b.At == at && at == head.Seq && quiet(head, t.logs.Now().UnixMilli())
			return b, nil
		case ringLost:
			b, err := f.catchUp(ctx)
			if err != nil || len(b.Frames) > 0 {
				return b, err
			}
			continue
		}
		f.after, f.own = max(f.after, at), nil
		if until != 0 && f.after >= until {
			return Batch{At: f.after}, nil
		}

		t.mu.Lock()
		if !t.known || t.head != head || head.Seq != at {
			t.mu.Unlock()
			if err := p.advance(ctx); err != nil {
				return Batch{}, err
			}
			continue
		}
		var err error
		switch {
		case f.after > at:
			err = ErrCursorAhead.With(p.g.session, nil)
		case quiet(head, t.logs.Now().UnixMilli()):
			b.At, b.Quiet = f.after, true
		default:
			if err := t.awaitLocked(ctx); err != nil {
				return Batch{}, err
			}
			continue
		}
		t.mu.Unlock()
		return b, err
	}
}

// check asks the store where the log stands, unless somebody watches it anyway.
func (f *Follower) check(ctx context.Context) error {
	if f.checked {
		return nil
	}
	t := f.p.g.tail
	t.mu.Lock()
	watching := t.watching
	t.mu.Unlock()
	if !watching {
		if err := t.refresh(ctx); err != nil {
			return err
		}
	}
	f.checked = true
	return nil
}

// ownProjector brings one follower to where the shared frames begin.
type ownProjector struct {
	proj    Projector
	src     *source
	scratch []Frame
	recs    []chunk.Record // read, but not projected
}

// catchUp projects for this follower alone, from the projection's start, and
// returns what comes after its position, about a segment of it.
func (f *Follower) catchUp(ctx context.Context) (b Batch, err error) {
	defer func() {
		if err != nil {
			f.own = nil
		}
	}()
	if f.own == nil {
		src, err := newSource(ctx, f.p.g, f.p.start, 0)
		if err != nil {
			return Batch{}, err
		}
		f.own = &ownProjector{proj: f.p.mk(), src: src}
	}
	o := f.own
	var seg segment
	at := f.after
	for len(seg.marks) == 0 || len(seg.buf) < segmentBytes && !seg.last().stop {
		if len(o.recs) == 0 {
			if o.recs, err = o.src.next(ctx); err != nil {
				return Batch{}, err
			}
			if o.src.lossy || !f.whole && f.after < o.src.keptTo {
				return Batch{}, ErrTrimmed.With(f.p.g.session, nil)
			}
			if len(o.recs) == 0 {
				at = max(at, o.src.at)
				break
			}
		}
		r := o.recs[0]
		o.recs = o.recs[1:]
		if o.scratch, err = o.proj.Apply(o.scratch[:0], r); err != nil {
			return Batch{}, err
		}
		if r.Seq > f.after && len(o.scratch) > 0 {
			seg.add(r.Seq, o.scratch, o.src.incarnation)
		}
		at = max(at, r.Seq)
	}
	if len(seg.marks) > 0 {
		b = seg.after(f.after)
	}
	f.after, b.At = at, at
	return b, nil
}

func (p *Projection) acquire(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.g.logs.ctx.Done():
		return ErrClosed
	}
}

func (p *Projection) release() { <-p.turn }

// advance projects the next records for everybody, if there are any.
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
	if p.src == nil {
		src, err := newSource(ctx, p.g, p.start, 0)
		if err != nil {
			return err
		}
		p.src, p.proj = src, p.mk()
		p.mu.Lock()
		p.at, p.ring.base = src.at, src.at
		p.mu.Unlock()
	}
	head = p.g.tail.current()
	recs, err := p.src.next(ctx)
	if err == nil && p.src.lossy {
		err = ErrTrimmed.With(p.g.session, nil)
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
			if p.scratch[len(p.scratch)-1].Cut {
				p.cutAt = recs[i].Seq
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

// fail remembers errors that do not pass, so that the next caller of
// Log.Projection gets another one.
func (p *Projection) fail(err error) error {
	for _, e := range [...]error{ErrTrimmed, ErrCursorAhead, ErrNotFound, ErrClosed} {
		if errors.Is(err, e) {
			return p.failWith(err)
		}
	}
	return err
}

func (p *Projection) failWith(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	return err
}

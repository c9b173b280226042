package spool

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"weak"

	"github.com/spool-run/spool/internal/budget"
	"github.com/spool-run/spool/internal/wait"
)

const (
	segmentBytes = 64 << 10 // the size that a Batch should not much exceed, and that a stalled reader keeps in memory
	warmViews    = 2        // unused projections that a log keeps: about a MiB each
)

// Batch is what a reader of a [Projection] gets: the frames of the records after its
// position, both as frames and rendered. All of it is shared between readers and must
// not be changed. A batch of a stateless projection is valid until the follower's next
// call.
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
	// Remains is set if the frames are those of what remains of trimmed trace: see
	// [Projection.FollowLog].
	Remains bool
	// More is set if records that follow are in memory.
	More bool
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
	// Chained: they depend also on the latest record before it that had frames. Each reader
	// then gets its first frames from a projector of its own, which knows no record yet.
	Chained bool
}

// Projection is a projector that all readers of a log share. It projects each record
// once, when the first reader asks for it, and keeps the latest frames in rendered
// form. A further reader costs a lock and a slice header.
type Projection struct {
	g *Log
	o ProjectionOptions

	lock    wait.Lock // held by the reader that projects
	proj    Projector // under lock, like all fields up to scratch
	src     *source
	scratch []Frame

	mu      sync.Mutex
	cached  *budget.Share
	ring    ring
	life    uint64  // the log's incarnation; 0 as long as it is not known
	era     uint64  // of the tail; 0 as long as nothing was read
	at      uint64  // everything up to here is projected
	keptTo  uint64  // up to here it was projected from kept records alone
	head    Head    // of the log, when at was reached
	plan    []Frame // the plan at planAt
	planAt  uint64
	planned bool
	cuts    []cut
	kept    []weak.Pointer[ownProjector] // of followers that have reached the ring
	err     error
}

// cut is a record with cut frames, and the first record whose frames they retract.
type cut struct{ since, at uint64 }

// Projection returns the log's projection with that key. It makes one if there is none.
func (g *Log) Projection(o ProjectionOptions) *Projection {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.projections[o.Key].Value()
	if p == nil || p.void() {
		if o.Stateless {
			o.After = 0
		}
		p = &Projection{g: g, o: o, lock: wait.NewLock(1), life: o.Incarnation}
		p.cached = budget.NewShare(&g.logs.cache, p)
		p.ring.max = g.logs.o.TailBytes
		maps.DeleteFunc(g.projections, func(_ string, w weak.Pointer[Projection]) bool { return w.Value() == nil })
		if g.projections == nil {
			g.projections = make(map[string]weak.Pointer[Projection])
		}
		g.projections[o.Key] = weak.Make(p)
	}
	g.views = append(slices.DeleteFunc(g.views, func(other *Projection) bool { return other == p }), p)
	g.views = slices.Delete(g.views, 0, max(0, len(g.views)-warmViews))
	return p
}

// void reports whether a projection has failed, or is one of a log that is gone.
func (p *Projection) void() bool {
	era := p.g.tail.seen().era
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil || p.era != 0 && p.era != era
}

// Attach brings the projection to the head and returns the projector's plan there. A
// caller that has just got the head passes it, to save a request to the store; the zero
// Head makes Attach ask. Errors are those of [Follower.Next].
func (p *Projection) Attach(ctx context.Context, just Head) (plan []Frame, at uint64, err error) {
	if err := p.reach(ctx, just); err != nil {
		return nil, 0, err
	}
	if err := p.g.logs.acquire(ctx, p.lock); err != nil {
		return nil, 0, err
	}
	defer p.lock.Release()
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
	return p.g.logs.retry(ctx, p.g.session, func() error { return p.reachOnce(ctx, just) })
}

func (p *Projection) reachOnce(ctx context.Context, just Head) error {
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
func (p *Projection) At(ctx context.Context, just Head, seq uint64) (proj Projector, err error) {
	err = p.g.logs.retry(ctx, p.g.session, func() error {
		proj, err = p.atOnce(ctx, just, seq)
		return err
	})
	return proj, err
}

func (p *Projection) atOnce(ctx context.Context, just Head, seq uint64) (Projector, error) {
	proj := p.o.New()
	if seq <= p.o.After {
		return proj, nil
	}
	src, err := p.bind(newSource(ctx, p.g, just, p.o.After, seq))
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

// FollowLog is Follow for a reader of the log itself, by a stateless projection. From
// the start of a log whose trace was trimmed, or from a place in what remains of it, the
// reader gets the frames of what remains, with places in a plan as ids. The first of them
// is that of a record of type [chunk.TypeTraceOmitted] with Seq 0.
func (p *Projection) FollowLog(just Head, after Cursor) *Follower {
	f := p.Follow(just, after.Seq)
	if after.Seq == 0 || after.InPlan {
		f.after, f.whole, f.remains, f.seen = 0, true, true, after.PlanFrames
	}
	return f
}

// Follow returns a reader of the frames of the records after a position. A caller that
// has just got the head passes it, to save a request to the store; the zero Head makes
// Follow ask.
func (p *Projection) Follow(just Head, after uint64) *Follower {
	return &Follower{p: p, after: max(after, p.o.After), whole: after <= p.o.After, checked: just != Head{}}
}

// advance projects the next records for all readers, if there are any.
func (p *Projection) advance(ctx context.Context) error {
	p.mu.Lock()
	before, head := p.at, p.head
	p.mu.Unlock()
	if err := p.g.logs.acquire(ctx, p.lock); err != nil {
		return err
	}
	defer p.lock.Release()
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
	if Final(err) {
		return p.fail(err)
	} else if err != nil {
		return err
	}
	p.mu.Lock()
	p.keptTo = p.src.r.keptTo
	p.mu.Unlock()
	room := p.g.logs.cache.Room(p.g.logs.o.TailBytes)
	for i := range recs {
		if p.scratch, err = p.proj.Apply(p.scratch[:0], recs[i]); err != nil {
			return p.fail(err)
		}
		if len(p.scratch) > 0 {
			p.mu.Lock()
			if last := &p.scratch[len(p.scratch)-1]; last.Cut {
				p.cuts = append(p.cuts, cut{last.Since, recs[i].Seq})
			}
			p.ring.max = room
			p.ring.add(recs[i].Seq, p.scratch, p.src.r.incarnation)
			p.at = recs[i].Seq
			p.mu.Unlock()
		}
	}
	clear(p.scratch)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cached.Set(p.ring.size())
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
	p.src, p.proj = src, p.o.New()
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
	src, err := p.bind(newSource(ctx, p.g, p.g.tail.current(), after, 0))
	if err != nil || !p.o.Stateless {
		return src, err
	}
	src.at, src.r.after = after, after
	src.r.remains = false // trimmed trace cannot be projected
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

// bind ties the projection to the log that its first source reads, and to its options'
// incarnation. It fails if a source reads another.
func (p *Projection) bind(src *source, err error) (*source, error) {
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life, p.era = cmp.Or(p.life, src.r.incarnation), cmp.Or(p.era, src.r.era)
	if p.life != src.r.incarnation || p.era != src.r.era {
		return nil, ErrCursorAhead.With(p.g.session, nil)
	}
	return src, nil
}

// fail remembers a permanent error, so that the next call of Log.Projection returns
// another projection.
func (p *Projection) fail(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	return err
}

package spool

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/budget"
	"github.com/spool-run/spool/internal/wait"
)

const (
	leastTail      = 64 << 10        // what a tail or a projection may hold beyond [Options.CacheBytes]
	recordOverhead = 96              // memory of a record beside its Data
	watchFor       = 5 * time.Second // the length of one store.Wait; an unneeded watcher ends after it
	// watchRest is how long the watcher rests if this process appends: its appends reach
	// readers by publish, each with the store's head, so that the watcher wakes for few of
	// them.
	watchRest   = 10 * time.Millisecond
	pageRecords = 1000 // the records of one shared read
)

// tail holds what this process knows of one session's log: the newest head and a
// contiguous series of the latest records, shared by all readers. This process's
// commits arrive by publish. Commits of other processes arrive by share, once for all
// readers, after the watcher saw the head move. The watcher is one goroutine, which
// runs while a reader waits.
type tail struct {
	logs    *Logs
	session string
	max     int
	cached  *budget.Share

	mu       sync.Mutex
	head     Head
	known    bool   // the store has told the head
	era      uint64 // from 1; grows when what was read before is void: the log was deleted or has lost records
	missing  bool   // the store has no such session
	base     uint64 // the sequence before recs[0]
	recs     []chunk.Record
	size     int
	full     uint64        // the base before which there is no room
	wake     chan struct{} // closed when a field above changes; nil if no reader waits
	waiters  int
	watching bool
	closed   bool // the store is
	owners   []*owner

	appends atomic.Uint64 // attempts of this process

	lock     wait.Lock // held by the goroutine that reads the store for all readers
	asking   wait.Lock // held by the one that asks for the head
	started  uint64    // refreshes, under mu
	finished uint64
}

func newTail(l *Logs, session string) *tail {
	t := &tail{logs: l, session: session, max: l.o.TailBytes, era: 1, lock: wait.NewLock(1), asking: wait.NewLock(1)}
	t.cached = budget.NewShare(&l.cache, t)
	return t
}

func (t *tail) end() uint64 { return t.base + uint64(len(t.recs)) }

// seen is what this process knew of a log when it asked the store for something. If the
// answer is behind that, the log has lost records. An answer that is only behind the
// present head was overtaken by a newer one.
type seen struct {
	head Head
	era  uint64
}

func (t *tail) seen() seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	return seen{t.head, t.era}
}

func (t *tail) current() Head { return t.seen().head }

// behind reports whether h cannot have followed another head of the log.
func (h Head) behind(other Head) bool {
	return h.Incarnation < other.Incarnation || h.Incarnation == other.Incarnation &&
		(h.Seq < other.Seq || h.Epoch < other.Epoch || h.TraceFloor < other.TraceFloor || h.Floor < other.Floor)
}

// observe takes a head that the store returned. It returns false if the log was deleted
// or has lost records since the store was asked: such a head may be from before that.
func (t *tail) observe(h Head, since seen) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if since.era != t.era {
		return false
	}
	t.observeLocked(h, since.head)
	return true
}

// start is the sequence before the first record that the tail holds and that was
// not trimmed: what follows those it holds may lie behind the trace floor.
func (t *tail) start() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.base, t.head.TraceFloor)
}

func (t *tail) observeLocked(h, since Head) {
	switch behind := t.known && h.behind(t.head); {
	case h.Hidden:
		t.vanishLocked() // the session is not visible yet
	case behind && h.behind(since), !t.known, h.Incarnation > t.head.Incarnation:
		t.restartLocked(h, h.Seq)
	case behind, h == t.head: // a newer head is known, or the same
	default:
		t.head = h
		t.broadcastLocked()
	}
}

// restartLocked takes a head of a log of which nothing is known: those of another
// incarnation, and those from before a loss, are not comparable.
func (t *tail) restartLocked(h Head, base uint64) {
	if t.known {
		t.era++
		if h.Incarnation <= t.head.Incarnation {
			t.logs.Logger().Error("the store has lost records", "session", t.session,
				"known", t.head.Seq, "stored", h.Seq, "incarnation", h.Incarnation)
			known := t.head
			t.logs.o.Go(func() { t.logs.spawn(func() { t.raise(known) }) }) // spawn takes a lock
		}
	}
	t.head, t.known, t.missing = h, true, false
	t.base, t.recs, t.size = base, nil, 0
	t.cached.Set(0)
	t.broadcastLocked()
}

// raise tells the store of a loss that only this process has noticed. All others, and their
// readers, learn of it by the incarnation.
func (t *tail) raise(known Head) {
	store, ok := t.logs.store.(Raiser)
	if !ok {
		return
	}
	var h Head
	since, ctx := t.seen(), WaitForStore(t.logs.ctx)
	err := t.logs.ask(ctx, t.session, func(ctx context.Context) (err error) {
		h, err = store.RaiseAbove(ctx, t.session, known)
		return err
	})
	if err == nil {
		t.observe(h, since)
	} else if !errors.Is(err, ErrUnsupported) {
		t.logs.Logger().Warn("cannot tell the store of a loss", "session", t.session, "error", err)
	}
}

// owner is the owner of a lease in this process.
type owner struct {
	epoch  uint64
	cancel context.CancelCauseFunc
}

// own registers an owner, or, with add false, forgets it.
func (t *tail) own(o *owner, add bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owners = slices.DeleteFunc(t.owners, func(other *owner) bool { return other == o }); add {
		t.owners = append(t.owners, o)
		t.supersedeLocked()
	}
}

// supersedeLocked tells the owners whose epoch has passed.
func (t *tail) supersedeLocked() {
	for _, o := range t.owners {
		if t.known && t.head.Epoch > o.epoch {
			o.cancel(ErrSuperseded.With(t.session, nil))
		}
	}
}

func (t *tail) broadcastLocked() {
	t.supersedeLocked()
	if t.wake != nil {
		close(t.wake)
		t.wake = nil
	}
}

// vanish notes that the session does not exist, as the store has said since then. If the
// head is another one by now, the session was created in between.
func (t *tail) vanish(since seen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.head == since.head && t.era == since.era {
		t.vanishLocked()
	}
}

func (t *tail) vanishLocked() {
	if t.known {
		t.era++
	}
	if t.known || !t.missing {
		t.known, t.missing, t.head = false, true, Head{}
		t.base, t.recs, t.size = 0, nil, 0
		t.cached.Set(0)
		t.broadcastLocked()
	}
}

// publish takes records that were just committed as first, first+1, …, and the head
// after them. It returns the era that they belong to, and ok as observe does. lost says
// that other records, which the log had at since, are gone.
func (t *tail) publish(recs []chunk.Record, first uint64, h Head, since seen) (era uint64, lost, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if since.era != t.era {
		return t.era, false, false
	}
	lost = h.behind(since.head)
	if len(recs) > 0 && !h.Hidden {
		lost = lost || h.Incarnation == since.head.Incarnation && first <= since.head.Seq
		switch {
		case lost, !t.known, h.Incarnation > t.head.Incarnation:
			t.restartLocked(h, first-1)
		case first > t.end()+pageRecords: // no reader follows here: start over
			t.base, t.recs, t.size = first-1, nil, 0
		}
		if h.Incarnation == t.head.Incarnation {
			t.extendLocked(recs, first)
		}
	}
	t.observeLocked(h, since.head)
	return t.era, lost, true
}

// hear takes what Wait has returned: a head, and records if they are exactly the next ones.
func (t *tail) hear(h Head, recs []chunk.Record, since seen) {
	n := uint64(len(recs))
	if next := since.head.Seq + 1; n > 0 && h.Incarnation == since.head.Incarnation && h.Seq >= next+n-1 &&
		recs[0].Seq == next && recs[n-1].Seq == next+n-1 {
		t.publish(recs, next, h, since)
		return
	}
	t.observe(h, since)
}

// extendLocked appends those of recs that are exactly the next ones.
func (t *tail) extendLocked(recs []chunk.Record, first uint64) {
	end := t.end()
	if first > end+1 || first+uint64(len(recs)) <= end+1 {
		return
	}
	recs = recs[end+1-first:]
	t.recs = append(t.recs, recs...)
	added := t.recs[len(t.recs)-len(recs):]
	for i := range added {
		added[i].Seq = end + 1 + uint64(i)
		t.size += len(added[i].Data) + recordOverhead
	}
	drop, max := 0, t.logs.cache.Room(t.max)
	for t.size > max && drop < len(t.recs)-1 {
		t.size -= len(t.recs[drop].Data) + recordOverhead
		drop++
	}
	// Dropped records stay in memory until the array grows next; they can double its
	// size.
	t.recs = t.recs[drop:]
	t.base += uint64(drop)
	t.cached.Set(t.size)
	t.broadcastLocked()
}

// prependLocked puts records before those that the tail holds, if there is room.
func (t *tail) prependLocked(recs []chunk.Record) {
	n, size := sizeOf(recs)
	if size += n * recordOverhead; t.size+size <= t.max {
		t.recs = slices.Concat(recs, t.recs)
		t.base, t.size = t.base-uint64(n), t.size+size
	}
}

// pageLocked returns a copy of the records after a sequence, or nil if the tail does
// not hold the next one. The copy does not keep the tail's array alive.
func (t *tail) pageLocked(after uint64, max int) []chunk.Record {
	if after < t.base || after >= t.end() {
		return nil
	}
	from := t.recs[after-t.base:]
	n, size := 0, 0
	for n < len(from) && n < max && size < MaxReadBytes {
		size += len(from[n].Data)
		n++
	}
	return append(make([]chunk.Record, 0, n), from[:n]...)
}

// refresh asks the store for the head. Callers share a request if it began after they
// asked.
func (t *tail) refresh(ctx context.Context) error {
	return t.logs.call(ctx, t.session, t.refreshOnce) // a store that hangs holds nobody up for long
}

func (t *tail) refreshOnce(ctx context.Context) error {
	t.mu.Lock()
	asked := t.started
	t.mu.Unlock()
	if err := t.logs.acquire(ctx, t.asking); err != nil {
		return err
	}
	defer t.asking.Release()
	t.mu.Lock()
	if t.finished > asked {
		t.mu.Unlock()
		return nil
	}
	t.started++
	n := t.started
	t.mu.Unlock()
	if _, err := t.ask(ctx); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	t.mu.Lock()
	t.finished = n
	t.mu.Unlock()
	return nil
}

// reach is refresh, but takes the caller's head if it passes one.
func (t *tail) reach(ctx context.Context, just Head) error {
	if just != (Head{}) {
		return nil // Log.Head has told the tail
	}
	return t.refresh(ctx)
}

// ask asks the store for the head.
func (t *tail) ask(ctx context.Context) (Head, error) {
	for {
		since := t.seen()
		var h Head
		err := t.logs.call(ctx, t.session, func(ctx context.Context) (err error) {
			h, err = t.logs.store.Head(ctx, t.session)
			return err
		})
		if err == nil && h.Hidden {
			h, err = Head{}, ErrNotFound.With(t.session, nil) // it is not visible yet
		}
		if err == nil && !t.observe(h, since) {
			continue
		}
		if errors.Is(err, ErrNotFound) {
			t.vanish(since)
		}
		return h, err
	}
}

// share reads records for all readers that ask meanwhile: a page after the tail's end, or
// those between a position and the tail's first record. These are what readers lack that
// were at the head before a restart. The tail keeps them if there is room.
func (t *tail) share(ctx context.Context, after uint64, max int, since seen) (recs []chunk.Record, err error) {
	err = t.logs.call(ctx, t.session, func(ctx context.Context) error {
		recs, err = t.shareOnce(ctx, after, max, since)
		return err
	})
	return recs, err
}

func (t *tail) shareOnce(ctx context.Context, after uint64, max int, since seen) ([]chunk.Record, error) {
	if err := t.logs.acquire(ctx, t.lock); err != nil {
		return nil, err
	}
	defer t.lock.Release()
	t.mu.Lock()
	recs, base, n := t.pageLocked(after, max), t.base, pageRecords
	near := t.nearLocked(after)
	t.mu.Unlock()
	if near {
		n = int(base - after)
	}
	if recs != nil || after < base && !near {
		return recs, nil // another reader did it, or found that there is no room
	}
	recs, err := t.readChecked(ctx, after, n, since)
	if err == nil && len(recs) == 0 {
		err = t.logs.Sleep(ctx, 5*time.Millisecond) // the head is newer than the readable records
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && near && t.base == base {
		t.full = base
	}
	return recs[:min(len(recs), max)], err
}

// nearLocked reports whether what a reader lacks is so little that the tail can keep it.
func (t *tail) nearLocked(after uint64) bool {
	return after < t.base && t.base-after <= pageRecords && t.base != t.full
}

// readChecked reads from the store, checks that the records belong to the log that was
// seen, and offers them to the tail. The caller holds the lock, or reads for itself alone.
func (t *tail) readChecked(ctx context.Context, after uint64, max int, since seen) ([]chunk.Record, error) {
	var recs []chunk.Record
	var h Head
	err := t.logs.call(ctx, t.session, func(ctx context.Context) (err error) {
		recs, h, err = t.logs.store.Read(ctx, t.session, after, max)
		return err
	})
	if err == nil {
		err = t.sameLog(h, since)
	}
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known && t.era == since.era && len(recs) > 0 {
		switch end := t.end(); {
		case after > end && t.head.Seq > end+pageRecords: // no reader has followed for long
			t.base, t.recs, t.size = after, nil, 0
		case recs[len(recs)-1].Seq == t.base:
			t.prependLocked(recs)
		}
		t.extendLocked(recs, recs[0].Seq)
	}
	return recs, nil
}

// sameLog takes the head of a read. It fails with [ErrCursorAhead] if the log that was
// seen is gone, or has lost records.
func (t *tail) sameLog(h Head, since seen) error {
	if h.Incarnation == 0 {
		t.vanish(since)
	} else {
		t.observe(h, since)
	}
	if h.Incarnation != since.head.Incarnation || t.seen().era != since.era {
		return ErrCursorAhead.With(t.session, nil)
	}
	return nil
}

// awaitLocked blocks until something changes. It is called with mu held and returns
// without it.
func (t *tail) awaitLocked(ctx context.Context) error {
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	if t.wake == nil {
		t.wake = make(chan struct{})
	}
	wake := t.wake
	t.waiters++
	start := !t.watching
	t.watching = true
	t.mu.Unlock()
	if start && !t.logs.spawn(t.watch) {
		t.mu.Lock()
		t.watching = false
		t.mu.Unlock()
	}
	var err error
	select {
	case <-wake:
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.logs.ctx.Done():
		err = ErrClosed
	}
	t.mu.Lock()
	t.waiters--
	t.mu.Unlock()
	return err
}

// awaitBeyond blocks until the log has grown beyond a position of its era, and returns
// its head. It fails with io.EOF if the log is quiet there, unless the caller knows that
// more will follow, and with [ErrCursorAhead] if the log of that era is gone.
func (t *tail) awaitBeyond(ctx context.Context, seq, era uint64, sure bool) (Head, error) {
	for {
		t.mu.Lock()
		switch h := t.head; {
		case t.missing:
			t.mu.Unlock()
			return Head{}, ErrNotFound.With(t.session, nil)
		case t.era != era:
			t.mu.Unlock()
			return Head{}, ErrCursorAhead.With(t.session, nil)
		case t.known && h.Seq > seq:
			t.mu.Unlock()
			return h, nil
		case t.known && !sure && quiet(h):
			t.mu.Unlock()
			return Head{}, io.EOF
		}
		if err := t.awaitLocked(ctx); err != nil {
			return Head{}, err
		}
	}
}

// watch follows the session's head in the store while a reader waits.
func (t *tail) watch() {
	failures := 0
	for {
		t.mu.Lock()
		if t.waiters == 0 || t.logs.ctx.Err() != nil {
			t.watching = false
			t.mu.Unlock()
			return
		}
		since := seen{t.head, t.era}
		t.mu.Unlock()
		appends := t.appends.Load()

		ctx, cancel := context.WithTimeout(t.logs.ctx, watchFor)
		h, recs, err := t.logs.store.Wait(ctx, t.session, since.head)
		expired := ctx.Err() != nil
		if err == nil && h.behind(since.head) { // Wait may be late: only the store's head tells a loss
			h, err = t.ask(ctx)
			recs = nil
		}
		cancel()
		switch {
		case err == nil:
			if t.hear(h, recs, since); h != since.head && t.seen() != since {
				failures = 0
				if appends != t.appends.Load() {
					_ = t.logs.Sleep(t.logs.ctx, watchRest)
				}
				continue
			}
			_ = t.logs.Sleep(t.logs.ctx, wait.Backoff(failures)) // the head has not changed
			failures++
		case errors.Is(err, ErrNotFound):
			t.vanish(since)
			_ = t.logs.Sleep(t.logs.ctx, wait.Backoff(failures))
			failures++
		case errors.Is(err, ErrClosed):
			t.mu.Lock()
			t.closed, t.watching = true, false
			t.broadcastLocked()
			t.mu.Unlock()
			return
		case expired:
		default:
			if failures == 0 {
				t.logs.Logger().Warn("cannot watch the session", "session", t.session, "error", err)
			}
			_ = t.logs.Sleep(t.logs.ctx, wait.Backoff(failures))
			failures++
		}
	}
}

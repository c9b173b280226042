package spool

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/spool-run/spool/chunk"
)

const (
	recordOverhead = 96              // memory of a record beside its Data
	watchFor       = 5 * time.Second // the length of one store.Wait; an unneeded watcher ends after it
	pageRecords    = 1000            // the records of one shared read
	pageBytes      = 1 << 20         // the size that a page should not much exceed
)

// tail holds what this process knows of one session's log: the newest head and a
// contiguous series of the latest records, shared by all readers. This process's
// commits arrive by publish. Commits of other processes arrive by catchUp, once for all
// readers, after the watcher saw the head move. The watcher is one goroutine, which
// runs while a reader waits.
type tail struct {
	logs    *Logs
	session string
	max     int

	mu       sync.Mutex
	head     Head
	known    bool   // the store has told the head
	missing  bool   // the store has no such session
	base     uint64 // the sequence before recs[0]
	recs     []chunk.Record
	size     int
	wake     chan struct{} // closed when a field above changes; nil if no reader waits
	waiters  int
	watching bool
	closed   bool // the store is

	lock     lock   // held by the goroutine that reads the store for all readers
	started  uint64 // refreshes, under mu
	finished uint64
}

func newTail(l *Logs, session string) *tail {
	return &tail{logs: l, session: session, max: l.o.TailBytes, lock: newLock()}
}

func (t *tail) end() uint64 { return t.base + uint64(len(t.recs)) }

// observe takes a head that the store returned.
func (t *tail) observe(h Head) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observeLocked(h)
}

func (t *tail) current() Head {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head
}

// start is the sequence before the first record that the tail holds and that was
// not trimmed: what follows those it holds may lie behind the trace floor.
func (t *tail) start() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.base, t.head.TraceFloor)
}

func (t *tail) observeLocked(h Head) {
	if h.Hidden {
		t.vanishLocked() // the session is not visible yet
		return
	}
	if t.known && (h.Incarnation < t.head.Incarnation || h.Incarnation == t.head.Incarnation &&
		(h.Seq < t.head.Seq || h.Epoch < t.head.Epoch || h.TraceFloor < t.head.TraceFloor || h.Floor < t.head.Floor)) {
		return // a newer head is known already
	}
	if t.known && h == t.head && !t.missing {
		return
	}
	if !t.known || h.Incarnation != t.head.Incarnation {
		t.base, t.recs, t.size = h.Seq, nil, 0
	}
	t.head, t.known, t.missing = h, true, false
	t.broadcastLocked()
}

func (t *tail) broadcastLocked() {
	if t.wake != nil {
		close(t.wake)
		t.wake = nil
	}
}

// vanish notes that the session does not exist, as the store has said since the head was
// seen. If it is another one by now, the session was created in between.
func (t *tail) vanish(seen Head) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.head == seen {
		t.vanishLocked()
	}
}

func (t *tail) vanishLocked() {
	if t.known || !t.missing {
		t.known, t.missing, t.head = false, true, Head{}
		t.base, t.recs, t.size = 0, nil, 0
		t.broadcastLocked()
	}
}

// publish takes records that were just committed as first, first+1, …, and the
// head after them.
func (t *tail) publish(recs []chunk.Record, first uint64, h Head) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(recs) > 0 && !h.Hidden && (!t.known || h.Incarnation >= t.head.Incarnation) {
		fresh := !t.known || h.Incarnation > t.head.Incarnation
		if fresh || first > t.end()+pageRecords { // no reader follows here: start over
			t.base, t.recs, t.size = first-1, nil, 0
		}
		if fresh {
			t.head, t.known, t.missing = h, true, false
			t.broadcastLocked()
		}
		t.extendLocked(recs, first)
	}
	t.observeLocked(h)
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
	drop := 0
	for t.size > t.max && drop < len(t.recs)-1 {
		t.size -= len(t.recs[drop].Data) + recordOverhead
		drop++
	}
	// Dropped records stay in memory until the array grows next; they can double its
	// size.
	t.recs = t.recs[drop:]
	t.base += uint64(drop)
	t.broadcastLocked()
}

// pageLocked returns a copy of the records after a sequence, or nil if the tail does
// not hold the next one. The copy does not keep the tail's array alive.
func (t *tail) pageLocked(after uint64, max int) []chunk.Record {
	if after < t.base || after >= t.end() {
		return nil
	}
	from := t.recs[after-t.base:]
	n, size := 0, 0
	for n < len(from) && n < max && size < pageBytes {
		size += len(from[n].Data)
		n++
	}
	return append(make([]chunk.Record, 0, n), from[:n]...)
}

// refresh asks the store for the head. Callers share a request if it began after they
// asked.
func (t *tail) refresh(ctx context.Context) error {
	t.mu.Lock()
	asked := t.started
	t.mu.Unlock()
	if err := t.logs.acquire(ctx, t.lock); err != nil {
		return err
	}
	defer t.lock.release()
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
	seen := t.current()
	h, err := t.logs.store.Head(ctx, t.session)
	if err == nil && h.Hidden {
		h, err = Head{}, ErrNotFound.With(t.session, nil) // it is not visible yet
	}
	switch {
	case err == nil:
		t.observe(h)
	case errors.Is(err, ErrNotFound):
		t.vanish(seen)
	}
	return h, err
}

// catchUp reads one page of records after the tail's end, for all readers that ask
// meanwhile.
func (t *tail) catchUp(ctx context.Context, after uint64) error {
	if err := t.logs.acquire(ctx, t.lock); err != nil {
		return err
	}
	defer t.lock.release()
	t.mu.Lock()
	end, incarnation := t.end(), t.head.Incarnation
	t.mu.Unlock()
	if end > after {
		return nil // another reader did it
	}
	recs, err := t.readChecked(ctx, after, pageRecords, incarnation)
	if err != nil {
		return err
	}
	if len(recs) == 0 {
		return t.logs.Sleep(ctx, 5*time.Millisecond) // the head is newer than the readable records
	}
	return nil
}

// readChecked reads from the store, checks that the records belong to that incarnation,
// and offers them to the tail. The caller holds the lock, or reads for itself alone.
func (t *tail) readChecked(ctx context.Context, after uint64, max int, incarnation uint64) ([]chunk.Record, error) {
	recs, h, err := t.logs.store.Read(ctx, t.session, after, max)
	if err == nil {
		err = t.sameLog(h, incarnation)
	}
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known && t.head.Incarnation == incarnation && len(recs) > 0 {
		switch end := t.end(); {
		case after > end && t.head.Seq > end+pageRecords: // no reader has followed for long
			t.base, t.recs, t.size = after, nil, 0
		case len(t.recs) == 0 && recs[len(recs)-1].Seq == t.base:
			t.base = after
		}
		t.extendLocked(recs, recs[0].Seq)
	}
	return recs, nil
}

// sameLog takes the head of a read. It fails with [ErrCursorAhead] if the log has
// another incarnation now.
func (t *tail) sameLog(h Head, incarnation uint64) error {
	if h.Incarnation == 0 {
		t.vanish(t.current())
	} else {
		t.observe(h)
	}
	if h.Incarnation != incarnation {
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

// awaitBeyond blocks until the log has grown beyond a position, and returns its head.
// It fails with io.EOF if the log is quiet there, unless the caller knows that more
// will follow.
func (t *tail) awaitBeyond(ctx context.Context, seen Head, sure bool) (Head, error) {
	for {
		t.mu.Lock()
		switch h := t.head; {
		case t.known && (h.Seq > seen.Seq || h.Incarnation != seen.Incarnation):
			t.mu.Unlock()
			return h, nil
		case t.missing:
			t.mu.Unlock()
			return Head{}, ErrNotFound.With(t.session, nil)
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
		seen := t.head
		t.mu.Unlock()

		ctx, cancel := context.WithTimeout(t.logs.ctx, watchFor)
		h, err := t.logs.store.Wait(ctx, t.session, seen)
		expired := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			if t.observe(h); h != seen && t.current() != seen {
				failures = 0
				continue
			}
			_ = t.logs.Sleep(t.logs.ctx, backoff(failures)) // the head has not changed
			failures++
		case errors.Is(err, ErrNotFound):
			t.vanish(seen)
			_ = t.logs.Sleep(t.logs.ctx, backoff(failures))
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
			_ = t.logs.Sleep(t.logs.ctx, backoff(failures))
			failures++
		}
	}
}

// backoff is how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	return min(10*time.Millisecond<<min(failures, 7), time.Second)
}

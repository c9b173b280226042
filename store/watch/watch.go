// Package watch has what drivers need to answer [spool.Store].Wait when other processes
// write to the same engine: a [Hub] with one subscription for all waiters of a session, and
// [Claimers] for callers of [spool.Leaser].AwaitDue.
//
// Notifications only reduce latency. One that is early, late, doubled or out of order does
// no harm, and a lost one makes a waiter late by [Options].Poll at most.
package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/wait"
)

const (
	// DefaultPoll is for how long a change can stay unnoticed if its notification is lost.
	DefaultPoll = time.Second
	// DefaultLinger is for how long a session stays watched without waiters.
	DefaultLinger = time.Second

	maxBatch    = 500              // sessions in one read
	callTimeout = 10 * time.Second // of a read or a subscription
)

// State is what is known of a session.
type State struct {
	Exists bool
	Head   spool.Head
	// Version grows with each change of the session, deletion included, and is at least 1
	// once the session has existed. A state never replaces one with a higher version.
	Version int64
	// Records may hold the log's latest records, without gaps up to Head.Seq. The hub keeps
	// those of a session with waiters, up to 256 KiB, until a waiter has them.
	Records []chunk.Record
}

// Options are the engine's side of a [Hub]. A hub calls these functions from one goroutine,
// one at a time, each for at most ten seconds, and not after Close.
type Options struct {
	// Read calls found with the present state of each of the sessions (500 at most) that
	// exists or has existed. It is required.
	Read func(ctx context.Context, sessions []string, found func(session string, s State)) error

	// Subscribe asks for a session's notifications, until the returned function is called.
	// It is called before the session is read for the first time, and returns once no
	// later change can go unnoticed. nil: the driver gets the notifications of all
	// sessions without asking.
	Subscribe func(ctx context.Context, session string) (cancel func(), err error)

	// Poll is how often the sessions with waiters are read without a notification: 0 means
	// DefaultPoll, a negative value never (then a change that the driver does not report
	// is not noticed).
	Poll time.Duration

	// Linger is for how long at least a session stays watched after its last waiter has
	// left, since the same waiter mostly comes back: 0 means DefaultLinger.
	Linger time.Duration
}

// Hub knows the heads of the sessions that callers wait for.
type Hub struct {
	o      Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   chan struct{} // capacity 1: there is something to read
	run    sync.WaitGroup

	mu      sync.Mutex
	running bool
	watches map[string]*watch
	queue   []*watch // those that are dirty
}

// watch is one session with waiters, or which had some a moment ago.
type watch struct {
	session    string
	waiters    int
	left       time.Time // when the last waiter left
	subscribed bool
	cancel     func() // ends the subscription; may be nil

	dirty       bool   // in the queue
	begun, done uint64 // how many reads
	err         error  // of the last read
	state       State
	known       bool
	next        nextRecords
	asked       uint64        // the last read that a waiter asked for
	changed     chan struct{} // closed when state changes or such a read is done; nil: nobody sleeps
}

// NewHub returns a hub. It has a goroutine while sessions are watched.
func NewHub(o Options) *Hub {
	if o.Poll == 0 {
		o.Poll = DefaultPoll
	}
	if o.Linger == 0 {
		o.Linger = DefaultLinger
	}
	h := &Hub{o: o, work: make(chan struct{}, 1), watches: map[string]*watch{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Close ends the waiting calls with [spool.ErrClosed], and then the subscriptions.
func (h *Hub) Close() {
	h.mu.Lock()
	h.cancel() // from here on nothing starts the goroutine
	h.mu.Unlock()
	h.run.Wait()
}

// Wait implements [spool.Store].
func (h *Hub) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return spool.Head{}, nil, spool.ErrClosed
	}
	w := h.join(session)
	defer h.leave(w)
	w.next.drop(seen)
	read := uint64(0) // must be done before there is an answer
	if !w.answers(seen) {
		read = w.begun + 1
		w.asked = read
		h.enqueue(w)
	}
	for {
		if w.done >= read {
			if read > 0 && w.err != nil {
				return spool.Head{}, nil, w.err
			}
			read = 0
			if done, err := Answer(w.state.Exists, w.state.Head, seen, session); err != nil {
				return spool.Head{}, nil, err
			} else if done {
				return w.state.Head, w.next.after(seen), nil
			}
		}
		if err := h.sleep(ctx, w); err != nil {
			return spool.Head{}, nil, err
		}
	}
}

// sleep unlocks the hub until the watch is woken.
func (h *Hub) sleep(ctx context.Context, w *watch) error {
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	changed := w.changed
	h.mu.Unlock()
	defer h.mu.Lock()
	err := wait.For(ctx, -1, changed, h.ctx.Done(), spool.ErrClosed)
	if h.ctx.Err() != nil {
		return spool.ErrClosed // rather than the error of a read that Close has ended
	}
	return err
}

// Answer says whether a call of Wait that has seen this head is done, now that the session
// has another one or does not exist. The error is that of the call.
func Answer(exists bool, head, seen spool.Head, session string) (done bool, err error) {
	if exists {
		return head != seen, nil
	}
	if seen != (spool.Head{}) {
		return true, spool.ErrNotFound.With(session, nil)
	}
	return false, nil
}

// answers reports whether what is known is enough for a caller that comes with this head.
// The caller may know more, from a read of its own, and must not be given something older.
func (w *watch) answers(seen spool.Head) bool {
	h := w.state.Head
	switch {
	case !w.known || !w.state.Exists || seen == (spool.Head{}):
		return false
	case h.Incarnation != seen.Incarnation:
		return h.Incarnation > seen.Incarnation
	case h.Seq < seen.Seq || h.Epoch < seen.Epoch || h.Floor < seen.Floor || h.TraceFloor < seen.TraceFloor:
		return false
	}
	return h == seen || h.Seq > seen.Seq || h.Epoch > seen.Epoch || h.Floor > seen.Floor || h.TraceFloor > seen.TraceFloor
}

// join counts a waiter. The caller holds the lock, as of all that follow.
func (h *Hub) join(session string) *watch {
	w := h.watches[session]
	if w == nil {
		w = &watch{session: session}
		h.watches[session] = w
	}
	w.waiters++
	if !h.running {
		h.running = true
		h.run.Go(h.loop)
	}
	return w
}

func (h *Hub) leave(w *watch) {
	if w.waiters--; w.waiters == 0 {
		w.left = time.Now()
	}
}

// enqueue has a session read.
func (h *Hub) enqueue(w *watch) {
	if w.dirty {
		return
	}
	w.dirty = true
	h.queue = append(h.queue, w)
	select {
	case h.work <- struct{}{}:
	default:
	}
}

func (w *watch) wake() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// apply takes over a state, unless a newer one is known.
func (w *watch) apply(s State) {
	if w.known && s.Version <= w.state.Version {
		return
	}
	was := w.state
	w.next.add(was.Head, s)
	s.Records = nil
	w.state, w.known = s, true
	if s.Head != was.Head || s.Exists != was.Exists {
		w.wake()
	}
}

// Apply is called by the driver with what it wrote itself, or with what a notification says.
// For sessions that nobody watches it does nothing.
func (h *Hub) Apply(session string, s State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.watches[session]; w != nil {
		w.apply(s)
	}
}

// Changed is called by the driver when a notification says that a session has this version,
// or 0 if it does not say. Unless the version is known already, the session is read.
func (h *Hub) Changed(session string, version int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.watches[session]; w != nil && (version == 0 || !w.known || version > w.state.Version) {
		h.enqueue(w)
	}
}

// Resync is called by the driver when notifications may have been lost, since a connection
// broke for example. All watched sessions are read.
func (h *Hub) Resync() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watches {
		h.enqueue(w)
	}
}

// loop reads and polls while there are watches.
func (h *Hub) loop() {
	every := h.o.Poll
	if every < 0 {
		every = DefaultPoll // for what failed, and to end what nobody waits for
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-h.work:
			h.read()
		case <-ticker.C:
			if !h.tick() {
				return
			}
		case <-h.ctx.Done():
			h.mu.Lock()
			all := h.watches
			h.watches = nil
			h.mu.Unlock()
			for _, w := range all {
				w.end()
			}
			return
		}
	}
}

func (w *watch) end() {
	if w.subscribed && w.cancel != nil {
		w.cancel()
	}
}

// tick ends the watches that nobody has waited for lately, and has the others read. It
// returns false if there are none left.
func (h *Hub) tick() bool {
	var ended []*watch
	h.mu.Lock()
	for session, w := range h.watches {
		switch {
		case w.waiters == 0 && !w.dirty && time.Since(w.left) >= h.o.Linger:
			delete(h.watches, session)
			ended = append(ended, w)
		case w.err != nil, w.waiters > 0 && h.o.Poll > 0:
			h.enqueue(w)
		}
	}
	h.running = len(h.watches) > 0
	goOn := h.running
	h.mu.Unlock()
	for _, w := range ended {
		w.end()
	}
	return goOn
}

// read reads what is in the queue.
func (h *Hub) read() {
	for h.ctx.Err() == nil {
		h.mu.Lock()
		n := min(len(h.queue), maxBatch)
		batch := h.queue[:n:n]
		if h.queue = h.queue[n:]; len(h.queue) == 0 {
			h.queue = nil
		}
		for _, w := range batch {
			w.dirty = false
			w.begun++
		}
		h.mu.Unlock()
		if n == 0 {
			return
		}
		h.readBatch(batch)
	}
}

func (h *Hub) readBatch(batch []*watch) {
	sessions := make([]string, 0, len(batch))
	errs := make(map[*watch]error)
	for _, w := range batch {
		if err := h.subscribe(w); err != nil {
			errs[w] = err
			continue
		}
		sessions = append(sessions, w.session)
	}
	states := make(map[string]State, len(sessions))
	var failed error
	if len(sessions) > 0 {
		failed = h.call(func(ctx context.Context) error {
			return h.o.Read(ctx, sessions, func(session string, s State) { states[session] = s })
		})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range batch {
		w.done = w.begun
		if w.err = errs[w]; w.err == nil {
			w.err = failed
		}
		if w.err == nil {
			w.apply(states[w.session])
		}
		if w.done <= w.asked {
			w.wake()
		}
	}
}

// subscribe asks for a session's notifications, once.
func (h *Hub) subscribe(w *watch) error {
	if h.o.Subscribe == nil || w.subscribed {
		return nil
	}
	return h.call(func(ctx context.Context) (err error) {
		w.cancel, err = h.o.Subscribe(ctx, w.session)
		w.subscribed = err == nil
		return err
	})
}

// call calls the engine.
func (h *Hub) call(fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(h.ctx, callTimeout)
	defer cancel()
	err := fn(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return spool.ErrUnavailable.With("", err) // the deadline is not the waiter's
	}
	return err
}

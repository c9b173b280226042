package sqlitestore

import (
	"context"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// How often a process looks for other processes' commits while one of its own
// callers waits.
const (
	pollFast = 5 * time.Millisecond
	pollSlow = 50 * time.Millisecond
)

// hub wakes this process's waiters: after its own commits at once, after those
// of other processes by polling SQLite's data_version.
type hub struct {
	s  *Store
	mu sync.Mutex

	watches map[string]*watch
	due     chan struct{} // closed when a session may be ready earlier than before
	waiting int           // callers in Wait or AwaitDue
	polling bool
	fast    chan struct{} // tells the poller that another process is writing
}

// watch is the known state of a session with waiting callers.
type watch struct {
	refs    int
	loaded  bool
	version int64 // of the row; grows with each commit, so that an old row never replaces a newer one
	exists  bool
	head    spool.Head
	changed chan struct{}
}

func (h *hub) init(s *Store) {
	h.s = s
	h.watches = map[string]*watch{}
	h.due = make(chan struct{})
	h.fast = make(chan struct{}, 1)
}

// committed is called for each row that this process wrote.
func (h *hub) committed(st *state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.watches[st.id]; w != nil {
		w.apply(&st.headRow)
	}
}

// apply takes over a row; nil means that the session never existed.
func (w *watch) apply(h *headRow) {
	if h == nil {
		w.loaded = true
		return
	}
	if w.loaded && h.version <= w.version {
		return
	}
	was, had := w.head, w.exists
	w.loaded, w.version, w.exists, w.head = true, h.version, h.alive, h.head
	if w.head != was || w.exists != had {
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

func (h *hub) kick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.due)
	h.due = make(chan struct{})
}

func (h *hub) kicked() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.due
}

// watching counts a waiting caller until the returned function is called. Meanwhile the
// poller runs.
func (h *hub) watching() (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting++
	if !h.polling {
		h.polling = true
		go h.poll()
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waiting--
	}
}

// foreign is called by the writer when another process wrote.
func (h *hub) foreign() {
	select {
	case h.fast <- struct{}{}:
	default:
	}
}

// poll runs while callers wait.
func (h *hub) poll() {
	every := pollFast
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		changed := false
		select {
		case <-h.s.closed:
			return
		case <-h.fast:
			changed = true
		case <-timer.C:
			// The writer asks on its own connection, where its own commits do not count
			// as changes.
			if err := h.s.write(context.Background(), 0, nil); err == nil {
				select {
				case <-h.fast:
					changed = true
				default:
				}
			}
		}
		took := time.Duration(0)
		if changed {
			every = pollFast
			start := time.Now()
			h.reload()
			took = time.Since(start)
		} else {
			every = min(every*5/4, pollSlow)
		}
		h.mu.Lock()
		if h.waiting == 0 {
			h.polling = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		timer.Reset(max(every, 2*took))
	}
}

// reload reads the rows of all watched sessions again.
func (h *hub) reload() {
	h.mu.Lock()
	ids := make([]string, 0, len(h.watches))
	for id := range h.watches {
		ids = append(ids, id)
	}
	h.mu.Unlock()
	for _, id := range ids {
		h.load(context.Background(), id)
	}
	h.kick()
}

// load reads one session's row for its watch.
func (h *hub) load(ctx context.Context, id string) error {
	return h.s.read(ctx, func(c *conn) error {
		row, err := loadHead(c, id)
		if err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if w := h.watches[id]; w != nil {
			w.apply(row)
		}
		return nil
	})
}

// Wait implements [spool.Store].
func (s *Store) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, err
	}
	h := &s.hub
	defer h.watching()()
	h.mu.Lock()
	w := h.watches[session]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
		h.watches[session] = w
	}
	w.refs++
	loaded := w.loaded
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if w.refs--; w.refs == 0 {
			delete(h.watches, session)
		}
	}()
	if !loaded {
		if err := h.load(ctx, session); err != nil {
			return spool.Head{}, err
		}
	}
	for {
		h.mu.Lock()
		exists, head, changed := w.exists, w.head, w.changed
		h.mu.Unlock()
		if exists && head != seen {
			return head, nil
		}
		if !exists && seen != (spool.Head{}) {
			return spool.Head{}, spool.ErrNotFound.With(session, nil)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return spool.Head{}, ctx.Err()
		case <-s.closed:
			return spool.Head{}, spool.ErrClosed
		}
	}
}

package sqlitestore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/watch"
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
	s        *Store
	heads    *watch.Hub
	claimers watch.Claimers // one is woken for each session that may be ready earlier than before
	fast     chan struct{}  // tells the poller that another process is writing
	took     atomic.Int64   // nanoseconds, of the last read of heads

	mu      sync.Mutex
	waiting int // watched sessions, and callers in AwaitDue
	polling bool
}

func (h *hub) init(s *Store) {
	h.s = s
	h.fast = make(chan struct{}, 1)
	h.heads = watch.NewHub(watch.Options{
		Read: h.read,
		Poll: -1, // data_version misses nothing
		Subscribe: func(context.Context, string) (func(), error) {
			return h.watching(), nil
		},
	})
}

// read reads the rows of watched sessions.
func (h *hub) read(ctx context.Context, sessions []string, found func(string, watch.State)) error {
	start := time.Now()
	defer func() { h.took.Store(int64(time.Since(start))) }()
	return h.s.read(ctx, func(c *conn) error {
		for _, id := range sessions {
			row, err := loadHead(c, id)
			if err != nil {
				return err
			}
			if row != nil {
				found(id, row.watched())
			}
		}
		return nil
	})
}

func (h *headRow) watched() watch.State {
	return watch.State{Exists: h.alive, Head: h.head, Version: h.version}
}

// committed is called for each row that this process wrote.
func (h *hub) committed(st *state) { h.heads.Apply(st.id, st.watched()) }

// watching has the poller run until the returned function is called.
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
		pause := time.Duration(0)
		if changed {
			every = pollFast
			h.heads.Resync()
			h.claimers.Wake()
			pause = 2 * time.Duration(h.took.Load())
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
		timer.Reset(max(every, pause))
	}
}

// Wait implements [spool.Store].
func (s *Store) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, nil, err
	}
	return s.hub.heads.Wait(ctx, session, seen)
}

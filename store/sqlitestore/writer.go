package sqlitestore

import (
	"context"
	"database/sql/driver"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool/chunk"
)

const (
	queueLength   = 1024
	groupWeight   = 4000 // records in one commit
	cacheSessions = 10_000
	busyLimit     = 30 * time.Second // for which a commit waits for another process's
	closeLimit    = time.Second      // the same while the store is being closed
	unmarkLimit   = 10 * time.Second // the same for the last commit
	insertRows    = 10
)

// request is one caller's part of a commit.
type request struct {
	ctx    context.Context
	weight int
	fn     func(t *tx) error
	err    error
	done   chan struct{}
}

// writer is the goroutine that owns the writing connection.
type writer struct {
	s       *Store
	c       *conn
	queue   chan *request
	quit    chan string // receives the token of this store's mark, to stop
	stopped chan struct{}
	err     error // the error of stopping

	// cache holds session rows as last committed. It is valid while no other process
	// writes, as data_version tells.
	cache       map[string]*state
	dataVersion int64
	insert      [2]string // one row, insertRows rows
	rescued     bool      // a deleted write-ahead log was copied
}

func newWriter(s *Store, c *conn) (*writer, error) {
	const head, row = "INSERT INTO record (sid, seq, type, agent, time, trace, data) VALUES ", "(?,?,?,?,?,?,CAST(? AS TEXT))"
	w := &writer{
		s: s, c: c,
		queue: make(chan *request, queueLength), quit: make(chan string), stopped: make(chan struct{}),
		cache:  map[string]*state{},
		insert: [2]string{head + row, head + row + strings.Repeat(","+row, insertRows-1)},
	}
	var err error
	w.dataVersion, err = c.number("PRAGMA data_version")
	return w, err
}

// stop ends the goroutine after the queued requests.
func (w *writer) stop(token string) error {
	w.quit <- token
	<-w.stopped
	return w.err
}

func (w *writer) run() {
	defer close(w.stopped)
	var group []*request
	for {
		var token string
		stopping := false
		select {
		case r := <-w.queue:
			group = append(group[:0], r)
		case token = <-w.quit:
			stopping = true
			group = group[:0]
		}
		weight := 0
		for _, r := range group {
			weight += r.weight
		}
	drain:
		for weight < groupWeight || stopping {
			select {
			case r := <-w.queue:
				group = append(group, r)
				weight += r.weight
			default:
				break drain
			}
		}
		if len(group) > 0 {
			w.serve(group)
		}
		if stopping {
			if w.err = w.s.inPlace(); w.err != nil {
				w.rescue()
				return // closing the connection would remove the write-ahead log of the file that is there now
			}
			if token != "" {
				w.err = w.unmark(token)
			}
			if err := w.c.close(); w.err == nil {
				w.err = err
			}
			return
		}
	}
}

// serve handles a group of requests. It answers requests without fn, which ask whether
// other processes wrote, at once, and the others with one commit. If the commit as a
// whole fails, it tries each request alone, so that no request fails because of
// another.
func (w *writer) serve(group []*request) {
	group = slices.DeleteFunc(group, func(r *request) bool {
		if r.fn == nil {
			r.err = w.look()
			close(r.done)
		}
		return r.fn == nil
	})
	if len(group) == 0 {
		return
	}
	if err := w.commit(group); err != nil {
		for _, r := range group {
			if len(group) > 1 && !busy(err) {
				if err := w.commit([]*request{r}); err != nil {
					r.err = err
				}
			} else {
				r.err = err
			}
		}
	}
	for _, r := range group {
		close(r.done)
	}
}

// commit runs the requests in one transaction. It returns an error if nothing of it was
// stored; an error of a single request is in its err.
func (w *writer) commit(group []*request) error {
	if err := w.begin(group); err != nil {
		return err
	}
	t := &tx{w: w, c: w.c, now: w.s.clock.Now()}
	err := func() error {
		for _, r := range group {
			if r.err = r.ctx.Err(); r.err != nil {
				continue
			}
			if r.err = r.fn(t); r.err != nil && chunk.CodeOf(r.err) == "" {
				return r.err // the engine failed, not the request
			}
		}
		if err := t.flush(); err != nil {
			return err
		}
		return w.c.exec("COMMIT")
	}()
	if err != nil {
		w.c.exec("ROLLBACK")
		w.forget()
		return err
	}
	for _, st := range t.touched {
		st.touched = false
		w.s.hub.committed(st)
	}
	for range t.sooner {
		w.s.hub.claimers.Wake()
	}
	if len(w.cache) > cacheSessions {
		w.forget()
	}
	return nil
}

// forget drops the cached rows of sessions.
func (w *writer) forget() { clear(w.cache) }

// begin opens a group's transaction. It gives up if no caller waits for the group any
// more.
func (w *writer) begin(group []*request) error {
	if err := w.s.inPlace(); err != nil {
		w.rescue()
		return err
	}
	waits := func(r *request) bool { return r.ctx.Err() == nil }
	err := w.lock(func(waited time.Duration) bool {
		return waited > busyLimit || w.s.usable(context.Background()) != nil && waited > closeLimit || !slices.ContainsFunc(group, waits)
	})
	if err != nil {
		return err
	}
	return w.look()
}

// lock opens a transaction. It waits for other processes with short sleeps of its own:
// SQLite's sleeps grow to 100 ms, so that a busy process would always be first.
func (w *writer) lock(givesUp func(waited time.Duration) bool) error {
	var start time.Time
	for nap := 100 * time.Microsecond; ; nap = min(nap*2, 2*time.Millisecond) {
		err := w.c.exec("BEGIN IMMEDIATE")
		if err == nil || !busy(err) {
			return err
		}
		if start.IsZero() {
			start = time.Now()
		}
		if givesUp(time.Since(start)) {
			return err
		}
		time.Sleep(nap/2 + rand.N(nap))
	}
}

// unmark removes the store's mark. Its commit syncs everything before it.
func (w *writer) unmark(token string) error {
	if err := w.c.script("PRAGMA synchronous = FULL"); err != nil {
		return err
	}
	if err := w.lock(func(waited time.Duration) bool { return waited > unmarkLimit }); err != nil {
		return err
	}
	if err := w.c.exec("DELETE FROM unsynced WHERE token = ?", token); err != nil {
		return err
	}
	return w.c.script("COMMIT")
}

// look asks whether another process wrote since the last time.
func (w *writer) look() error {
	v, err := w.c.number("PRAGMA data_version")
	if err != nil {
		return err
	}
	if v != w.dataVersion {
		w.s.hub.foreign()
		w.dataVersion = v
		w.forget()
	}
	return nil
}

// tx is a transaction in progress. Changes to session rows and new records are gathered
// and written by flush.
type tx struct {
	w       *writer
	c       *conn
	now     int64
	touched []*state // changed in this transaction
	rows    []driver.Value
	sooner  int // sessions that are ready earlier than before
}

const columns = 7 // columns of a record

// add gathers a record.
func (t *tx) add(sid int64, r *chunk.Record) error {
	t.rows = append(t.rows, sid, int64(r.Seq), string(r.Type), r.Agent, r.Time, int64(r.Class), nonNil(r.Data))
	if len(t.rows) >= 100*insertRows*columns {
		return t.flushRecords()
	}
	return nil
}

func (t *tx) flushRecords() error {
	rows := t.rows
	t.rows = t.rows[:0]
	for len(rows) >= insertRows*columns {
		if err := t.c.exec(t.w.insert[1], rows[:insertRows*columns]...); err != nil {
			return err
		}
		rows = rows[insertRows*columns:]
	}
	for ; len(rows) > 0; rows = rows[columns:] {
		if err := t.c.exec(t.w.insert[0], rows[:columns]...); err != nil {
			return err
		}
	}
	return nil
}

// flush writes everything gathered.
func (t *tx) flush() error {
	if err := t.flushRecords(); err != nil {
		return err
	}
	for _, st := range t.touched {
		if err := t.save(st); err != nil {
			return err
		}
	}
	return nil
}

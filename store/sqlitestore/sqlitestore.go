// Package sqlitestore keeps logs in one SQLite file. It uses the pure Go port
// modernc.org/sqlite, so there is nothing to install, and the sqlite3 command can read
// the file.
//
// One goroutine writes. It takes the queued appends of all sessions, commits them in
// one transaction, and then returns the results: with more callers, the commits get
// larger. With the default, SyncFull, an append is on the disk when it is acknowledged.
// With SyncNormal the last commits can be lost when the host loses power (not when the
// process is killed); the store notices at the next open and raises the incarnation of
// its logs.
//
// While it holds leases that are bound to its process ([spool.Claim].InProcess), a store
// keeps a file PATH-owner-TOKEN locked. Once the process is dead, others see that, and need
// not wait for its leases to expire.
//
// Several processes may open the file at once, on one host: SQLite's locks do
// not work on network file systems.
package sqlitestore

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

var (
	_ spool.Store     = (*Store)(nil)
	_ spool.Leaser    = (*Store)(nil)
	_ spool.Lister    = (*Store)(nil)
	_ spool.Trimmer   = (*Store)(nil)
	_ spool.Expirer   = (*Store)(nil)
	_ spool.Measurer  = (*Store)(nil)
	_ spool.FoldStore = (*Store)(nil)
	_ spool.BlobStore = (*Store)(nil)
	_ spool.Importer  = (*Store)(nil)
	_ spool.Prober    = (*Store)(nil)
)

// When commits reach the disk.
const (
	SyncFull   = "full"   // before they are acknowledged
	SyncNormal = "normal" // when the host's system does it
)

// Options configures a store; nil means the zero value.
type Options struct {
	// Sync is SyncFull or SyncNormal; "" means SyncFull.
	Sync string
	// Now is the store's clock; nil means time.Now.
	Now func() time.Time
}

// synchronous is SQLite's name for o.Sync.
func (o *Options) synchronous() (string, error) {
	switch o.Sync {
	case "", SyncFull:
		return "FULL", nil
	case SyncNormal:
		return "NORMAL", nil
	}
	return "", chunk.ErrInvalid.Because("sync must be full or normal, not " + o.Sync)
}

// readers is how many reads may run at once.
const readers = 4

// Store keeps logs in a SQLite file.
type Store struct {
	path   string
	paths  [len(suffixes)]string      // of the files of the database
	files  [len(suffixes)]os.FileInfo // the files as they were opened
	clock  *contract.Clock
	token  string // name of this store's mark in table unsynced
	w      *writer
	pool   pool
	hub    hub
	life   life
	closed chan struct{}

	closeOnce sync.Once
	closeErr  error
}

// Open opens the database at path. If there is none, it makes one that only this user
// can read. Errors: [chunk.ErrInvalid] for a file of another program or of a newer
// version, [spool.ErrUnavailable] if the file cannot be used.
func Open(path string, o *Options) (*Store, error) { return open(path, o, bootID()) }

func open(path string, o *Options, boot string) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: abs, clock: contract.NewClock(o.Now), closed: make(chan struct{}), pool: pool{turns: make(chan struct{}, readers)}}
	synchronous, err := o.synchronous()
	if err != nil {
		return nil, err
	}
	if path == "" || path == ":memory:" {
		return nil, chunk.ErrInvalid.Because("a SQLite store needs a file; use memstore to keep data in memory")
	}
	// Other users of this machine must not read the conversations. SQLite makes its
	// other files with the same mode.
	if f, err := os.OpenFile(abs, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err == nil {
		f.Close()
	}
	c, err := dial(abs, "cache_size = -65536", "wal_autocheckpoint = 1000", "temp_store = MEMORY")
	if err != nil {
		return nil, translate(err)
	}
	if err = prepare(c, path); err == nil {
		s.token, err = mark(c, boot, o.Sync == SyncNormal)
	}
	if err == nil {
		// The writer has its own way to wait for other processes, see writer.lock.
		err = c.script("PRAGMA busy_timeout = 0; PRAGMA synchronous = " + synchronous)
	}
	if err == nil {
		s.w, err = newWriter(s, c)
	}
	if err == nil {
		err = s.note()
	}
	var garbage []int64
	if err == nil {
		garbage, err = deleted(c)
	}
	if err != nil {
		c.close()
		return nil, translate(err)
	}
	s.hub.init(s)
	s.life.prefix = abs + "-owner-"
	go s.w.run()
	if len(garbage) > 0 {
		go s.collect(garbage)
	}
	return s, nil
}

// Close waits for the accepted appends, ends every waiting call and closes the file.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closed)
		s.hub.heads.Close()
		s.pool.close()
		s.life.end()
		s.closeErr = translate(s.w.stop(s.token))
	})
	return s.closeErr
}

// usable is called first by every method.
func (s *Store) usable(ctx context.Context) error {
	select {
	case <-s.closed:
		return spool.ErrClosed
	default:
		return ctx.Err()
	}
}

// read runs fn on a reading connection.
func (s *Store) read(ctx context.Context, fn func(c *conn) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	select {
	case s.pool.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return spool.ErrClosed
	}
	defer func() { <-s.pool.turns }()
	c := s.pool.take()
	if c == nil {
		if err := s.inPlace(); err != nil {
			return err
		}
		// Each commit of another connection empties the cache, so a large one would have to
		// be allocated again for every log that is read.
		opened, err := dial(s.path, "query_only = ON", "cache_size = -1024")
		if err != nil {
			return translate(err)
		}
		c = opened
	}
	defer s.pool.put(c)
	return translate(fn(c))
}

// write runs fn in a transaction of the writer and returns once it is committed. fn may
// run more than once. An error of fn fails only this call.
func (s *Store) write(ctx context.Context, weight int, fn func(t *tx) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	r := &request{ctx: ctx, weight: weight, fn: fn, done: make(chan struct{})}
	select {
	case s.w.queue <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return spool.ErrClosed
	}
	select {
	case <-r.done:
		return unstored(r.err)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.w.stopped:
		select {
		case <-r.done:
			return unstored(r.err)
		default:
			return spool.ErrClosed
		}
	}
}

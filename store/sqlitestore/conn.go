package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// SQLite's primary result codes that get errors of their own.
const (
	codeBusy      = 5
	codeLocked    = 6
	codeReadOnly  = 8
	codeIOErr     = 10
	codeCorrupt   = 11
	codeFull      = 13
	codeCantOpen  = 14
	codeNotADB    = 26
	primaryResult = 0xff

	codeSyncFailed    = codeIOErr | 4<<8
	codeDirSyncFailed = codeIOErr | 5<<8
)

// conn is one connection with its prepared statements. It is used by one
// goroutine at a time.
type conn struct {
	*engine
	stmts map[string]*stmt
}

// dial opens an existing file, with a busy timeout and the other settings of every
// connection.
func dial(path string, pragmas ...string) (*conn, error) {
	e, err := connect(path)
	if err != nil {
		return nil, err
	}
	c := &conn{engine: e, stmts: map[string]*stmt{}}
	for _, p := range append([]string{"busy_timeout = 10000"}, pragmas...) {
		if err := c.script("PRAGMA " + p); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// pool has the connections that read. A read takes the one that was used last: its
// statements are prepared, and there are only as many as there are reads at once.
type pool struct {
	turns chan struct{} // holds one for each read that is under way
	mu    sync.Mutex
	idle  []*conn
}

// take returns a connection, or nil if there is none to spare. The caller has a
// turn.
func (p *pool) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	c := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return c
}

func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

// close waits for the reads under way and allows no other.
func (p *pool) close() {
	for range cap(p.turns) {
		p.turns <- struct{}{}
	}
	for c := p.take(); c != nil; c = p.take() {
		c.close()
	}
}

func (c *conn) close() error {
	for _, s := range c.stmts {
		s.close()
	}
	return c.engine.close()
}

// prepared returns a statement that is kept. In its WHERE and LIMIT a parameter is
// written +?, which the planner does not look into. Of a plain one it would note
// that the plan may depend on the value (that of a LIMIT always, others once the
// file was analyzed), and since the values are cleared after each run, each
// run would begin with preparing the statement again.
func (c *conn) prepared(sql string) (*stmt, error) {
	if s := c.stmts[sql]; s != nil {
		return s, nil
	}
	s, err := c.prepare(sql)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", sql, err)
	}
	c.stmts[sql] = s
	return s, nil
}

// exec runs a statement. Arguments are int64, string, []byte or nil.
func (c *conn) exec(sql string, args ...driver.Value) error { return c.each(nil, sql, args...) }

// each runs a statement and passes on its rows.
func (c *conn) each(fn func(row) error, sql string, args ...driver.Value) error {
	s, err := c.prepared(sql)
	if err != nil {
		return err
	}
	return s.run(args, fn)
}

// snapshot runs statements in one read transaction.
func (c *conn) snapshot(fn func() error) error {
	if err := c.exec("BEGIN"); err != nil {
		return err
	}
	err := fn()
	if end := c.exec("COMMIT"); err == nil {
		err = end
	}
	return err
}

// query runs a statement and passes on the values of its rows, in a slice that is reused.
func (c *conn) query(fn func(row []driver.Value) error, sql string, args ...driver.Value) error {
	var values []driver.Value
	return c.each(func(r row) error {
		values = r.values(values[:0])
		return fn(values)
	}, sql, args...)
}

// number returns the only value of a query's only row.
func (c *conn) number(sql string, args ...driver.Value) (n int64, err error) {
	err = c.each(func(r row) error {
		n = r.number(0)
		return nil
	}, sql, args...)
	return n, err
}

func code(err error) int {
	if e, ok := errors.AsType[*engineError](err); ok {
		return e.code & primaryResult
	}
	return 0
}

func busy(err error) bool { return code(err) == codeBusy || code(err) == codeLocked }

// unstored is translate for the error of a transaction. Nothing of a transaction that
// failed was stored, unless what failed is the sync of its commit.
func unstored(err error) error {
	out := translate(err)
	if e, ok := errors.AsType[*engineError](err); ok && (e.code == codeSyncFailed || e.code == codeDirSyncFailed) {
		return out
	}
	known, ok := errors.AsType[*chunk.Error](out)
	if !ok || !errors.Is(known, spool.ErrUnavailable) {
		return out
	}
	return known.With("", spool.ErrNotStored.With("", known.Err))
}

// translate turns SQLite's errors into the package's errors. It returns other errors
// unchanged.
func translate(err error) error {
	if err == nil {
		return nil
	}
	if chunk.CodeOf(err) != "" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := *spool.ErrUnavailable
	e.Err = err
	switch code(err) {
	case codeFull:
		e.Message, e.Hint = "the disk is full", "free disk space"
	case codeBusy, codeLocked:
		e.Message, e.Hint = "another process holds the database's write lock", "look for a process that keeps a transaction open"
	case codeReadOnly:
		e.Message, e.Hint = "the database cannot be written", "check the permissions of the file and its directory, and whether its disk is mounted read-only"
	case codeIOErr:
		e.Message, e.Hint = "the disk failed", "see the cause, and check the file before you continue"
	case codeCorrupt, codeNotADB:
		e.Message, e.Hint = "the file is damaged or is not a database", "check it with: sqlite3 FILE 'PRAGMA integrity_check'"
	case codeCantOpen:
		e.Message, e.Hint = "the database file cannot be opened", "check the path; its directory must exist"
	}
	return &e
}

// Package pgstore keeps logs in PostgreSQL, version 14 or newer. Any number of processes may
// open the same schema.
//
// In each process one goroutine appends. It takes the queued appends of all sessions, locks
// their rows in one order, and commits them in one transaction: with more callers, the commits
// get larger. A commit tells the other processes of itself with NOTIFY, for which every process
// listens on one connection.
//
// Times are those of the server. A store notices when its tables belong to another history
// than before, since a replica was promoted or a backup was recovered to a point in time, and
// raises epochs and incarnations then. It does not notice files of a stopped server that were
// replaced by older ones.
package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/watch"
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
	_ spool.Raiser    = (*Store)(nil)
)

// DefaultConnections is how many connections a store uses at most, besides the one that
// appends and the one that listens.
const DefaultConnections = 8

const (
	callTimeout  = 10 * time.Second // of a call that nobody cancels
	closeTimeout = 2 * time.Second
	lockTimeout  = 5 * time.Second // for which a transaction waits for a row
	// idleTimeout is for how long the server lets a stopped process hold its locks.
	idleTimeout = 2 * time.Second
)

// Options configures a store; nil means the zero value.
type Options struct {
	// Schema has the tables; "" means "spool". It is made if it is missing.
	Schema string
	// Connections is how many are open at most for calls other than Append and Renew; 0
	// means DefaultConnections.
	Connections int

	shift    func() time.Duration // added to the server's clock
	times    func() int           // how often a notification is handled; nil: once
	identity string               // the query for the cluster's identity
}

// Store keeps logs in a schema of a PostgreSQL database.
type Store struct {
	schema, channel string
	name            string // of this instance, in notifications
	config          *pgxpool.Config
	pool            *pgxpool.Pool
	writing         *pgxpool.Pool // one connection
	identity        string
	shift           func() time.Duration
	times           func() int
	losses          atomic.Int64
	clock           ticker

	hub      *watch.Hub
	claimers watch.Claimers
	w        *writer
	ctx      context.Context // ends when the store is closed
	stop     context.CancelFunc
	run      sync.WaitGroup
	close    sync.Once
}

// Open opens the store in a database: postgres://USER:PASSWORD@HOST:PORT/DATABASE, with the
// parameters of libpq, and "schema" and "connections", which win over the options. If there
// are no tables, it makes them. Errors: [chunk.ErrInvalid] for a URL, a database or tables that
// it cannot use, [spool.ErrUnavailable] if the server cannot be reached.
func Open(ctx context.Context, address string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	s, err := configure(address, *o)
	if err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if err := s.connect(ctx); err != nil {
		s.stop()
		return nil, err
	}
	s.hub = watch.NewHub(watch.Options{Read: s.readHeads})
	s.w = newWriter(s)
	s.run.Go(func() { s.listen(s.ctx) })
	s.run.Go(s.w.run)
	s.run.Go(s.collectAll)
	return s, nil
}

// configure reads the address and the options.
func configure(address string, o Options) (*Store, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, chunk.ErrInvalid.Because("the address is not of the form postgres://USER:PASSWORD@HOST/DATABASE")
	}
	q := u.Query()
	if v := q.Get("schema"); v != "" {
		o.Schema = v
	}
	if v := q.Get("connections"); v != "" {
		if o.Connections, err = strconv.Atoi(v); err != nil || o.Connections < 1 {
			return nil, chunk.ErrInvalid.Because("connections must be a number above 0")
		}
	}
	q.Del("schema")
	q.Del("connections")
	u.RawQuery = q.Encode()
	if o.Schema == "" {
		o.Schema = defaultSchema
	}
	if o.Connections <= 0 {
		o.Connections = DefaultConnections
	}
	if err := checkSchema(o.Schema); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil { // it quotes the address
		return nil, chunk.ErrInvalid.Because("the address cannot be used: see the parameters of libpq, and the files that it names")
	}
	s := &Store{schema: o.Schema, channel: "spool_" + o.Schema, name: rand.Text(), config: config, identity: o.identity, shift: o.shift, times: o.times}
	if s.times == nil {
		s.times = func() int { return 1 }
	}
	if s.identity == "" {
		s.identity = identity
	}
	config.MaxConns = int32(o.Connections)
	config.AfterConnect = s.settle
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = callTimeout / 2
	}
	return s, nil
}

// connect opens the pools, on one connection of which it makes the tables.
func (s *Store) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, s.config.ConnConfig.Copy())
	if err != nil {
		return translate(err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	if err := s.usableServer(ctx, c); err != nil {
		return translate(err)
	}
	if err := s.set(ctx, c); err != nil {
		return translate(err)
	}
	if err := s.migrate(ctx, c); err != nil {
		return translate(err)
	}
	if s.pool, err = pgxpool.NewWithConfig(s.ctx, s.config); err != nil {
		return translate(err)
	}
	one := s.config.Copy()
	one.MaxConns = 1
	if s.writing, err = pgxpool.NewWithConfig(s.ctx, one); err != nil {
		s.pool.Close()
		return translate(err)
	}
	return nil
}

// usableServer checks what the store needs of the server, and of what stands before it.
func (s *Store) usableServer(ctx context.Context, c *pgx.Conn) error {
	var encoding string
	var version int
	var standby bool
	if err := c.QueryRow(ctx, "SELECT pg_encoding_to_char(encoding), current_setting('server_version_num')::int, pg_is_in_recovery() FROM pg_database WHERE datname = current_database()").Scan(&encoding, &version, &standby); err != nil {
		return err
	}
	switch {
	case encoding != "UTF8":
		return chunk.ErrInvalid.Because("the database's encoding is " + encoding + ", and must be UTF8")
	case version < 140000:
		return chunk.ErrInvalid.Because(fmt.Sprintf("the server is PostgreSQL %d, and must be 14 or newer", version/10000))
	case standby:
		e := spool.ErrUnavailable.Because("the server is a standby, which can only be read")
		e.Hint = "name the primary, or several hosts with target_session_attrs=read-write"
		return e
	}
	return s.checkPooler(ctx, c)
}

// poolerTries is how many connections a pooler gets the opportunity to mix up.
const poolerTries = 4

// checkPooler refuses a pooler that gives connections of the server away between transactions:
// neither settings nor LISTEN nor prepared statements would stay.
func (s *Store) checkPooler(ctx context.Context, c *pgx.Conn) error {
	const backend = "SELECT pg_backend_pid()"
	var mine, now uint32
	if err := c.QueryRow(ctx, backend, pgx.QueryExecModeSimpleProtocol).Scan(&mine); err != nil {
		return err
	}
	if mine == c.PgConn().PID() {
		return nil // directly connected
	}
	for range poolerTries {
		other, err := pgx.ConnectConfig(ctx, s.config.ConnConfig.Copy())
		if err != nil {
			return err
		}
		defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
		var theirs uint32
		if _, err := other.Exec(ctx, "BEGIN", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		if err := other.QueryRow(ctx, backend, pgx.QueryExecModeSimpleProtocol).Scan(&theirs); err != nil {
			return err
		}
		if err := c.QueryRow(ctx, backend, pgx.QueryExecModeSimpleProtocol).Scan(&now); err != nil {
			return err
		}
		if theirs == mine || now != mine {
			e := chunk.ErrInvalid.Because("the pooler gives connections away between transactions")
			e.Hint = "set the pooler to session mode (pool_mode = session) for this database, or connect to the server directly"
			return e
		}
	}
	return nil
}

// set makes the settings of a connection. They are no parameters of its start, which poolers
// refuse. Each statement has an index that it is to be answered from, in its order; on a table
// that has just grown, or was never analysed, the server would rather read and sort all of it.
func (s *Store) set(ctx context.Context, c *pgx.Conn) error {
	_, err := c.PgConn().Exec(ctx, fmt.Sprintf("SET search_path = %s; SET lock_timeout = %d; SET idle_in_transaction_session_timeout = %d; SET client_min_messages = warning; SET enable_seqscan = off; SET enable_bitmapscan = off",
		s.schema, lockTimeout.Milliseconds(), idleTimeout.Milliseconds())).ReadAll()
	return err
}

// settle prepares each new connection.
func (s *Store) settle(ctx context.Context, c *pgx.Conn) error {
	if err := s.set(ctx, c); err != nil {
		return err
	}
	return s.noticeLoss(ctx, c)
}

// Close waits for the accepted appends, ends every waiting call and closes the connections.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.stop()
		s.hub.Close()
		s.run.Wait()
		s.pool.Close()
		s.writing.Close()
	})
	return nil
}

// usable is called first by every method.
func (s *Store) usable(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return spool.ErrClosed
	}
	return ctx.Err()
}

func (s *Store) offset() int64 {
	if s.shift == nil {
		return 0
	}
	return s.shift().Milliseconds()
}

// tries is how often a call is made while the server has certainly done nothing of it.
const tries = 4

// with runs fn on a connection. It repeats it if the connection was broken or the transaction
// was rolled back, unless fn has sent a commit.
func (s *Store) with(ctx context.Context, pool *pgxpool.Pool, fn func(c *pgx.Conn) (sent bool, err error)) error {
	for n := 1; ; n++ {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return s.ended(ctx, err)
		}
		sent, err := fn(c.Conn())
		broken := c.Conn().IsClosed()
		if !broken && c.Conn().PgConn().TxStatus() != 'I' {
			_ = c.Conn().Close(ctx) // it is not worth a round trip: this is rare
		}
		c.Release()
		if broken && ctx.Err() == nil {
			pool.Reset() // the others are likely to be broken, too
		}
		if err == nil || chunk.CodeOf(err) != "" || sent && !rolledBack(err) || !broken && !rolledBack(err) || n == tries || ctx.Err() != nil {
			return s.ended(ctx, err)
		}
	}
}

// ended is the error of a call whose context, or the store, may have ended.
func (s *Store) ended(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if s.ctx.Err() != nil && chunk.CodeOf(err) == "" {
		return spool.ErrClosed
	}
	if ctx.Err() != nil && chunk.CodeOf(err) == "" {
		return context.Cause(ctx) // the caller's, or that of bound
	}
	return translate(err)
}

// read runs statements that change nothing.
func (s *Store) read(ctx context.Context, fn func(ctx context.Context, c *pgx.Conn) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return s.with(ctx, s.pool, func(c *pgx.Conn) (bool, error) { return false, fn(ctx, c) })
}

// errSlow is why a call ended that its caller did not cancel.
var errSlow = errors.New("the server does not answer")

// bound gives a call a time limit of its own, and ends it when the store is closed.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(2*callTimeout, func() { cancel(spool.ErrUnavailable.With("", errSlow)) })
	stop := context.AfterFunc(s.ctx, func() { cancel(spool.ErrClosed) })
	return ctx, func() { timer.Stop(); stop(); cancel(nil) }
}

// change runs fn in a transaction that has locked the session's row. fn may run more than
// once.
func (s *Store) change(ctx context.Context, n need, fn func(t *tx) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return s.with(ctx, s.pool, func(c *pgx.Conn) (bool, error) {
		t := s.begin(ctx, c)
		if err := t.lock(true, []need{n}); err != nil {
			return false, err
		}
		if err := fn(t); err != nil {
			if c.IsClosed() {
				return false, err
			}
			if _, end := c.Exec(ctx, "ROLLBACK"); end != nil && chunk.CodeOf(err) == "" {
				return false, end
			}
			return false, err
		}
		return true, t.commit()
	})
}

func (s *Store) begin(ctx context.Context, c *pgx.Conn) *tx {
	return &tx{s: s, c: c, ctx: ctx, states: map[string]*state{}}
}

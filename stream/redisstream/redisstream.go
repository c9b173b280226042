// Package redisstream has a stream manager and a state store on Redis, for programs with an
// agent of their own. Both are views of the same logs, so they always agree, and any number of
// processes may use them at once.
package redisstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/redisstore"
	"github.com/spool-run/spool/stream"
)

// Options are the settings of a [StreamManager] or a [StateStore]; nil means the zero value.
// All that use one prefix should have the same.
type Options struct {
	// Prefix begins the names of all keys: "" means "spool". A manager and a state store see
	// the same streams if they have the same prefix.
	Prefix string

	// TTL is how long a stream that has ended can be replayed as it was streamed, after its
	// last write. Then the single deltas are deleted; messages, state and results stay for
	// StateTTL. 0: 24 h, negative: for ever.
	TTL time.Duration

	// StateTTL is how long a session stays after its last write. Then it is deleted, in one
	// atomic step, unless it is written to or claimed. It is at least TTL. 0: 7 days,
	// negative: for ever.
	StateTTL time.Duration

	// MaxLength is how many of a stream's latest chunks are kept as they were streamed.
	// Before them only the messages, outcomes and results of turns stay. A turn that is open
	// or paused is never shortened. 0: 10,000, negative: all.
	MaxLength int

	// BlockTimeout is for how long a reader that has read everything waits for a
	// notification before it looks by itself. 0, or more than a second: a second.
	BlockTimeout time.Duration

	// ManagerOptions has the time after which a stream without writes counts as abandoned.
	stream.ManagerOptions
}

const (
	defaultTTL       = 24 * time.Hour
	defaultStateTTL  = 7 * 24 * time.Hour
	defaultMaxLength = 10_000
	longestSweep     = 10 * time.Minute
	shortestSweep    = 100 * time.Millisecond
)

// StreamManager writes and reads streams that lie in Redis: see [stream.Manager].
type StreamManager struct {
	*stream.Manager
	c *connection
}

// NewStreamManager connects to the Redis server, or cluster, that a URL names, as
// [redisstore.Open] does. It cleans up behind the streams of all processes until Close.
func NewStreamManager(url string, o *Options) (*StreamManager, error) {
	c, err := connect(url, o)
	if err != nil {
		return nil, err
	}
	return c.manager(), nil
}

// StateStore returns a state store on the manager's connection. It is closed with the manager.
func (m *StreamManager) StateStore() *StateStore { return m.c.state() }

// Close ends all readers and closes the connection.
func (m *StreamManager) Close() error { return m.c.close() }

// StateStore is the state, messages and runs of the sessions in Redis: see
// [stream.StateStore].
type StateStore struct {
	*stream.StateStore
	c *connection
}

// NewStateStore connects as [NewStreamManager] does.
func NewStateStore(url string, o *Options) (*StateStore, error) {
	c, err := connect(url, o)
	if err != nil {
		return nil, err
	}
	return c.state(), nil
}

// Close closes the connection.
func (s *StateStore) Close() error { return s.c.close() }

// connection is a store's logs and the sweeper of their streams.
type connection struct {
	store  interface{ Close() error }
	logs   *spool.Logs
	o      stream.ManagerOptions
	cancel context.CancelFunc
	swept  chan struct{} // closed when the sweeper has ended
	once   sync.Once
	err    error
}

func connect(url string, o *Options) (*connection, error) {
	var options Options
	if o != nil {
		options = *o
	}
	store, err := redisstore.Open(url, &redisstore.Options{Prefix: options.Prefix, Poll: options.BlockTimeout})
	if err != nil {
		return nil, err
	}
	return newConnection(store, options), nil
}

// fullStore is what a connection needs of a store.
type fullStore interface {
	spool.Store
	spool.Leaser
	spool.Lister
	spool.Trimmer
	spool.Expirer
	Close() error
}

func newConnection(store fullStore, o Options) *connection {
	limits, retention := o.limits()
	logs := spool.NewLogs(store, &spool.Options{Policy: spool.Policy{Limits: limits}})
	ctx, cancel := context.WithCancel(context.Background())
	c := &connection{store: store, logs: logs, o: o.ManagerOptions, cancel: cancel, swept: make(chan struct{})}
	go func() {
		defer close(c.swept)
		_ = runner.Sweep(ctx, logs, retention) // it ends with ctx or the store
	}()
	return c
}

// limits are the options in the words of policies and sweepers.
func (o *Options) limits() (spool.Limits, runner.Retention) {
	ttl, state, most := o.TTL, o.StateTTL, o.MaxLength
	if ttl == 0 {
		ttl = defaultTTL
	}
	if state == 0 {
		state = defaultStateTTL
	}
	if most == 0 {
		most = defaultMaxLength
	}
	limits := spool.Limits{TTL: max(state, ttl)}
	if state < 0 || ttl < 0 {
		limits.TTL = 0
	}
	every := longestSweep
	for _, t := range []time.Duration{ttl, limits.TTL} {
		if t > 0 {
			every = max(min(every, t/4), shortestSweep)
		}
	}
	return limits, runner.Retention{Age: ttl, Records: most, Grace: every, Every: every}
}

func (c *connection) manager() *StreamManager {
	return &StreamManager{stream.NewManager(c.logs, &c.o), c}
}

func (c *connection) state() *StateStore { return &StateStore{stream.NewStateStore(c.logs), c} }

func (c *connection) close() error {
	c.once.Do(func() {
		c.cancel()
		<-c.swept
		c.err = errors.Join(c.logs.Close(), c.store.Close())
	})
	return c.err
}

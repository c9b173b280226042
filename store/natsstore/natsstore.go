// Package natsstore keeps logs in NATS JetStream, for any number of processes. It needs a
// server of version 2.12 or later with JetStream.
//
// A session is a state machine: each append, claim, renewal, trim and deletion is one message
// of one stream, which holds the session's whole state in a header and new records in its
// payload. It is published only if the session's last message is still the one that the
// change was computed from, so that each change is atomic. docs/decisions has the reasons.
package natsstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
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

// DefaultPrefix begins the names of streams and subjects.
const DefaultPrefix = "spool"

const (
	defaultTimeout = 5 * time.Second
	syncClock      = 30 * time.Second
	askAgain       = time.Second
)

// Options configures a store; nil means the zero value.
type Options struct {
	// Prefix begins the names of streams and subjects: several stores can share an
	// account. "": DefaultPrefix. Up to 32 of A–Z, a–z, 0–9, _ and -.
	Prefix string
	// Replicas is on how many servers of a cluster the streams are kept when this store
	// creates them: 1, 3 or 5. 0: 1. An existing stream stays as it is.
	Replicas int
	// Timeout is how long a call waits for the server before it fails with
	// [spool.ErrUnavailable]. 0: five seconds.
	Timeout time.Duration
	// Connect has further options of the connection: credentials, TLS.
	Connect []nats.Option
	// Now is the store's clock; nil means the server's. All processes of a store must have
	// the same.
	Now func() time.Time
}

// Store keeps logs in a JetStream.
type Store struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	o       Options
	prefix  string
	me      string // tells this store from others
	log     string // name of the stream with the sessions
	values  string // name of the stream with blobs and folds
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	hub     *watch.Hub
	link    *link
	look    chan struct{} // asks tend to examine the stream
	index   *index
	server  clock           // the server's
	clock   *contract.Clock // the store's, which never goes back
	history history

	// deliver says how often a notification counts; tests lose and double them.
	deliver atomic.Int32

	mu      sync.Mutex
	entries map[string]*entry
}

var prefixForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Open connects to the servers, nats://HOST:PORT with commas between several, and creates the
// streams that are not there.
func Open(url string, options *Options) (*Store, error) {
	s := &Store{entries: map[string]*entry{}, link: newLink(), look: make(chan struct{}, 1)}
	if options != nil {
		s.o = *options
	}
	if s.o.Prefix == "" {
		s.o.Prefix = DefaultPrefix
	}
	if s.o.Timeout <= 0 {
		s.o.Timeout = defaultTimeout
	}
	if s.o.Replicas == 0 {
		s.o.Replicas = 1
	}
	if !prefixForm.MatchString(s.o.Prefix) {
		return nil, chunk.ErrInvalid.Because("the prefix of a NATS store has up to 32 letters, digits, _ and -")
	}
	s.me = nuid.Next()
	s.prefix, s.log, s.values = s.o.Prefix, s.o.Prefix+"_log", s.o.Prefix+"_values"
	if s.o.Now == nil {
		s.o.Now = s.server.now
	}
	s.clock = contract.NewClock(s.o.Now)
	s.deliver.Store(1)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.hub = watch.NewHub(watch.Options{Read: s.heads, Subscribe: s.subscribe})
	s.index = newIndex(s)
	if err := s.connect(url); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) connect(url string) error {
	options := append([]nats.Option{
		nats.Name("spool"), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.ReconnectBufSize(-1), // what was not sent must fail, not be sent later
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.Timeout(s.o.Timeout),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { s.disconnected() }),
		nats.ReconnectHandler(func(*nats.Conn) { s.reconnected() }),
	}, s.o.Connect...)
	var err error
	if s.nc, err = nats.Connect(url, options...); err != nil {
		return spool.ErrUnavailable.With("", err)
	}
	if s.js, err = jetstream.New(s.nc); err != nil {
		return spool.ErrUnavailable.With("", err)
	}
	ctx, cancel := context.WithTimeout(s.ctx, 2*s.o.Timeout)
	defer cancel()
	for _, c := range s.streams() {
		if err := s.create(ctx, c); err != nil {
			return err
		}
	}
	if err := s.examine(ctx); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		return spool.ErrUnavailable.With("", err)
	}
	s.running.Go(s.tend)
	return nil
}

// streams are the configurations of the streams.
func (s *Store) streams() []jetstream.StreamConfig {
	common := jetstream.StreamConfig{Replicas: s.o.Replicas, Storage: jetstream.FileStorage, AllowDirect: true}
	log, values := common, common
	log.Name, log.Description = s.log, "the sessions of a Spool store"
	log.Subjects = []string{s.prefix + ".s.>", s.prefix + ".generation", s.prefix + ".probe"}
	log.RePublish = &jetstream.RePublish{Source: s.prefix + ".s.>", Destination: s.prefix + ".live.>"}
	values.Name, values.Description = s.values, "large values and saved folds of a Spool store"
	values.Subjects = []string{s.prefix + ".v.>"}
	return []jetstream.StreamConfig{log, values}
}

// create makes a stream that is not there. It asks again when nobody answers: a stream that
// has no leader yet does not.
func (s *Store) create(ctx context.Context, c jetstream.StreamConfig) error {
	for {
		err := s.createOnce(ctx, c)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return spool.ErrUnavailable.With("", fmt.Errorf("stream %s: %w", c.Name, err))
		}
	}
}

func (s *Store) createOnce(ctx context.Context, c jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, askAgain)
	defer cancel()
	_, err := s.js.Stream(ctx, c.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = s.js.CreateStream(ctx, c)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			err = nil // another process was first
		}
	}
	return err
}

// Close ends every waiting call; all later ones fail with [spool.ErrClosed].
func (s *Store) Close() error {
	s.cancel()
	s.hub.Close()
	s.index.close()
	if s.nc != nil {
		s.nc.Close()
	}
	s.running.Wait()
	return nil
}

// usable returns why the store cannot be used, or nil. Every method calls it first.
func (s *Store) usable(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return spool.ErrClosed
	}
	return ctx.Err()
}

// failed is the error of a call to the server that did not succeed.
func (s *Store) failed(ctx context.Context, session string, err error) error {
	switch {
	case s.ctx.Err() != nil:
		return spool.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return spool.ErrUnavailable.With(session, err)
}

// Probe implements [spool.Prober].
func (s *Store) Probe(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if _, err := s.probe(ctx); err != nil {
		return s.failed(ctx, "", err)
	}
	return nil
}

// probe stores a message, removes it, and returns its sequence.
func (s *Store) probe(ctx context.Context) (uint64, error) {
	until, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	subject := s.prefix + ".probe"
	ack, err := s.js.PublishMsg(until, &nats.Msg{Subject: subject}, jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, s.purge(until, s.log, subject, ack.Sequence)
}

// tend keeps the clock right, and looks for losses.
func (s *Store) tend() {
	t := time.NewTicker(syncClock)
	defer t.Stop()
	for {
		look := s.examine
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		case <-s.look:
			look = s.settled
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
		_ = look(ctx) // the next one may succeed, and calls find out themselves
		cancel()
	}
}

// clock is the server's clock, as its answers have shown it, and this process's time since.
type clock struct {
	mu     sync.Mutex
	server time.Time
	local  time.Time
}

func (c *clock) set(server, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local = time.Now()
	c.server = server.Add(c.local.Sub(sent) / 2)
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server.Add(time.Since(c.local))
}

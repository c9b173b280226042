// Package embedded runs a NATS server in this process and keeps logs in it: one server alone,
// or one of the three or five servers of a cluster, which all are in such processes.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/filelock"
	"github.com/spool-run/spool/store/natsstore"
)

const (
	startLimit  = 30 * time.Second // for what a server does without the others
	askAgain    = 200 * time.Millisecond
	saidAgain   = 5 * time.Second
	lockName    = "spool.lock"
	askedLimit  = 2 * time.Second
	namePrivate = "spool (this process)"
)

// Store is a [natsstore.Store] on a server in this process.
type Store struct {
	*natsstore.Store
	server *server.Server
	lock   *os.File
	token  string // of clients
	o      *Options
	once   sync.Once
}

// start starts a server without a store.
func start(o *Options) (*Store, error) {
	if err := o.Check(); err != nil {
		return nil, chunk.ErrInvalid.Because("an embedded NATS server needs " + err.Error())
	}
	so, err := o.server()
	if err != nil {
		return nil, chunk.ErrInvalid.With("", err)
	}
	s := &Store{o: o, token: so.Authorization}
	if s.lock, err = lock(o.Dir); err != nil {
		return nil, err
	}
	log := &logger{log: o.Log}
	if log.log == nil {
		log.log = slog.New(slog.DiscardHandler)
	}
	if s.server, err = server.NewServer(so); err != nil {
		_ = s.Close()
		return nil, spool.ErrUnavailable.With("", err)
	}
	s.server.SetLoggerV2(log, false, false, false)
	s.server.Start()
	if err := s.started(log); err != nil {
		_ = s.Close()
		return nil, spool.ErrUnavailable.With("", errors.Join(errNotStarted, err))
	}
	return s, nil
}

// started waits until the server listens, or returns why it does not.
func (s *Store) started(log *logger) error {
	for end := time.Now().Add(startLimit); ; {
		ready := s.server.ReadyForConnections(askAgain)
		if err := log.failure(); err != nil || ready {
			return err
		}
		if time.Now().After(end) {
			return context.DeadlineExceeded
		}
	}
}

var errNotStarted = errors.New("the embedded NATS server has not started")

// Open starts the server and opens a store on it. In a cluster it waits until most of the
// members are there, and says so in the log; it gives up when ctx ends.
func Open(ctx context.Context, o *Options) (*Store, error) {
	s, err := start(o)
	if err != nil {
		return nil, err
	}
	if s.Store, err = s.store(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// store opens a store once the server can.
func (s *Store) store(ctx context.Context) (*natsstore.Store, error) {
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	for {
		st, err := natsstore.Open("", &natsstore.Options{Prefix: s.o.Prefix, Replicas: s.o.replicas(), Timeout: s.o.Timeout, Now: s.o.Now, Connect: s.connect()})
		if err == nil || len(s.o.Members) == 0 || !errors.Is(err, spool.ErrUnavailable) {
			return st, err
		}
		s.say("the cluster cannot keep the streams yet", "error", err)
		if err := pause(ctx, askAgain); err != nil {
			return nil, err
		}
	}
}

// connect are the options of connections that never leave the process.
func (s *Store) connect() []nats.Option {
	return []nats.Option{nats.InProcessServer(s.server), nats.Token(s.token)}
}

// await waits for the server's JetStream, which in a cluster begins when most members have
// elected a leader.
func (s *Store) await(ctx context.Context) error {
	nc, err := nats.Connect("", append(s.connect(), nats.Name(namePrivate))...)
	if err != nil {
		return spool.ErrUnavailable.With("", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return spool.ErrUnavailable.With("", err)
	}
	said := time.Now().Add(askAgain - saidAgain)
	for {
		until, cancel := context.WithTimeout(ctx, askedLimit)
		_, err := js.AccountInfo(until)
		cancel()
		if err == nil {
			return nil
		}
		if time.Since(said) >= saidAgain {
			said = time.Now()
			s.say("waiting for the other members of the cluster", "self", s.o.Self, "connected", s.members(), "members", len(s.o.Members))
		}
		if err := pause(ctx, askAgain); err != nil {
			return err
		}
	}
}

// members counts those that are connected to this server, and itself.
func (s *Store) members() int {
	names := map[string]bool{s.o.Self: true}
	if z, err := s.server.Routez(nil); err == nil {
		for _, r := range z.Routes {
			names[r.RemoteName] = true
		}
	}
	return len(names)
}

func (s *Store) say(text string, args ...any) {
	if s.o.Log != nil {
		s.o.Log.Info(text, args...)
	}
}

// ClientURL is where the server listens for clients, "" if it does not.
func (s *Store) ClientURL() string {
	if s.o.Clients == "" {
		return ""
	}
	return s.server.ClientURL()
}

// Close closes the store, hands over what the server leads, and ends the server.
func (s *Store) Close() error {
	s.once.Do(func() {
		if s.Store != nil {
			_ = s.Store.Close()
		}
		if s.server != nil {
			s.server.Shutdown() // which first steps down as a leader
			s.server.WaitForShutdown()
		}
		_ = s.lock.Close()
	})
	return nil
}

// lock takes a directory for this process.
func lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, spool.ErrUnavailable.With("", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, spool.ErrUnavailable.With("", err)
	}
	if err := filelock.Lock(f); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		_ = f.Close()
		e := spool.ErrUnavailable.Because("another process uses the directory " + dir)
		e.Hint = "give each process a directory of its own; a server that has it answers NATS clients at ?clients=HOST:PORT"
		return nil, e
	}
	return f, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// logger gives a server's messages to a log, and keeps the first that ends the server.
type logger struct {
	log *slog.Logger
	mu  sync.Mutex
	err error
}

func (l *logger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *logger) say(level slog.Level, format string, args []any) {
	l.log.Log(context.Background(), level, "nats: "+fmt.Sprintf(format, args...))
}

// Noticef implements [server.Logger].
func (l *logger) Noticef(format string, args ...any) { l.say(slog.LevelDebug, format, args) }

// Warnf implements [server.Logger].
func (l *logger) Warnf(format string, args ...any) { l.say(slog.LevelWarn, format, args) }

// Errorf implements [server.Logger].
func (l *logger) Errorf(format string, args ...any) { l.say(slog.LevelWarn, format, args) }

// Debugf implements [server.Logger].
func (l *logger) Debugf(string, ...any) {}

// Tracef implements [server.Logger].
func (l *logger) Tracef(string, ...any) {}

// Fatalf implements [server.Logger].
func (l *logger) Fatalf(format string, args ...any) {
	l.mu.Lock()
	if l.err == nil {
		l.err = fmt.Errorf(format, args...)
	}
	l.mu.Unlock()
	l.say(slog.LevelError, format, args)
}

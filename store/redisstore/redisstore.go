// Package redisstore keeps logs in Redis, for any number of processes.
//
// Every change of a session is one script, which checks everything before its first write.
// Keys of a session share a hash tag, so that the store also runs on a Redis Cluster.
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"hash/fnv"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/watch"
)

// Options configures a store; nil means the zero value. The parameters prefix, buckets and
// wait of the URL take precedence.
type Options struct {
	// Prefix begins the names of all keys: "" means "spool". Stores with different prefixes
	// share a database without touching each other.
	Prefix string

	// Buckets is into how many parts the sessions are divided. Each part lies on one node of
	// a Redis Cluster. 0 means what the store has already, and for a new one 1, or 64 on a
	// cluster. It cannot be changed later.
	Buckets int

	// Replicas is how many replicas must have each write before it is acknowledged (WAIT).
	// 0: the write is acknowledged when the primary has it, and a promotion may lose it.
	Replicas int

	// ReplicaTimeout is for how long a write waits for its replicas before it fails with
	// [spool.ErrUnavailable]. It may be stored nevertheless. 0 means a second.
	ReplicaTimeout time.Duration

	// Poll is how often sessions with waiters are read without a notification, since one may
	// be lost. 0, or more than a second, means a second.
	Poll time.Duration

	offset  func() time.Duration // tests: what the server's clock is set off by
	deliver func() int           // tests: how often each notification is delivered
}

const (
	defaultPrefix         = "spool"
	clusterBuckets        = 64
	maxBuckets            = 1024
	defaultReplicaTimeout = time.Second
	callTimeout           = 5 * time.Second // of a command
	format                = "1"             // of the keys
)

// Store keeps logs in Redis.
type Store struct {
	o       Options
	client  rueidis.Client
	tags    []string // of the buckets, before the names of their keys
	publish string   // the command
	hub     *watch.Hub
	due     watch.Claimers
	feeds   []*feed // one, or on a cluster one for each bucket

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	once   sync.Once

	checking sync.Mutex
	saw      []sight      // of each bucket
	dials    atomic.Int64 // connections that were made,
	verified atomic.Int64 // and those after which the server was checked
	watching sync.WaitGroup
}

// Open connects to the Redis server, or cluster, that a URL names:
// redis://user:password@host:port/database, or rediss:// for TLS. Errors:
// [chunk.ErrInvalid] for a URL or options that cannot be used, and
// [spool.ErrUnavailable].
func Open(name string, o *Options) (*Store, error) {
	s := &Store{publish: "PUBLISH"}
	if o != nil {
		s.o = *o
	}
	client, err := s.options(name)
	if err != nil {
		return nil, err
	}
	client.DialCtxFn = s.dial
	if s.client, err = rueidis.NewClient(*client); err != nil {
		return nil, spool.ErrUnavailable.With("", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	cluster := s.client.Mode() == rueidis.ClientModeCluster
	if cluster {
		s.publish = "SPUBLISH"
	}
	if err := s.divide(cluster); err != nil {
		s.cancel()
		s.client.Close()
		return nil, err
	}
	s.feeds = make([]*feed, 1)
	if cluster {
		s.feeds = make([]*feed, len(s.tags))
	}
	for i := range s.feeds {
		s.feeds[i] = newFeed(s)
	}
	s.hub = watch.NewHub(watch.Options{Read: s.states, Subscribe: s.subscribe, Poll: s.o.Poll})
	s.saw = make([]sight, len(s.tags))
	s.watching.Go(s.watch)
	return s, nil
}

// options takes the store's own parameters from the URL, and returns the client's.
func (s *Store) options(name string) (*rueidis.ClientOption, error) {
	u, err := url.Parse(name)
	if err != nil {
		return nil, chunk.ErrInvalid.Because("the URL of the Redis server is malformed") // the cause shows the password
	}
	q := u.Query()
	if v := q.Get("prefix"); v != "" {
		s.o.Prefix = v
	}
	for key, to := range map[string]*int{"buckets": &s.o.Buckets, "wait": &s.o.Replicas} {
		v := q.Get(key)
		if v == "" {
			continue
		}
		if *to, err = strconv.Atoi(v); err != nil {
			return nil, chunk.ErrInvalid.Because(key + " must be a number")
		}
	}
	for _, own := range []string{"prefix", "buckets", "wait"} {
		q.Del(own)
	}
	u.RawQuery = q.Encode()
	switch {
	case s.o.Prefix == "":
		s.o.Prefix = defaultPrefix
	case len(s.o.Prefix) > 64 || strings.ContainsAny(s.o.Prefix, "{}"):
		return nil, chunk.ErrInvalid.Because("the prefix must not have more than 64 bytes, nor braces")
	}
	if s.o.Buckets < 0 || s.o.Buckets > maxBuckets || s.o.Replicas < 0 {
		return nil, chunk.ErrInvalid.Because("buckets must be from 1 to 1024, and wait must not be negative")
	}
	if s.o.Poll <= 0 || s.o.Poll > watch.DefaultPoll {
		s.o.Poll = watch.DefaultPoll
	}
	if s.o.ReplicaTimeout <= 0 {
		s.o.ReplicaTimeout = defaultReplicaTimeout
	}
	client, err := rueidis.ParseURL(u.String())
	if err != nil {
		return nil, chunk.ErrInvalid.Because("the URL of the Redis server cannot be used")
	}
	client.DisableCache = true
	client.DisableRetry = true    // what may be repeated the caller repeats
	client.PipelineMultiplex = -1 // one connection, which keeps the order of calls
	client.ConnWriteTimeout = callTimeout
	client.Dialer.Timeout = callTimeout
	return &client, nil
}

func (s *Store) dial(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (conn net.Conn, err error) {
	if t == nil {
		conn, err = d.DialContext(ctx, "tcp", addr)
	} else {
		conn, err = (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", addr)
	}
	if err == nil {
		s.dials.Add(1)
	}
	return conn, err
}

// divide finds out into how many buckets the store is divided, or says so for ever.
func (s *Store) divide(cluster bool) error {
	n := s.o.Buckets
	if n == 0 && cluster {
		n = clusterBuckets
	}
	n = max(n, 1)
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	meta := s.o.Prefix + ":meta"
	b := s.client.B()
	var have []string
	for _, r := range s.client.DoMulti(ctx,
		b.Hsetnx().Key(meta).Field("format").Value(format).Build(),
		b.Hsetnx().Key(meta).Field("buckets").Value(strconv.Itoa(n)).Build(),
		b.Hmget().Key(meta).Field("format", "buckets").Build()) {
		if err := r.Error(); err != nil {
			return translate(err)
		}
		have, _ = r.AsStrSlice()
	}
	if len(have) != 2 || have[0] != format {
		return chunk.ErrInvalid.Because("the keys under this prefix are of another program, or of a newer version")
	}
	stored, err := strconv.Atoi(have[1])
	if err != nil || stored < 1 || stored > maxBuckets || s.o.Buckets != 0 && stored != s.o.Buckets {
		return chunk.ErrInvalid.Because("the store is divided into " + have[1] + " buckets")
	}
	for i := range stored {
		s.tags = append(s.tags, s.o.Prefix+"{"+s.o.Prefix+"."+strconv.Itoa(i)+"}")
	}
	return nil
}

// Close ends every waiting call and closes the connections.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.cancel()
		s.hub.Close()
		for _, f := range s.feeds {
			f.close()
		}
		s.watching.Wait()
		s.client.Close()
	})
	return nil
}

func (s *Store) usable(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return spool.ErrClosed
	}
	return ctx.Err()
}

// bucket returns the number of the session's bucket.
func (s *Store) bucket(session string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(session))
	return int(h.Sum32() % uint32(len(s.tags)))
}

// Probe implements [spool.Prober].
func (s *Store) Probe(ctx context.Context) error {
	return s.within(ctx, func(ctx context.Context) error {
		set := s.client.B().Set().Key(s.tags[0] + ":probe").Value("").Build()
		_, err := s.acknowledged(ctx, set)
		return translate(err)
	})
}

// within runs calls that end with the caller's context, with the store, and after a while.
func (s *Store) within(ctx context.Context, call func(ctx context.Context) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, callTimeout+s.o.ReplicaTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	err := call(bounded)
	switch {
	case err == nil:
		return nil
	case s.ctx.Err() != nil:
		return spool.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case bounded.Err() != nil && !errors.Is(err, spool.ErrUnavailable):
		return spool.ErrUnavailable.With("", err)
	}
	return err
}

// refusals are the errors with which Redis says that it did not execute a command.
var refusals = []string{"OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS", "BUSY",
	"NOAUTH", "NOPERM", "WRONGPASS", "NOSCRIPT", "MAXCLIENTS"}

// translate returns an error of the client as the contract has it.
func translate(err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*chunk.Error](err); ok {
		return known
	}
	if e, ok := rueidis.IsRedisErr(err); ok {
		for _, refusal := range refusals {
			if strings.HasPrefix(e.Error(), refusal) {
				return spool.ErrUnavailable.With("", errors.Join(spool.ErrNotStored, err))
			}
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return spool.ErrUnavailable.With("", errors.Join(spool.ErrNotStored, err))
	}
	return spool.ErrUnavailable.With("", err)
}

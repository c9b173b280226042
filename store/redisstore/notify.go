package redisstore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/spool-run/spool"
)

// feed is a connection with subscriptions. When it breaks it is made again, and everything
// that may have been missed is read.
type feed struct {
	s *Store

	mu       sync.Mutex
	conn     rueidis.DedicatedClient // nil: there is none
	channels map[string]*channel
	run      sync.WaitGroup
	running  bool
	closed   bool
}

// channel is one that is subscribed to.
type channel struct {
	confirmed chan struct{} // closed when the subscription is
}

func newFeed(s *Store) *feed {
	return &feed{s: s, channels: map[string]*channel{}}
}

// feedOf returns the feed of a bucket.
func (s *Store) feedOf(bucket int) *feed { return s.feeds[bucket%len(s.feeds)] }

// subscribe asks for a session's notifications.
func (s *Store) subscribe(ctx context.Context, session string) (func(), error) {
	bucket := s.bucket(session)
	f, name := s.feedOf(bucket), s.tags[bucket]+":n:"+session
	if err := f.subscribe(ctx, name); err != nil {
		return nil, err
	}
	return func() { f.unsubscribe(name) }, nil
}

// subscribe returns when the subscription is confirmed.
func (f *feed) subscribe(ctx context.Context, name string) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return spool.ErrClosed
	}
	c := f.channels[name]
	fresh := c == nil
	if fresh {
		c = &channel{confirmed: make(chan struct{})}
		f.channels[name] = c
	}
	if !f.running {
		f.running = true
		f.run.Go(f.loop)
	}
	conn := f.conn
	f.mu.Unlock()
	if fresh && conn != nil {
		if err := f.ask(ctx, conn, name); err != nil {
			conn.Close()
		}
	}
	select {
	case <-c.confirmed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *feed) ask(ctx context.Context, conn rueidis.DedicatedClient, names ...string) error {
	if f.s.publish == "SPUBLISH" {
		return conn.Do(ctx, conn.B().Ssubscribe().Channel(names...).Build()).Error()
	}
	return conn.Do(ctx, conn.B().Subscribe().Channel(names...).Build()).Error()
}

func (f *feed) unsubscribe(name string) {
	f.mu.Lock()
	delete(f.channels, name)
	conn := f.conn
	f.mu.Unlock()
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(f.s.ctx, callTimeout)
	defer cancel()
	if f.s.publish == "SPUBLISH" {
		_ = conn.Do(ctx, conn.B().Sunsubscribe().Channel(name).Build()).Error()
	} else {
		_ = conn.Do(ctx, conn.B().Unsubscribe().Channel(name).Build()).Error()
	}
}

// loop keeps the connection until the store is closed.
func (f *feed) loop() {
	const shortest, longest = 10 * time.Millisecond, time.Second
	pause := shortest
	for f.s.ctx.Err() == nil {
		began := time.Now()
		f.connect()
		if time.Since(began) > longest {
			pause = shortest
		}
		select {
		case <-time.After(pause):
		case <-f.s.ctx.Done():
		}
		pause = min(2*pause, longest)
	}
}

// connect subscribes to everything, and returns when the connection breaks.
func (f *feed) connect() {
	conn, release := f.s.client.Dedicate()
	defer release()
	broken := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: f.message, OnSubscription: f.confirm})
	f.mu.Lock()
	f.conn = conn
	names := make([]string, 0, len(f.channels))
	for name := range f.channels {
		names = append(names, name)
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.conn = nil
		for name := range f.channels {
			select {
			case <-f.channels[name].confirmed:
				f.channels[name] = &channel{confirmed: make(chan struct{})}
			default:
			}
		}
		f.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(f.s.ctx, callTimeout)
	defer cancel()
	if len(names) > 0 && f.ask(ctx, conn, names...) != nil {
		conn.Close()
		return
	}
	f.s.hub.Resync()
	f.s.due.Wake()
	select {
	case <-broken:
	case <-f.s.ctx.Done():
		conn.Close()
	}
}

func (f *feed) confirm(m rueidis.PubSubSubscription) {
	if m.Kind != "subscribe" && m.Kind != "ssubscribe" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.channels[m.Channel]; c != nil {
		select {
		case <-c.confirmed:
		default:
			close(c.confirmed)
		}
	}
}

func (f *feed) message(m rueidis.PubSubMessage) {
	times := 1
	if f.s.o.deliver != nil {
		times = f.s.o.deliver()
	}
	for range times {
		f.take(m)
	}
}

// take takes a notification.
func (f *feed) take(m rueidis.PubSubMessage) {
	_, name, _ := strings.Cut(m.Channel, "}:n")
	session, ok := strings.CutPrefix(name, ":")
	if !ok {
		f.s.due.Wake()
		return
	}
	if state, ok := parseNotice(session, m.Message); ok {
		f.s.hub.Apply(session, state)
	} else {
		f.s.hub.Changed(session, 0)
	}
}

// close waits for the loop, which ends with the store.
func (f *feed) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.run.Wait()
}

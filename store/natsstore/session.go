package natsstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/watch"
)

// entry is what this process knows of a session.
type entry struct {
	lock chan struct{} // holds one while a call changes the session

	// The lock guards these.
	st  *state // nil: not known
	seq uint64 // of its message

	// The store's mutex guards these.
	users int
	yield time.Time // until then others write first
}

const maxEntries = 4096

// enter locks a session's entry.
func (s *Store) enter(ctx context.Context, session string) (*entry, error) {
	s.mu.Lock()
	e := s.entries[session]
	if e == nil {
		e = &entry{lock: make(chan struct{}, 1)}
		for id, old := range s.entries {
			if len(s.entries) < maxEntries {
				break
			}
			if old.users == 0 {
				delete(s.entries, id)
			}
		}
		s.entries[session] = e
	}
	e.users++
	s.mu.Unlock()
	select {
	case e.lock <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		s.left(e)
		return nil, ctx.Err()
	case <-s.ctx.Done():
		s.left(e)
		return nil, spool.ErrClosed
	}
}

func (s *Store) leave(e *entry) {
	<-e.lock
	s.left(e)
}

func (s *Store) left(e *entry) {
	s.mu.Lock()
	e.users--
	s.mu.Unlock()
}

// load reads a session's state through the leader. For one that never was, it is blank and
// the sequence 0.
func (s *Store) load(ctx context.Context, session string) (*state, uint64, []chunk.Record, error) {
	if err := s.settled(ctx); err != nil {
		return nil, 0, nil, err
	}
	m, err := s.get(ctx, s.log, query{Last: s.subject(session, ">")})
	if errors.Is(err, errNoMessage) {
		st := &state{Session: session}
		st.raise(s.history.now())
		return st, 0, nil, nil
	}
	if err != nil {
		return nil, 0, nil, s.failed(ctx, session, err)
	}
	st, recs, err := s.decode(m)
	if err != nil {
		return nil, 0, nil, spool.ErrUnavailable.With(session, err)
	}
	return st, m.seq, recs, nil
}

// decode returns the state that a message left, as this generation sees it, and its records.
func (s *Store) decode(m message) (*state, []chunk.Record, error) {
	st, err := decodeState(m.header)
	if err != nil {
		return nil, nil, err
	}
	writers, recs, _, err := decodePayload(m.data)
	if err != nil {
		return nil, nil, err
	}
	st.writers = writers
	s.clock.After(st.At)
	if len(recs) > 0 {
		st.mark(recs[0].Seq, m.seq)
	}
	st.raise(s.history.now())
	return st, recs, nil
}

// existing is load for a session that has to exist.
func (s *Store) existing(ctx context.Context, session string) (*state, uint64, error) {
	st, seq, _, err := s.load(ctx, session)
	if err == nil && !st.Exists {
		err = spool.ErrNotFound.With(session, nil)
	}
	if err != nil {
		return nil, 0, err
	}
	return st, seq, nil
}

// change computes what a call makes of a session. It gets a copy of the state, at the
// sequence seq, and returns nil if there is nothing to store.
type change func(st *state, seq uint64, now int64) (*write, error)

// update changes a session in one step: the message is stored only if no other one was since
// the state that the change was computed from. A change that stores nothing, or fails, is
// computed from a state that was read after the call began. It returns the state afterwards,
// and its sequence.
func (s *Store) update(ctx context.Context, session string, fn change) (*state, uint64, error) {
	e, err := s.enter(ctx, session)
	if err != nil {
		return nil, 0, err
	}
	defer s.leave(e)
	if err := s.settled(ctx); err != nil {
		return nil, 0, err
	}
	if e.st != nil && e.st.Generation != s.history.now() {
		e.st = nil
	}
	fresh := false
	for try := 0; ; try++ {
		if e.st == nil {
			if e.st, e.seq, _, err = s.load(ctx, session); err != nil {
				e.st = nil
				return nil, 0, err
			}
			fresh = true
		}
		st := e.st.clone()
		now := s.clock.After(st.At)
		w, err := fn(st, e.seq, now)
		if (err != nil || w == nil) && !fresh {
			e.st = nil
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if w == nil {
			return st, e.seq, nil
		}
		st.At = now
		seq, err := s.publish(ctx, e, st, w)
		if errors.Is(err, errConflict) {
			e.st = nil
			if err := s.yieldTo(ctx, session, try); err != nil {
				return nil, 0, err
			}
			continue
		}
		if err != nil {
			e.st = nil
			return nil, 0, err
		}
		s.stored(e, st, seq, w)
		return st, seq, nil
	}
}

// stored tells of a change that this process made.
func (s *Store) stored(e *entry, st *state, seq uint64, w *write) {
	if len(w.records) > 0 {
		st.mark(w.records[0].Seq, seq)
	}
	e.st, e.seq = st, seq
	s.hub.Apply(st.Session, s.seen(st, seq, w.records))
	if w.kind != kindTrace {
		s.index.apply(st, seq)
	}
}

// seen is a state for the hub.
func (s *Store) seen(st *state, seq uint64, recs []chunk.Record) watch.State {
	return watch.State{Exists: st.Exists, Head: st.Head, Version: int64(st.Generation<<40 | seq), Records: recs}
}

var (
	errConflict = errors.New("another message was stored")
	errSilent   = errors.New("the server does not answer")
)

// publish stores a message if the session's last one is still the entry's. If its outcome is
// unknown it is found out, or the message is sent again: under the same condition, so that it
// is stored once at most.
func (s *Store) publish(ctx context.Context, e *entry, st *state, w *write) (uint64, error) {
	st.numbered(e.st, e.seq, w)
	id := nuid.Next()
	m, err := st.encode(s.subject(st.Session, w.kind), id, w)
	if err != nil {
		return 0, err
	}
	if limit := s.nc.MaxPayload(); limit > 0 && int64(m.Size()) > limit {
		return 0, chunk.ErrTooLarge.Because("the append is larger than the max_payload of the NATS server").With(st.Session, nil)
	}
	all := s.subject(st.Session, ">")
	until, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	told := s.history.told()
	for unknown := false; ; unknown = true {
		if unknown {
			if seq, err := s.find(until, all, e.seq, id); err == nil || errors.Is(err, errConflict) {
				return seq, err
			}
		}
		attempt, stop := s.link.attempt(until)
		ack, err := s.js.PublishMsg(attempt, m, jetstream.WithExpectLastSequenceForSubject(e.seq, all), jetstream.WithRetryAttempts(0))
		stop()
		if err == nil {
			if ack.Sequence <= told {
				return 0, s.lost(ctx, st.Session)
			}
			s.history.see(ack.Sequence, true)
			return ack.Sequence, nil
		}
		var api *jetstream.APIError
		refused := errors.As(err, &api)
		if refused && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || strings.HasPrefix(api.Description, "wrong last sequence")) {
			if unknown { // by the message itself, perhaps
				if seq, ferr := s.find(until, all, e.seq, id); ferr == nil {
					return seq, nil
				}
			}
			return 0, errConflict
		}
		if refused && !unknown {
			return 0, spool.ErrUnavailable.With(st.Session, errors.Join(spool.ErrNotStored, err))
		}
		if pause(until, 50*time.Millisecond) != nil {
			return 0, s.failed(ctx, st.Session, errors.Join(errSilent, err))
		}
	}
}

// find looks for a message with an id after a sequence, through the leader. errConflict says
// that another one is there, errNoMessage that none is.
func (s *Store) find(ctx context.Context, subject string, after uint64, id string) (uint64, error) {
	m, err := s.get(ctx, s.log, query{Next: subject, Seq: after + 1})
	if err != nil {
		return 0, err
	}
	if m.header.Get(headerID) != id {
		return 0, errConflict
	}
	return m.seq, nil
}

// pause sleeps, unless ctx ends.
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

// For how long the owner of a session lets others write first who ask for it.
const yieldFor = 20 * time.Millisecond

// yieldTo lets others go first after a conflict, and asks them to do the same after the
// second: an owner who appends without a pause would leave no gap.
func (s *Store) yieldTo(ctx context.Context, session string, try int) error {
	if try > 0 {
		_ = s.nc.PublishMsg(&nats.Msg{Subject: s.prefix + ".yield", Data: []byte(session), Reply: s.me})
		return pause(ctx, rand.N(time.Millisecond*time.Duration(min(try, 20))))
	}
	return nil
}

// giveWay waits if another process has asked for a session.
func (s *Store) giveWay(ctx context.Context, session string) error {
	s.mu.Lock()
	var until time.Time
	if e := s.entries[session]; e != nil {
		until, e.yield = e.yield, time.Time{}
	}
	s.mu.Unlock()
	if d := time.Until(until); d > 0 {
		return pause(ctx, d)
	}
	return nil
}

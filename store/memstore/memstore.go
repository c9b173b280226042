// Package memstore keeps logs in memory. It is for tests, demos and programs whose
// logs need not outlive them. It offers every role that a store can have, and is the
// shortest example for docs/writing-a-store.md.
//
// Time is read only through Options.Now, and no goroutine runs in the
// background, so a store made inside a testing/synctest bubble obeys it.
package memstore

import (
	"context"
	"sync"
	"time"

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
	_ spool.Volatile  = (*Store)(nil)
)

// Options configures a store; nil means the zero value.
type Options struct {
	// Now is the store's clock; nil means time.Now.
	Now func() time.Time
}

// Store keeps logs in memory.
type Store struct {
	clock  *contract.Clock
	closed chan struct{}

	mu       sync.RWMutex // guards the map, never held while a session is locked
	sessions map[string]*session
	isClosed bool
	// generation is what incarnations and epochs of new sessions are above.
	generation uint64

	due      agenda
	claims   claims
	claiming sync.Mutex // held by each claim that has an id
}

// New returns an empty store.
func New(o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	return &Store{clock: contract.NewClock(o.Now), closed: make(chan struct{}), sessions: map[string]*session{},
		claims: claims{sessions: map[string]string{}}}
}

// Close ends every waiting call; all later ones fail with [spool.ErrClosed].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isClosed {
		s.isClosed = true
		close(s.closed)
	}
	return nil
}

// Volatile implements [spool.Volatile].
func (s *Store) Volatile() {}

func (s *Store) nowMilli() int64 { return s.clock.Now() }

// usable returns why the store cannot be used, or nil. Every method calls it first.
func (s *Store) usable(ctx context.Context) error {
	select {
	case <-s.closed:
		return spool.ErrClosed
	default:
		return ctx.Err()
	}
}

// find returns a session's place, locked, or nil if it never had one.
func (s *Store) find(id string) *session {
	for {
		s.mu.RLock()
		ss := s.sessions[id]
		s.mu.RUnlock()
		if ss == nil {
			return nil
		}
		if ss.mu.Lock(); !ss.dropped {
			return ss
		}
		ss.mu.Unlock()
	}
}

// place is find, but makes the place if it is not there. It fails only with
// ErrClosed. The session in it may not exist (yet, or any more).
func (s *Store) place(id string) (*session, error) {
	for {
		if ss := s.find(id); ss != nil {
			return ss, nil
		}
		s.mu.Lock()
		if s.isClosed {
			s.mu.Unlock()
			return nil, spool.ErrClosed
		}
		if s.sessions[id] == nil {
			s.sessions[id] = &session{id: id, generation: s.generation, agendaIndex: -1}
		}
		s.mu.Unlock()
	}
}

// Append implements [spool.Store]. The store keeps the records' Data as it is.
func (s *Store) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Appended{}, err
	}
	if err := contract.CheckAppend(&a); err != nil {
		return spool.Appended{}, err
	}
	var ss *session
	if a.Epoch > 0 {
		// An owner's session exists since its claim: never make one here.
		if ss = s.find(a.Session); ss == nil {
			return spool.Appended{}, spool.ErrSuperseded.With(a.Session, nil)
		}
	} else {
		var err error
		if ss, err = s.place(a.Session); err != nil {
			return spool.Appended{}, err
		}
	}
	defer ss.mu.Unlock()
	now := s.nowMilli()
	res, err := ss.append(&a, now)
	s.due.update(ss)
	return res, err
}

// Read implements [spool.Store].
func (s *Store) Read(ctx context.Context, id string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	return s.records(ctx, id, func(ss *session) ([]chunk.Record, error) { return ss.read(after, max) })
}

// ReadKept implements [spool.Store].
func (s *Store) ReadKept(ctx context.Context, id string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	return s.records(ctx, id, func(ss *session) ([]chunk.Record, error) { return ss.readKept(q) })
}

// records reads from a session, if there is one, and says at which head.
func (s *Store) records(ctx context.Context, id string, read func(*session) ([]chunk.Record, error)) ([]chunk.Record, spool.Head, error) {
	if err := s.usable(ctx); err != nil {
		return nil, spool.Head{}, err
	}
	ss := s.find(id)
	if ss == nil {
		return nil, spool.Head{}, nil
	}
	defer ss.mu.Unlock()
	if !ss.exists {
		return nil, spool.Head{}, nil
	}
	recs, err := read(ss)
	return recs, ss.head, err
}

// Head implements [spool.Store].
func (s *Store) Head(ctx context.Context, session string) (spool.Head, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, err
	}
	ss, err := s.existing(session)
	if err != nil {
		return spool.Head{}, err
	}
	defer ss.mu.Unlock()
	return ss.head, nil
}

// Wait implements [spool.Store].
func (s *Store) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, nil, err
	}
	ss, err := s.place(session)
	if err != nil {
		return spool.Head{}, nil, err
	}
	ss.waiters++
	defer s.leave(ss) // with ss locked
	for {
		if done, err := watch.Answer(ss.exists, ss.head, seen, session); err != nil {
			return spool.Head{}, nil, err
		} else if done {
			return ss.head, ss.next(seen), nil
		}
		if ss.wake == nil {
			ss.wake = make(chan struct{})
		}
		wake := ss.wake
		ss.mu.Unlock()
		select {
		case <-wake:
			err = nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.closed:
			err = spool.ErrClosed
		}
		ss.mu.Lock()
		if err != nil {
			return spool.Head{}, nil, err
		}
	}
}

// leave ends a wait: the place of a session that never was goes with its last
// waiter, so that waiting for names nobody uses costs nothing.
func (s *Store) leave(ss *session) {
	ss.waiters--
	drop := ss.waiters == 0 && ss.blank()
	ss.dropped = ss.dropped || drop
	ss.mu.Unlock()
	if drop {
		s.mu.Lock()
		if s.sessions[ss.id] == ss {
			delete(s.sessions, ss.id)
		}
		s.mu.Unlock()
	}
}

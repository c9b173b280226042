package memstore

import (
	"container/heap"
	"context"
	"maps"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/contract"
)

// Fork returns another store that holds what this one holds now: records, rows,
// leases, the writers' ordinals, saved folds and blobs. From then on the two have
// nothing to do with each other, and each goes on as if it had always been alone.
//
// Each session is taken as it is between two of its changes; several sessions that
// change meanwhile are not taken at the same moment. Waiters wait for the
// original. The fork is open, also if the original is closed.
//
// o configures the fork as it does in [New]: it has a clock of its own, and leases
// and due marks keep their absolute times.
//
// A store made in a testing/synctest bubble cannot be used outside of it, but it
// can be forked, and the fork be used where it was made.
func (s *Store) Fork(o *Options) *Store {
	f := New(o)
	s.mu.RLock()
	f.generation = s.generation
	places := slices.Collect(maps.Values(s.sessions))
	s.mu.RUnlock()
	for _, ss := range places {
		ss.mu.Lock()
		c := ss.fork()
		ss.mu.Unlock()
		if c == nil {
			continue
		}
		f.sessions[c.id] = c
		f.claims.replace(c.id, "", c.lease.claim)
		if c.ready = c.readyAt(); c.ready != contract.Never {
			heap.Push(&f.due, c)
		}
	}
	return f
}

// Raise does what a store must do that has lost acknowledged records: every session, of
// now or later, gets an incarnation and an epoch above all that may have been given out,
// and no lease outlives it. A program calls it on a fork that takes the place of a store
// which went on meanwhile.
func (s *Store) Raise() {
	s.mu.Lock()
	s.generation += contract.Generation
	generation, places := s.generation, slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	for _, ss := range places {
		ss.mu.Lock()
		ss.raise(generation)
		s.due.update(ss)
		ss.mu.Unlock()
	}
}

// RaiseAbove implements [spool.Raiser].
func (s *Store) RaiseAbove(ctx context.Context, session string, known spool.Head) (spool.Head, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, err
	}
	ss := s.find(session)
	if ss == nil {
		return spool.Head{}, spool.ErrNotFound.With(session, nil)
	}
	defer ss.mu.Unlock()
	if !ss.exists {
		return spool.Head{}, spool.ErrNotFound.With(session, nil)
	}
	if contract.RaiseAbove(&ss.head, known) {
		s.claims.replace(ss.id, ss.lease.claim, "")
		ss.lease, ss.writers = lease{}, nil
		ss.changed()
		s.due.update(ss)
	}
	return ss.head, nil
}

// raise begins another generation of the session's incarnations and epochs.
func (ss *session) raise(generation uint64) {
	ss.generation = generation
	if ss.head.Incarnation == 0 {
		return // it never existed
	}
	ss.head.Incarnation = max(ss.head.Incarnation, generation) + 1
	ss.head.Epoch = max(ss.head.Epoch, generation) + 1
	ss.lease, ss.writers = lease{}, nil
	ss.changed()
}

// fork copies a session, locked by the caller, or returns nil if there is nothing
// to copy. Records are never written to again, and lists of them only grow at
// their end, so that the copies share them.
func (ss *session) fork() *session {
	if ss.dropped || ss.blank() {
		return nil
	}
	return &session{
		id: ss.id, exists: ss.exists, generation: ss.generation,
		head: ss.head, row: ss.row, updated: ss.updated, bytes: ss.bytes, command: ss.command,
		all: slices.Clip(ss.all), kept: slices.Clip(ss.kept),
		lease: ss.lease, writers: maps.Clone(ss.writers),
		folds: maps.Clone(ss.folds), blobs: maps.Clone(ss.blobs),
		agent: ss.row.Agent, agendaIndex: -1,
	}
}

package memstore

import (
	"container/heap"
	"maps"
	"slices"

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

// fork copies a session, locked by the caller, or returns nil if there is nothing
// to copy. Records are never written to again, and lists of them only grow at
// their end, so that the copies share them.
func (ss *session) fork() *session {
	if ss.dropped || ss.blank() {
		return nil
	}
	return &session{
		id: ss.id, exists: ss.exists,
		head: ss.head, row: ss.row, updated: ss.updated, command: ss.command,
		all: slices.Clip(ss.all), kept: slices.Clip(ss.kept),
		lease: ss.lease, writers: maps.Clone(ss.writers),
		folds: maps.Clone(ss.folds), blobs: maps.Clone(ss.blobs),
		agent: ss.row.Agent, agendaIndex: -1,
	}
}

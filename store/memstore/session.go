package memstore

import (
	"slices"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

// session is one log and its row. A deleted session stays as a tombstone, with
// exists false and the epoch and incarnation that the next one starts from.
type session struct {
	id         string
	generation uint64 // its incarnations and epochs are above that

	mu      sync.Mutex
	exists  bool
	dropped bool // no longer in the store's map: look again
	waiters int
	wake    chan struct{} // closed at the next change; nil while nobody waits

	head    spool.Head
	row     spool.Row // its Status and Principal are the head's
	updated int64
	bytes   int64  // of all, of the records of kept that are not in all, and of blobs
	command uint64 // sequence of the last command

	// all holds every record above head.TraceFloor, so that sequence n lies at
	// index n-TraceFloor-1; kept holds the kept ones above head.Floor.
	all, kept []chunk.Record

	lease   lease
	writers map[string]written // under the latest epoch

	folds map[string]spool.SavedFold
	blobs map[string][]byte

	ready       int64 // guarded by the agenda: since when it can be claimed
	agent       string
	expires     int64 // of its lease
	agendaIndex int   // -1: not on it
}

// written is the last append of one writer.
type written struct{ ordinal, first, last uint64 }

// blank reports whether dropping the session would forget nothing.
func (ss *session) blank() bool {
	return !ss.exists && ss.head.Incarnation == 0 && len(ss.blobs) == 0
}

// create makes the session exist, after the tombstone if there is one. An existing one
// keeps its principal, and stays hidden or visible.
func (ss *session) create(principal string, hidden bool, now int64) {
	if ss.exists {
		return
	}
	ss.exists = true
	ss.head = contract.Created(ss.head, principal, hidden)
	ss.head.Incarnation = max(ss.head.Incarnation, ss.generation+1)
	ss.head.Epoch = max(ss.head.Epoch, ss.generation)
	ss.row = spool.Row{Status: chunk.StatusEnded, Principal: principal}
	ss.updated = now
}

// changed wakes those that wait for another head.
func (ss *session) changed() {
	if ss.wake != nil {
		close(ss.wake)
		ss.wake = nil
	}
}

func (ss *session) append(a *spool.Append, now int64) (spool.Appended, error) {
	if err := ss.admit(a, now); err != nil {
		return spool.Appended{}, err
	}
	numbered := a.Epoch > 0 && a.Ordinal > 0
	if w, known := ss.writers[a.Writer]; numbered && a.Ordinal <= w.ordinal {
		return ss.repeat(a, w)
	} else if numbered && !known {
		if err := contract.CheckWriter(a.Session, len(ss.writers)); err != nil {
			return spool.Appended{}, err
		}
	}
	ss.create(a.Row.Principal, false, now)
	ss.updated = now
	first := ss.head.Seq + 1
	ss.add(a.Records)
	contract.SetRow(&ss.head, &ss.row, a.Row)
	contract.SetDue(&ss.head, &ss.command, a, now)
	ss.head.Hidden = ss.head.Hidden && !a.Show
	if numbered {
		if ss.writers == nil {
			ss.writers = map[string]written{}
		}
		ss.writers[a.Writer] = written{a.Ordinal, first, ss.head.Seq}
	}
	ss.changed()
	return spool.Appended{First: first, Last: ss.head.Seq, Head: ss.head}, nil
}

// admit checks who appends: the owner with the lease of this epoch, which it
// renews, or anyone with a command, unless the session is hidden.
func (ss *session) admit(a *spool.Append, now int64) error {
	switch {
	case a.Epoch > 0:
		if !ss.exists || a.Epoch != ss.head.Epoch {
			return spool.ErrSuperseded.With(a.Session, nil)
		}
		ss.lease.renew(now)
	case ss.exists && ss.head.Hidden:
		return spool.ErrNotFound.With(a.Session, nil)
	case ss.exists:
		return contract.CheckPrincipal(a.SamePrincipal, a.Row.Principal, &ss.head, a.Session)
	}
	return nil
}

// repeat answers an append that is stored already. w is its writer's last one.
func (ss *session) repeat(a *spool.Append, w written) (spool.Appended, error) {
	if a.Ordinal < w.ordinal {
		return spool.Appended{}, chunk.ErrInvalid.Because("a later append of this writer is stored").With(a.Session, nil)
	}
	return spool.Appended{First: w.first, Last: w.last, Head: ss.head, Repeated: true}, nil
}

// add numbers records and keeps them.
func (ss *session) add(records []chunk.Record) {
	for _, r := range records {
		ss.head.Seq++
		r.Seq = ss.head.Seq
		ss.bytes += int64(len(r.Data))
		ss.all = append(ss.all, r)
		if r.Class == chunk.Kept {
			ss.kept = append(ss.kept, r)
		}
	}
}

func (ss *session) read(after uint64, limit int) ([]chunk.Record, error) {
	if after < ss.head.TraceFloor {
		return nil, spool.ErrTrimmed.With(ss.id, nil)
	}
	if after >= ss.head.Seq {
		return nil, nil
	}
	return slices.Clone(page(ss.all[after-ss.head.TraceFloor:], limit)), nil
}

// next returns the records that follow a head of this log, or none.
func (ss *session) next(seen spool.Head) []chunk.Record {
	if seen.Incarnation != ss.head.Incarnation {
		return nil
	}
	recs, _ := ss.read(seen.Seq, 0) // none if some of them are trimmed
	return recs
}

func (ss *session) readKept(q spool.KeptQuery) ([]chunk.Record, error) {
	if q.Backwards {
		end := len(ss.kept)
		if q.Before > 0 {
			end = search(ss.kept, q.Before)
		}
		start := max(0, end-limitOf(q.Max))
		out := slices.Clone(ss.kept[start:end])
		slices.Reverse(out)
		return page(out, q.Max), nil
	}
	if q.After < ss.head.Floor {
		return nil, spool.ErrTrimmed.With(ss.id, nil)
	}
	return slices.Clone(page(ss.kept[search(ss.kept, q.After+1):], q.Max)), nil
}

// trim raises the watermarks.
func (ss *session) trim(traceFloor, floor uint64) {
	was := ss.head
	contract.RaiseFloors(&ss.head, traceFloor, floor)
	if ss.head == was {
		return
	}
	ss.free(was)
	ss.changed()
}

// remove leaves the tombstone.
func (ss *session) remove() {
	ss.exists = false
	ss.head = contract.Deleted(ss.head)
	ss.row, ss.updated, ss.bytes, ss.command = spool.Row{}, 0, 0, 0
	ss.all, ss.kept, ss.writers, ss.folds, ss.blobs = nil, nil, nil, nil, nil
	ss.lease = lease{}
	ss.changed()
}

// search returns the index of the first record with Seq >= seq.
func search(rs []chunk.Record, seq uint64) int {
	i, _ := slices.BinarySearchFunc(rs, seq, func(r chunk.Record, seq uint64) int {
		switch {
		case r.Seq < seq:
			return -1
		case r.Seq > seq:
			return 1
		}
		return 0
	})
	return i
}

// page returns as many of the first records as one read may return.
func page(rs []chunk.Record, limit int) []chunk.Record {
	rs = rs[:min(len(rs), limitOf(limit))]
	n, size := 0, 0
	for ; n < len(rs) && size < spool.MaxReadBytes; n++ {
		size += len(rs[n].Data)
	}
	return rs[:n]
}

func limitOf(n int) int {
	if n <= 0 {
		return spool.MaxRead
	}
	return n
}

package watch

import (
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// maxNext bounds the records that are kept for a session's waiters, in bytes.
const maxNext = 256 << 10

// nextRecords are the latest records of a log, up to the known head: those that a waiter
// who comes back may lack.
type nextRecords struct {
	recs        []chunk.Record
	size        int
	incarnation uint64
	traceFloor  uint64
}

// add takes the records of a state that follows another head.
func (x *nextRecords) add(was spool.Head, s State) {
	h, n := s.Head, uint64(len(s.Records))
	x.traceFloor = h.TraceFloor
	switch {
	case !s.Exists, h.Incarnation != was.Incarnation:
		x.clear()
	case h.Seq == was.Seq:
	case n == 0 || s.Records[n-1].Seq != h.Seq || s.Records[0].Seq != h.Seq-n+1:
		x.clear()
	default:
		if x.incarnation != h.Incarnation || s.Records[0].Seq > was.Seq+1 {
			x.clear()
		}
		x.incarnation = h.Incarnation
		for _, r := range s.Records {
			if r.Seq > was.Seq {
				x.recs = append(x.recs, r)
				x.size += len(r.Data)
			}
		}
		if x.size > maxNext || len(x.recs) > spool.MaxRead {
			x.clear()
		}
	}
}

func (x *nextRecords) clear() { x.recs, x.size = nil, 0 }

// drop forgets what a waiter with this head has.
func (x *nextRecords) drop(seen spool.Head) {
	if len(x.recs) == 0 || seen.Incarnation != x.incarnation {
		return
	}
	n := 0
	for n < len(x.recs) && x.recs[n].Seq <= seen.Seq {
		x.size -= len(x.recs[n].Data)
		n++
	}
	if x.recs = x.recs[n:]; len(x.recs) == 0 {
		x.clear()
	}
}

// after returns the records that follow a head, or none.
func (x *nextRecords) after(seen spool.Head) []chunk.Record {
	if len(x.recs) == 0 || seen.Incarnation != x.incarnation || x.recs[0].Seq != seen.Seq+1 || seen.Seq < x.traceFloor {
		return nil
	}
	return slices.Clone(x.recs)
}

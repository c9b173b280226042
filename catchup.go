package spool

import (
	"context"
	"errors"

	"github.com/spool-run/spool/chunk"
)

// source reads, without waiting, the records that a fold over log[after+1..] needs:
// only kept records where trace may be trimmed, then every record. The zero position
// means the whole log and begins at the floor.
type source struct {
	g           *Log
	r           *Reader
	at          uint64
	upTo        uint64 // the last sequence to read; 0: to the head
	incarnation uint64
	page        int
	keptTo      uint64 // up to here it has read kept records only
	lossy       bool   // a trim overtook it: trace is missing that it should have read
}

// newSource asks the store for the head, unless the caller passes one that it has just
// got. Errors: [ErrNotFound], [ErrCursorAhead] if the position lies beyond the log, or
// the store's.
func newSource(ctx context.Context, g *Log, just Head, after, upTo uint64) (*source, error) {
	t := g.tail
	if err := t.reach(ctx, just); err != nil {
		return nil, err
	}
	t.mu.Lock()
	known, head := t.known, t.head
	t.mu.Unlock()
	if !known {
		return nil, ErrNotFound.With(g.session, nil)
	}
	if after > head.Seq || upTo > head.Seq {
		return nil, ErrCursorAhead.With(g.session, nil)
	}
	s := &source{g: g, at: after, upTo: upTo, incarnation: head.Incarnation, page: 64}
	if after == 0 {
		s.at = head.Floor
	}
	return s, nil
}

// follow reads every record from here on.
func (s *source) follow() {
	s.r = s.g.Reader(ReadOptions{After: Cursor{Seq: s.at, Incarnation: s.incarnation}, Follow: true})
	s.r.checked = true // newSource did
	if s.at == 0 {
		s.r.incarnation = s.incarnation
	}
}

// next returns the next records. Without records and without an error, the source is at
// its end or at the head.
func (s *source) next(ctx context.Context) ([]chunk.Record, error) {
	for again := true; again && (s.upTo == 0 || s.at < s.upTo); {
		var recs []chunk.Record
		var err error
		if s.r != nil {
			recs, again, err = s.all(ctx)
		} else {
			recs, again, err = s.kept(ctx)
		}
		if err != nil {
			return nil, err
		}
		for n, r := range recs {
			if s.upTo > 0 && r.Seq > s.upTo {
				recs, s.at = recs[:n], s.upTo
				break
			}
		}
		if len(recs) > 0 {
			return recs, nil
		}
	}
	return nil, nil
}

// all reads every record, and falls back to kept records if the log was trimmed
// meanwhile.
func (s *source) all(ctx context.Context) (recs []chunk.Record, again bool, err error) {
	recs, err = s.r.poll(ctx)
	s.at = s.r.after
	if !errors.Is(err, ErrTrimmed) {
		return recs, false, err
	}
	s.r, s.lossy = nil, true
	return nil, true, s.g.tail.refresh(ctx)
}

// kept reads one page of kept records up to the trace floor.
func (s *source) kept(ctx context.Context) (recs []chunk.Record, again bool, err error) {
	t := s.g.tail
	t.mu.Lock()
	floor := t.head.TraceFloor
	t.mu.Unlock()
	if s.at >= floor {
		s.follow()
		return nil, true, nil
	}
	recs, h, err := t.logs.store.ReadKept(ctx, s.g.session, KeptQuery{After: s.at, Max: s.page})
	if err == nil {
		err = t.sameLog(h, s.incarnation)
	}
	if err != nil {
		return nil, false, err
	}
	s.page, s.keptTo = nextPage(s.page, recs), floor
	n := 0
	for n < len(recs) && recs[n].Seq <= floor {
		n++
	}
	if n > 0 && n == len(recs) {
		s.at = recs[n-1].Seq
	} else { // the others have their trace
		s.at = floor
		s.follow()
	}
	return recs[:n], true, nil
}

// nextPage sizes the next page of a private read so that it is about a quarter
// of pageBytes, whatever the records' sizes.
func nextPage(page int, recs []chunk.Record) int {
	_, size := sizeOf(recs)
	switch {
	case size > pageBytes:
		return max(page/4, 1)
	case size < pageBytes/8 && len(recs) == page:
		return min(page*4, pageRecords)
	}
	return page
}

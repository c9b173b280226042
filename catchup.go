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
	r     *Reader
	at    uint64
	upTo  uint64 // the last sequence to read; 0: to the head
	lossy bool   // a trim overtook it: trace is missing that it should have read
	saved int64  // about what the saved fold takes in memory that comes before it
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
	known, head, era := t.known, t.head, t.era
	t.mu.Unlock()
	if !known {
		return nil, ErrNotFound.With(g.session, nil)
	}
	if after > head.Seq || upTo > head.Seq {
		return nil, ErrCursorAhead.With(g.session, nil)
	}
	if after == 0 {
		after = head.Floor
	}
	r := g.Reader(ReadOptions{Follow: true})
	r.after, r.incarnation, r.era, r.checked, r.tells = after, head.Incarnation, era, true, false
	return &source{r: r, at: after, upTo: upTo}, nil
}

// next returns the next records. Without records and without an error, the source is at
// its end or at the head. If the log was trimmed behind its back, it goes on with kept
// records.
func (s *source) next(ctx context.Context) ([]chunk.Record, error) {
	for s.upTo == 0 || s.at < s.upTo {
		recs, err := s.r.poll(ctx)
		s.at = s.r.after
		if errors.Is(err, ErrTrimmed) && !s.r.remains {
			s.r.err, s.r.remains, s.lossy = nil, true, true
			err = s.r.g.tail.refresh(ctx)
		} else if err == nil && recs == nil {
			return nil, nil
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

// nextPage sizes the next page of a private read so that it is about a quarter
// of MaxReadBytes, whatever the records' sizes.
func nextPage(page int, recs []chunk.Record) int {
	_, size := sizeOf(recs)
	switch {
	case size > MaxReadBytes:
		return max(page/4, 1)
	case size < MaxReadBytes/8 && len(recs) == page:
		return min(page*4, pageRecords)
	}
	return page
}

package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// RecordsOptions select a page of a session's records.
type RecordsOptions struct {
	After uint64 // records with a larger sequence
	Limit int    // 0: 200; at most 1000
	// Kept leaves trace out, which most records of a session are.
	Kept bool
	// Frames adds the frames of a wire to each record. It excludes Kept.
	Frames *wire.Profile
}

// RecordsPage is a page of a session's records, of a child those of the child and of
// the agents below it. Below TraceFloor it has the kept records only.
type RecordsPage struct {
	Records     []StoredRecord `json:"records"`
	Head        uint64         `json:"head"` // the log's last record
	TraceFloor  uint64         `json:"traceFloor"`
	Floor       uint64         `json:"floor"`
	Incarnation uint64         `json:"incarnation"`
	Next        uint64         `json:"next"` // After of the next page
	HasMore     bool           `json:"hasMore"`
}

// StoredRecord is a record as it is stored.
type StoredRecord struct {
	Sequence uint64          `json:"sequence"`
	Time     int64           `json:"time"`  // Unix milliseconds
	Class    string          `json:"class"` // kept or trace
	Chunk    json.RawMessage `json:"chunk"`
	// Frames are what the wire sends for the record, each a whole event without its id.
	// nil: the trace that its turn's frames depend on is gone.
	Frames []string `json:"frames,omitzero"`
}

// Records returns a page of a session's records. Errors: [spool.ErrNotFound],
// [spool.ErrCursorAhead] beyond the head, [spool.ErrTrimmed] where even kept records are
// gone, [chunk.ErrInvalid], and the store's.
func Records(ctx context.Context, d *Deps, session string, o RecordsOptions) (*RecordsPage, error) {
	if err := CheckPage(0, o.Limit); err != nil {
		return nil, err
	}
	if o.Kept && o.Frames != nil {
		return nil, chunk.ErrInvalid.Because("frames depend on all records of their turn: ask for frames or for kept records")
	}
	g, err := d.Visit(ctx, session)
	if err != nil {
		return nil, err
	}
	if o.After > g.At.Seq {
		return nil, spool.ErrCursorAhead.With(session, nil)
	}
	limit := min(cmp.Or(o.Limit, 200), 1000)
	p := &pager{g: g, store: d.Logs.Store(), kept: o.Kept}
	page := &RecordsPage{Records: []StoredRecord{}, Head: g.At.Seq, TraceFloor: g.At.TraceFloor, Floor: g.At.Floor, Incarnation: g.At.Incarnation, Next: o.After}
	for len(page.Records) < limit {
		recs, err := p.read(ctx, page.Next, limit-len(page.Records))
		if err != nil {
			return nil, err
		}
		if len(recs) == 0 {
			break
		}
		for _, r := range recs {
			if page.Next = r.Seq; g.shows(&r) {
				page.Records = append(page.Records, StoredRecord{Sequence: r.Seq, Time: r.Time, Class: r.Class.String(), Chunk: r.Data})
			}
		}
	}
	page.HasMore = len(page.Records) == limit && page.Next < g.At.Seq
	if o.Frames != nil && len(page.Records) > 0 {
		err = p.frames(ctx, o.Frames, page.Records)
	}
	return page, err
}

// shows reports whether a record is the agent's, or that of an agent below it.
func (s Session) shows(r *chunk.Record) bool {
	return !s.Child() || r.Agent == s.ID || strings.HasPrefix(r.Agent, s.ID+".")
}

// pager reads the records of one log, up to the request's head.
type pager struct {
	g     Session
	store spool.Store
	kept  bool
}

// read returns some of the records after a sequence: at most limit, and none at the head.
func (p *pager) read(ctx context.Context, after uint64, limit int) ([]chunk.Record, error) {
	if after >= p.g.At.Seq {
		return nil, nil
	}
	remains := after < p.g.At.TraceFloor
	var recs []chunk.Record
	var h spool.Head
	var err error
	if p.kept || remains {
		recs, h, err = p.store.ReadKept(ctx, p.g.Session(), spool.KeptQuery{After: max(after, p.g.At.Floor), Max: limit})
	} else {
		recs, h, err = p.store.Read(ctx, p.g.Session(), after, limit)
	}
	if err == nil && h.Incarnation != p.g.At.Incarnation {
		err = spool.ErrCursorAhead
	}
	if err != nil {
		return nil, err
	}
	last := p.g.At.Seq
	if remains && !p.kept {
		last = p.g.At.TraceFloor // behind it, all records
	}
	n := 0
	for n < len(recs) && recs[n].Seq <= last {
		n++
	}
	if n == 0 && last < p.g.At.Seq {
		return p.read(ctx, last, limit)
	}
	return recs[:n], nil
}

// frames adds a wire's frames to the records of a page.
func (p *pager) frames(ctx context.Context, as *wire.Profile, page []StoredRecord) error {
	at := make(map[uint64]*StoredRecord, len(page))
	for i := range page {
		at[page[i].Sequence] = &page[i]
		if page[i].Sequence > p.g.At.TraceFloor {
			page[i].Frames = []string{} // records outside of turns have none
		}
	}
	first, last := page[0].Sequence, page[len(page)-1].Sequence
	if as.Log != nil {
		return p.project(ctx, as.Projector(p.g.subject(nil)), max(first-1, p.g.At.TraceFloor), last, at)
	}
	turns, err := p.turns(ctx, first, last)
	if err != nil {
		return err
	}
	for _, t := range turns {
		if t.after < p.g.At.TraceFloor {
			for seq := t.after + 1; seq <= t.ended; seq++ {
				if r := at[seq]; r != nil {
					r.Frames = nil
				}
			}
		} else if err := p.project(ctx, as.Projector(p.g.subject(&t.Turn)), t.after, min(t.until, last), at); err != nil {
			return err
		}
	}
	return nil
}

// shownTurn is a turn and where its streams show it.
type shownTurn struct {
	fold.Turn        // its id only
	after     uint64 // from the record after this one
	ended     uint64 // to the end of its last run
	until     uint64 // and on until the next turn's first run
}

// turns returns the turns that show some of the records between two.
func (p *pager) turns(ctx context.Context, first, last uint64) (turns []shownTurn, err error) {
	err = p.g.View(ctx, func(f *fold.Fold) error {
		for i, t := range f.Turns {
			s := shownTurn{Turn: fold.Turn{ID: t.ID}, after: t.Start(), until: p.g.At.Seq}
			if i+1 < len(f.Turns) && len(f.Turns[i+1].Runs) > 0 {
				s.until = f.Turns[i+1].Runs[0].Start - 1
			}
			if s.ended = s.until; len(t.Runs) > 0 && t.LastRun().End > 0 {
				s.ended = t.LastRun().End
			}
			if s.after < last && s.until >= first {
				turns = append(turns, s)
			}
		}
		return nil
	})
	return turns, err
}

// project adds the frames of one projector, which is given the records between two sequences.
func (p *pager) project(ctx context.Context, proj spool.Projector, after, last uint64, at map[uint64]*StoredRecord) error {
	var frames []spool.Frame
	for after < last {
		recs, err := p.read(ctx, after, 0)
		if err != nil || len(recs) == 0 {
			return err
		}
		for _, r := range recs {
			if after = r.Seq; after > last {
				return nil
			}
			if frames, err = proj.Apply(frames[:0], r); err != nil {
				return err
			}
			if stored := at[r.Seq]; stored != nil {
				for _, f := range frames {
					stored.Frames = append(stored.Frames, string(f.Data))
				}
			}
		}
	}
	return nil
}

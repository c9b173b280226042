package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/blobref"
)

// The errors of copies, beside those of stores.
var (
	// ErrDamaged says that something is not what its hash says: a copy, a large value or a
	// file.
	ErrDamaged = &chunk.Error{Code: "damaged", Message: "the session is damaged"}
	// ErrChanged says that a session was trimmed, or deleted and made again, while it was
	// exported.
	ErrChanged = &chunk.Error{Code: "source_changed", Message: "the session was trimmed or deleted while it was exported", Hint: "export it again"}
)

// source is where a session is copied from. Nothing is ever written to it.
type source interface {
	// look says what the session is now; [spool.ErrNotFound] if nobody may see it.
	look(ctx context.Context) (spool.SessionInfo, error)
	// next returns a page of the records after one: up to h's trace floor the kept ones, then
	// all. It gives put the large values that they refer to, each at least once.
	next(ctx context.Context, h spool.Head, after uint64, put putter) (page, error)
	// last returns the last kept record up to a sequence: trace may be gone in the copy. If
	// there is none, the record is zero.
	last(ctx context.Context, seq uint64) (chunk.Record, error)
	// fold returns the state that the records up to the floor made, or [spool.ErrNotFound].
	fold(ctx context.Context, h spool.Head, put putter) (spool.SavedFold, error)
}

// putter takes a large value whose hash is right.
type putter func(hash string, data []byte) error

func nowhere(string, []byte) error { return nil }

// page is some records of a source.
type page struct {
	recs   []chunk.Record
	values int        // how many references of theirs have a value
	at     uint64     // all records up to this one have been read
	head   spool.Head // of the source when it was read
}

// stored is a session in a store.
type stored struct {
	session string
	reads   interface {
		Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error)
		ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error)
	}
	rows interface {
		Session(ctx context.Context, session string) (spool.SessionInfo, error)
	}
	blobs interface { // nil: it has none
		GetBlob(ctx context.Context, session, hash string) ([]byte, error)
	}
	folds interface { // nil: it has none
		LoadFold(ctx context.Context, session, name string) (spool.SavedFold, error)
	}
	put map[string]bool // the hashes that were met: whether there is a value
}

// storedIn returns a session of a store; [spool.ErrUnsupported] if it cannot be copied.
func storedIn(s spool.Store, session string) (*stored, error) {
	f := &stored{session: session, reads: s}
	rows, ok := s.(spool.Lister)
	if !ok {
		return nil, spool.ErrUnsupported.With(session, nil)
	}
	f.rows = rows
	if b, ok := s.(spool.BlobStore); ok {
		f.blobs = b
	}
	if b, ok := s.(spool.FoldStore); ok {
		f.folds = b
	}
	return f, nil
}

func (f *stored) look(ctx context.Context) (spool.SessionInfo, error) {
	info, err := f.rows.Session(ctx, f.session)
	if err == nil && info.Head.Hidden {
		err = spool.ErrNotFound.With(f.session, nil)
	}
	return info, err
}

func (f *stored) next(ctx context.Context, h spool.Head, after uint64, put putter) (p page, err error) {
	if after >= h.TraceFloor {
		p.recs, p.head, err = f.reads.Read(ctx, f.session, after, 0)
		if p.at = after; len(p.recs) > 0 {
			p.at = p.recs[len(p.recs)-1].Seq
		}
	} else {
		p.recs, p.head, err = f.reads.ReadKept(ctx, f.session, spool.KeptQuery{After: max(after, h.Floor)})
		n := 0
		for n < len(p.recs) && p.recs[n].Seq <= h.TraceFloor {
			n++
		}
		if p.at = h.TraceFloor; n > 0 && n == len(p.recs) {
			p.at = p.recs[n-1].Seq // others may follow
		}
		p.recs = p.recs[:n]
	}
	for i := 0; i < len(p.recs) && err == nil; i++ {
		var n int
		n, err = f.values(ctx, p.recs[i].Data, put)
		p.values += n
	}
	return p, err
}

// values puts the large values that a text refers to, and counts them.
func (f *stored) values(ctx context.Context, text []byte, put putter) (n int, err error) {
	if f.blobs == nil {
		return 0, nil
	}
	for _, hash := range blobref.In(text) {
		there, met := f.put[hash]
		if !met {
			data, err := f.blobs.GetBlob(ctx, f.session, hash)
			switch {
			case errors.Is(err, spool.ErrNotFound): // it only looks like a reference
			case err != nil:
				return n, err
			case blobref.Hash(data) != hash:
				return n, ErrDamaged.Because("a large value is not what its hash says: "+hash).With(f.session, nil)
			default:
				there = true
				if err := put(hash, data); err != nil {
					return n, err
				}
			}
			if f.put == nil || len(f.put) > 1000 {
				f.put = map[string]bool{}
			}
			f.put[hash] = there
		}
		if there {
			n++
		}
	}
	return n, nil
}

func (f *stored) last(ctx context.Context, seq uint64) (chunk.Record, error) {
	recs, _, err := f.reads.ReadKept(ctx, f.session, spool.KeptQuery{Backwards: true, Before: seq + 1, Max: 1})
	if err != nil || len(recs) == 0 {
		return chunk.Record{}, err
	}
	return recs[0], nil
}

// fold returns the saved fold if records that it stands for are gone. Any other is a cache,
// which is left behind: it is made again from the records.
func (f *stored) fold(ctx context.Context, h spool.Head, put putter) (spool.SavedFold, error) {
	none := spool.ErrNotFound.With(f.session, nil)
	if h.Floor == 0 || f.folds == nil {
		return spool.SavedFold{}, none
	}
	saved, err := f.folds.LoadFold(ctx, f.session, spool.FoldName)
	if err == nil && (saved.Incarnation != h.Incarnation || saved.Seq < h.Floor || saved.Seq > h.Seq) {
		err = none
	}
	if err == nil {
		_, err = f.values(ctx, saved.Data, put)
	}
	return saved, err
}

// tally is what two logs have in common if they are the same: the number of their records,
// of the references to large values among them, and a hash over all that is in the records.
// Large values are named by their own hash.
type tally struct {
	records, values uint64
	sum             [sha256.Size]byte
}

// teller makes a tally.
type teller struct {
	tally
	hash hash.Hash
	line []byte
}

func newTeller() *teller { return &teller{hash: sha256.New()} }

func (t *teller) add(p page) {
	t.values += uint64(p.values)
	t.records += uint64(len(p.recs))
	for i := range p.recs {
		r := &p.recs[i]
		b := binary.AppendUvarint(t.line[:0], r.Seq)
		b = binary.AppendVarint(b, r.Time)
		b = append(b, byte(r.Class))
		for _, text := range [...]string{string(r.Type), r.Agent} {
			b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
		}
		b = binary.AppendUvarint(b, uint64(len(r.Data)))
		t.hash.Write(b)
		t.hash.Write(r.Data)
		t.line = b
	}
}

func (t *teller) total() tally {
	t.hash.Sum(t.sum[:0])
	return t.tally
}

// tell reads a log from its floor up to a sequence.
func tell(ctx context.Context, from source, h spool.Head) (tally, error) {
	t := newTeller()
	for at := h.Floor; at < h.Seq; {
		p, err := from.next(ctx, h, at, nowhere)
		if err != nil {
			return tally{}, err
		}
		if p.at == at {
			return t.total(), nil // it ends early, which the count shows
		}
		at = p.at
		t.add(p)
	}
	return t.total(), nil
}

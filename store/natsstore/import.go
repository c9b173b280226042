package natsstore

import (
	"context"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

// Import implements [spool.Importer].
func (s *Store) Import(ctx context.Context, i spool.Import) (spool.Head, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, err
	}
	if err := contract.CheckImport(&i); err != nil {
		return spool.Head{}, err
	}
	for {
		h, again, err := s.take(ctx, &i)
		if !again {
			return h, err
		}
	}
}

// take stores a part. It has to begin again if the session changes while it is found out what
// the floors of the part remove.
func (s *Store) take(ctx context.Context, i *spool.Import) (h spool.Head, again bool, err error) {
	id := i.Info.Session
	was, at, _, err := s.load(ctx, id)
	if err != nil {
		return h, false, err
	}
	var gone removal
	if was.Exists && i.After != 0 && contract.AdmitImport(&was.Head, i) == nil {
		to := was.Head
		to.TraceFloor, to.Floor = max(to.TraceFloor, i.Info.Head.TraceFloor), max(to.Floor, i.Info.Head.Floor)
		if gone, err = s.below(ctx, was, at, to); err != nil {
			return h, false, s.failed(ctx, id, err)
		}
	}
	st, _, err := s.update(ctx, id, func(st *state, seq uint64, now int64) (*write, error) {
		again = seq != at
		switch {
		case again:
			return nil, nil
		case !st.Exists:
			return nil, spool.ErrSuperseded.With(id, nil)
		}
		if err := contract.AdmitImport(&st.Head, i); err != nil {
			return nil, err
		}
		st.renew(now)
		if i.After == 0 {
			st.Base, st.Marks, st.Bytes = seq, nil, 0
		}
		contract.Imported(&st.Head, &st.Row, &st.Command, i)
		st.Bytes -= gone.bytes
		for _, r := range i.Records {
			st.Bytes += int64(len(r.Data))
		}
		if i.Done {
			st.Updated = i.Info.Updated
			st.release()
			st.writers = nil
		}
		w := &write{kind: kindKept, records: i.Records}
		switch {
		case len(i.Records) == 0:
			w.kind = kindMeta
		case !slices.ContainsFunc(i.Records, func(r chunk.Record) bool { return r.Class == chunk.Kept }):
			w.kind = kindShown
		}
		return w, nil
	})
	if err != nil {
		return h, false, err
	}
	return st.Head, again, nil
}

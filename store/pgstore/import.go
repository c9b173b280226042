package pgstore

import (
	"context"

	"github.com/spool-run/spool"
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
	if i.After == 0 {
		if err := s.startOver(ctx, &i); err != nil {
			return spool.Head{}, err
		}
	}
	var out spool.Head
	if err := s.change(ctx, need{session: i.Info.Session}, func(t *tx) error {
		st, err := t.importing(&i)
		if err != nil {
			return err
		}
		t.take(st, &i)
		out = st.head
		return nil
	}); err != nil {
		return spool.Head{}, err
	}
	return out, s.free(ctx, i.Info.Session)
}

// importing returns the row of the session that takes a part, and renews its lease.
func (t *tx) importing(i *spool.Import) (*state, error) {
	st := t.states[i.Info.Session]
	if st == nil || !st.alive {
		return nil, spool.ErrSuperseded.With(i.Info.Session, nil)
	}
	if err := contract.AdmitImport(&st.head, i); err != nil {
		return nil, err
	}
	st.renew(t.now)
	t.touch(st)
	return st, nil
}

// startOver removes the records of an earlier import, in slices. The first commit says that
// there are none, so that a later one begins again if this is cut short.
func (s *Store) startOver(ctx context.Context, i *spool.Import) error {
	for left := true; left; {
		if err := s.change(ctx, need{session: i.Info.Session}, func(t *tx) error {
			st, err := t.importing(i)
			if err != nil {
				return err
			}
			st.head.Seq, st.head.TraceFloor, st.head.Floor, st.traceTrimmed, st.trimmed = 0, 0, 0, 0, 0
			n, err := t.remove(st, "DELETE FROM record WHERE sid = $1 AND seq IN (SELECT seq FROM record WHERE sid = $1 LIMIT $2)", st.sid, slice)
			left = n > 0
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// take stores a part's records under their sequences.
func (t *tx) take(st *state, i *spool.Import) {
	contract.Imported(&st.head, &st.row, &st.command, i)
	if i.After == 0 { // there is nothing below the floors
		st.traceTrimmed, st.trimmed = st.head.TraceFloor, st.head.Floor
	}
	for n := range i.Records {
		t.add(st, &i.Records[n])
	}
	if i.Done {
		st.updated = i.Info.Updated
		st.release()
		st.forgetWriters()
	}
}

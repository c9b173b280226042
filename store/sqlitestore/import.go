package sqlitestore

import (
	"context"
	"database/sql/driver"

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
	out := new(spool.Head)
	if err := s.write(ctx, len(i.Records)+1, func(t *tx) error {
		st, err := t.importing(&i)
		if err != nil {
			return err
		}
		if err := t.take(st, &i); err != nil {
			return err
		}
		*out = st.head
		return nil
	}); err != nil {
		return spool.Head{}, err
	}
	return *out, s.free(ctx, i.Info.Session)
}

// importing returns the row of the session that takes a part, and renews its lease.
func (t *tx) importing(i *spool.Import) (*state, error) {
	st, err := t.session(i.Info.Session)
	if err != nil {
		return nil, err
	}
	if !st.alive {
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
		if err := s.write(ctx, slice, func(t *tx) error {
			st, err := t.importing(i)
			if err != nil {
				return err
			}
			st.head.Seq, st.head.TraceFloor, st.head.Floor, st.traceTrimmed, st.trimmed = 0, 0, 0, 0, 0
			if err := t.flushRecords(); err != nil {
				return err
			}
			left = false
			return t.c.query(func(row []driver.Value) error {
				n, _ := row[0].(int64)
				st.bytes -= n
				left = true
				return nil
			}, "DELETE FROM record WHERE rowid IN (SELECT rowid FROM record WHERE sid = +? LIMIT +?) RETURNING octet_length(data)", st.sid, int64(slice))
		}); err != nil {
			return err
		}
	}
	return nil
}

// take stores a part's records under their sequences.
func (t *tx) take(st *state, i *spool.Import) error {
	contract.Imported(&st.head, &st.row, &st.command, i)
	if i.After == 0 { // there is nothing below the floors
		st.traceTrimmed, st.trimmed = st.head.TraceFloor, st.head.Floor
	}
	for n := range i.Records {
		st.bytes += int64(len(i.Records[n].Data))
		if err := t.add(st.sid, &i.Records[n]); err != nil {
			return err
		}
	}
	if i.Done {
		st.updated = i.Info.Updated
		st.release()
		st.writers = map[string]*written{}
		return t.c.exec("DELETE FROM writer WHERE sid = +?", st.sid)
	}
	return nil
}

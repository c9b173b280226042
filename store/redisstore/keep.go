package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/contract"
)

// Sessions implements [spool.Lister].
func (s *Store) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	if err := s.usable(ctx); err != nil {
		return spool.SessionPage{}, err
	}
	after, err := contract.ParsePlace(q.After)
	if err != nil {
		return spool.SessionPage{}, err
	}
	most := q.Max
	if most <= 0 {
		most = 100
	}
	at := ""
	if q.After != "" {
		at = strconv.FormatInt(after.Updated, 10)
	}
	idle := int64(0)
	if q.Idle > 0 {
		idle = contract.TTL(q.Idle)
	}
	var found []spool.SessionInfo
	page := spool.SessionPage{}
	for b := range s.tags {
		r, err := s.run(ctx, b, listScript, "", flag(q.Hidden), q.Principal, string(q.Status), strconv.FormatInt(idle, 10), at, after.Session, strconv.Itoa(most+1))
		if err != nil {
			return spool.SessionPage{}, err
		}
		page.Now = max(page.Now, r.milli(0))
		for i := 1; i+1 < len(r); i += 2 {
			found = append(found, r.row(i+1, r.text(i)).info)
		}
	}
	slices.SortFunc(found, func(a, b spool.SessionInfo) int {
		return cmp.Or(cmp.Compare(b.Updated, a.Updated), cmp.Compare(a.Session, b.Session))
	})
	if page.Sessions = found; len(found) > most {
		page.Sessions = slices.Clip(found[:most])
		page.NextAfter = contract.After(page.Sessions[most-1])
	}
	return page, nil
}

// Usage implements [spool.Measurer].
func (s *Store) Usage(ctx context.Context, principal string) (spool.Usage, error) {
	var u spool.Usage
	for b := range s.tags {
		for from := int64(0); ; from += 1000 {
			r, err := s.run(ctx, b, usageScript, "", strconv.FormatInt(from, 10), principal)
			if err != nil {
				return spool.Usage{}, err
			}
			n, oldest := r.milli(1), r.milli(4)
			u.Now, u.Sessions, u.Bytes, u.Largest = max(u.Now, r.milli(0)), u.Sessions+n, u.Bytes+r.milli(2), max(u.Largest, r.milli(3))
			if u.Oldest == 0 || oldest != 0 && oldest < u.Oldest {
				u.Oldest = oldest
			}
			if n < 1000 {
				break
			}
		}
	}
	return u, nil
}

// Trim implements [spool.Trimmer]. What lies below the floors is removed in slices.
func (s *Store) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	b := s.bucket(session)
	if _, err := s.run(ctx, b, trimScript, session, session, decimal(min(traceFloor, never)), decimal(min(floor, never))); err != nil {
		return err
	}
	return s.free(ctx, b, session)
}

func (s *Store) free(ctx context.Context, bucket int, session string) error {
	for {
		r, err := s.run(ctx, bucket, freeScript, session, session)
		if err != nil || r.text(0) == "0" {
			return err
		}
	}
}

// Delete implements [spool.Trimmer].
func (s *Store) Delete(ctx context.Context, session string) error { return s.remove(ctx, session, "") }

// Expire implements [spool.Expirer].
func (s *Store) Expire(ctx context.Context, session string, idle time.Duration) error {
	return s.remove(ctx, session, strconv.FormatInt(max(contract.TTL(idle), 0), 10))
}

func (s *Store) remove(ctx context.Context, session, idle string) error {
	_, err := s.run(ctx, s.bucket(session), deleteScript, session, session, idle)
	return err
}

// SaveFold implements [spool.FoldStore].
func (s *Store) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) error {
	if err := contract.CheckFold(session, name, &f); err != nil {
		return err
	}
	value := binary.AppendUvarint(nil, uint64(f.Version))
	value = binary.AppendUvarint(value, f.Incarnation)
	value = binary.AppendUvarint(value, f.Seq)
	return s.put(ctx, session, "f", name, append(value, f.Data...))
}

// LoadFold implements [spool.FoldStore].
func (s *Store) LoadFold(ctx context.Context, session, name string) (spool.SavedFold, error) {
	value, exists, err := s.get(ctx, session, "f", name)
	if err != nil {
		return spool.SavedFold{}, err
	}
	var n [3]uint64
	for i := range n {
		v, size := binary.Uvarint(value)
		if size <= 0 {
			missing := spool.ErrNotFound.With(session, nil)
			if exists {
				missing = spool.ErrNotFound.Because("there is no such saved fold").With(session, nil)
			}
			return spool.SavedFold{}, missing
		}
		n[i], value = v, value[size:]
	}
	return spool.SavedFold{Version: int(n[0]), Incarnation: n[1], Seq: n[2], Data: value}, nil
}

// PutBlob implements [spool.BlobStore].
func (s *Store) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	if err := contract.CheckBlob(session, hash, data); err != nil {
		return err
	}
	return s.put(ctx, session, "b", hash, data)
}

// GetBlob implements [spool.BlobStore].
func (s *Store) GetBlob(ctx context.Context, session, hash string) ([]byte, error) {
	value, _, err := s.get(ctx, session, "b", hash)
	if err == nil && value == nil {
		err = spool.ErrNotFound.Because("there is no such blob").With(session, nil)
	}
	return value, err
}

func (s *Store) put(ctx context.Context, session, kind, name string, value []byte) error {
	_, err := s.run(ctx, s.bucket(session), keepScript, session, session, kind, name, string(value))
	return err
}

// get returns what is kept under a name, nil if nothing is, and whether the session exists.
func (s *Store) get(ctx context.Context, session, kind, name string) (value []byte, exists bool, err error) {
	r, err := s.run(ctx, s.bucket(session), keptScript, session, session, kind, name)
	if err != nil || len(r) < 2 || r[1].IsNil() {
		return nil, r.text(0) == "1", err
	}
	value, err = r[1].AsBytes()
	if value == nil {
		value = []byte{}
	}
	return value, r.text(0) == "1", err
}

// Import implements [spool.Importer].
func (s *Store) Import(ctx context.Context, i spool.Import) (spool.Head, error) {
	if err := contract.CheckImport(&i); err != nil {
		return spool.Head{}, err
	}
	h, session := &i.Info.Head, i.Info.Session
	args := []string{session, decimal(i.Epoch), decimal(i.After), flag(i.Done), decimal(h.Seq), decimal(h.Incarnation), decimal(h.Epoch),
		decimal(h.TraceFloor), decimal(h.Floor), string(h.Status), strconv.FormatInt(h.Due, 10), flag(h.Pending),
		i.Info.Principal, i.Info.Agent, i.Info.Title, strconv.FormatInt(i.Info.Updated, 10)}
	for n := range i.Records {
		r := &i.Records[n]
		args = append(args, classKey(r.Class), header(r), string(r.Data), decimal(r.Seq))
	}
	b := s.bucket(session)
	r, err := s.run(ctx, b, importScript, session, args...)
	if err != nil {
		return spool.Head{}, err
	}
	now := r.row(0, session)
	s.hub.Apply(session, now.state(nil))
	if i.After != 0 && h.TraceFloor > 0 {
		err = s.free(ctx, b, session)
	}
	return now.info.Head, err
}

var _ interface {
	spool.Store
	spool.Leaser
	spool.Lister
	spool.Trimmer
	spool.Expirer
	spool.Measurer
	spool.FoldStore
	spool.BlobStore
	spool.Importer
	spool.Prober
	spool.Raiser
} = (*Store)(nil)

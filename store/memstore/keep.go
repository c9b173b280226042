package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
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
	now := s.nowMilli()
	since := contract.IdleSince(q.Idle, now)
	var found []spool.SessionInfo
	for _, ss := range s.places() {
		ss.mu.Lock()
		i := ss.info()
		ok := ss.exists && contract.Wants(&q, &i) && i.Updated <= since
		ss.mu.Unlock()
		if ok && (q.After == "" || after.Before(i)) {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b spool.SessionInfo) int {
		return cmp.Or(cmp.Compare(b.Updated, a.Updated), cmp.Compare(a.Session, b.Session))
	})
	limit := q.Max
	if limit <= 0 {
		limit = 100
	}
	page := spool.SessionPage{Sessions: found, Now: now}
	if len(found) > limit {
		page.Sessions = slices.Clip(found[:limit])
		page.NextAfter = contract.After(page.Sessions[limit-1])
	}
	return page, nil
}

// Session implements [spool.Lister].
func (s *Store) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	if err := s.usable(ctx); err != nil {
		return spool.SessionInfo{}, err
	}
	ss, err := s.existing(session)
	if err != nil {
		return spool.SessionInfo{}, err
	}
	defer ss.mu.Unlock()
	return ss.info(), nil
}

// Usage implements [spool.Measurer].
func (s *Store) Usage(ctx context.Context, principal string) (spool.Usage, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Usage{}, err
	}
	u := spool.Usage{Now: s.nowMilli()}
	for _, ss := range s.places() {
		ss.mu.Lock()
		if ss.exists && !ss.head.Hidden && (principal == "" || ss.head.Principal == principal) {
			if u.Sessions++; u.Oldest == 0 || ss.updated < u.Oldest {
				u.Oldest = ss.updated
			}
			u.Bytes += ss.bytes
			u.Largest = max(u.Largest, ss.bytes)
		}
		ss.mu.Unlock()
	}
	return u, nil
}

// places are the places of all sessions.
func (s *Store) places() []*session {
	s.mu.RLock()
	defer s.mu.RUnlock()
	places := make([]*session, 0, len(s.sessions))
	for _, ss := range s.sessions {
		places = append(places, ss)
	}
	return places
}

func (ss *session) info() spool.SessionInfo {
	return spool.SessionInfo{Session: ss.id, Row: ss.row, Head: ss.head, Updated: ss.updated, Bytes: ss.bytes}
}

// existing returns a session that exists, locked.
func (s *Store) existing(id string) (*session, error) {
	ss := s.find(id)
	if ss == nil {
		return nil, spool.ErrNotFound.With(id, nil)
	}
	if !ss.exists {
		ss.mu.Unlock()
		return nil, spool.ErrNotFound.With(id, nil)
	}
	return ss, nil
}

// Trim implements [spool.Trimmer].
func (s *Store) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	ss, err := s.existing(session)
	if err != nil {
		return err
	}
	defer ss.mu.Unlock()
	ss.trim(traceFloor, floor)
	return nil
}

// Delete implements [spool.Trimmer].
func (s *Store) Delete(ctx context.Context, id string) error {
	return s.remove(ctx, id, func(*session) bool { return true })
}

// Expire implements [spool.Expirer].
func (s *Store) Expire(ctx context.Context, id string, idle time.Duration) error {
	return s.remove(ctx, id, func(ss *session) bool { return contract.Expires(idle, ss.updated, ss.lease.expires, s.nowMilli()) })
}

// remove deletes a session if it may.
func (s *Store) remove(ctx context.Context, id string, may func(*session) bool) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	ss, err := s.existing(id)
	if err != nil {
		return err
	}
	defer ss.mu.Unlock()
	if !may(ss) {
		return spool.ErrBusy.With(id, nil)
	}
	s.claims.replace(ss.id, ss.lease.claim, "")
	ss.remove()
	s.due.update(ss)
	return nil
}

// SaveFold implements [spool.FoldStore].
func (s *Store) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := contract.CheckFold(session, name, &f); err != nil {
		return err
	}
	ss, err := s.existing(session)
	if err != nil {
		return err
	}
	defer ss.mu.Unlock()
	if ss.folds == nil {
		ss.folds = map[string]spool.SavedFold{}
	}
	f.Data = bytes.Clone(f.Data)
	ss.folds[name] = f
	return nil
}

// LoadFold implements [spool.FoldStore].
func (s *Store) LoadFold(ctx context.Context, session, name string) (spool.SavedFold, error) {
	if err := s.usable(ctx); err != nil {
		return spool.SavedFold{}, err
	}
	ss, err := s.existing(session)
	if err != nil {
		return spool.SavedFold{}, err
	}
	defer ss.mu.Unlock()
	f, ok := ss.folds[name]
	if !ok {
		return spool.SavedFold{}, spool.ErrNotFound.Because("there is no such saved fold").With(session, nil)
	}
	return f, nil
}

// PutBlob implements [spool.BlobStore].
func (s *Store) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := contract.CheckBlob(session, hash, data); err != nil {
		return err
	}
	ss, err := s.place(session)
	if err != nil {
		return err
	}
	defer ss.mu.Unlock()
	if ss.blobs == nil {
		ss.blobs = map[string][]byte{}
	}
	if _, ok := ss.blobs[hash]; !ok {
		ss.bytes += int64(len(data))
		ss.blobs[hash] = bytes.Clone(data)
	}
	return nil
}

// GetBlob implements [spool.BlobStore].
func (s *Store) GetBlob(ctx context.Context, session, hash string) ([]byte, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if ss := s.find(session); ss != nil {
		defer ss.mu.Unlock()
		if data, ok := ss.blobs[hash]; ok {
			return data, nil
		}
	}
	return nil, spool.ErrNotFound.Because("there is no such blob").With(session, nil)
}

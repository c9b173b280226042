package memstore

import (
	"context"
	"maps"
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
	ss := s.find(i.Info.Session)
	if ss == nil {
		return spool.Head{}, spool.ErrSuperseded.With(i.Info.Session, nil)
	}
	defer ss.mu.Unlock()
	if !ss.exists {
		return spool.Head{}, spool.ErrSuperseded.With(i.Info.Session, nil)
	}
	if err := contract.AdmitImport(&ss.head, &i); err != nil {
		return spool.Head{}, err
	}
	ss.lease.renew(s.nowMilli())
	ss.take(&i)
	if i.Done {
		ss.updated = i.Info.Updated
		s.claims.replace(ss.id, ss.lease.claim, "")
		ss.lease, ss.writers = lease{}, nil
	}
	ss.changed()
	s.due.update(ss)
	return ss.head, nil
}

// take keeps a part's records under their sequences.
func (ss *session) take(i *spool.Import) {
	if i.After == 0 {
		ss.all, ss.kept, ss.bytes = nil, nil, 0
		for data := range maps.Values(ss.blobs) {
			ss.bytes += int64(len(data))
		}
	}
	was := ss.head
	contract.Imported(&ss.head, &ss.row, &ss.command, i)
	if i.After != 0 {
		ss.free(was)
	}
	for _, r := range i.Records {
		ss.bytes += int64(len(r.Data))
		if r.Seq > ss.head.TraceFloor {
			ss.all = append(ss.all, r)
		}
		if r.Class == chunk.Kept {
			ss.kept = append(ss.kept, r)
		}
	}
}

// free drops what lies below the floors. was is the head before they were raised. Both
// slices are copied, so that the memory is freed.
func (ss *session) free(was spool.Head) {
	if ss.head.TraceFloor == was.TraceFloor && ss.head.Floor == was.Floor {
		return
	}
	gone := min(ss.head.TraceFloor-was.TraceFloor, uint64(len(ss.all)))
	for _, r := range ss.all[:gone] {
		if r.Class != chunk.Kept {
			ss.bytes -= int64(len(r.Data))
		}
	}
	ss.all = slices.Clone(ss.all[gone:])
	below := search(ss.kept, ss.head.Floor+1)
	for _, r := range ss.kept[:below] {
		ss.bytes -= int64(len(r.Data))
	}
	ss.kept = slices.Clone(ss.kept[below:])
}

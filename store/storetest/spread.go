package storetest

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// instances is over how many instances a [spread] distributes its calls.
const instances = 3

// spread is a store whose calls go to several instances in turn: an instance is asked for
// what another one has written, an append is repeated at another one than the first time,
// and so on.
type spread struct {
	all  []Engine
	next atomic.Uint64
}

// spreadProber is a spread whose instances can be probed.
type spreadProber struct{ *spread }

// newSpread returns a store over s and more instances on the same data.
func (x *suite) newSpread(t testing.TB, s spool.Store) spool.Store {
	t.Helper()
	sp := &spread{}
	for i := range instances {
		if i > 0 {
			s = x.Another(t, sp.all[0])
		}
		e, ok := s.(Engine)
		if !ok {
			t.Fatalf("%T lacks a role that Options.Another needs", s)
		}
		sp.all = append(sp.all, e)
	}
	if _, ok := s.(spool.Prober); ok {
		return spreadProber{sp}
	}
	return sp
}

// first returns the instance that the driver's own functions are given.
func first(s spool.Store) spool.Store {
	switch s := s.(type) {
	case *spread:
		return s.all[0]
	case spreadProber:
		return s.all[0]
	}
	return s
}

// spreadOut makes the suite test several instances at once.
func (x *suite) spreadOut() {
	o, open := x.Options, x.open
	x.open = func(t testing.TB) spool.Store {
		t.Helper()
		return x.newSpread(t, open(t))
	}
	if o.Reopen != nil {
		x.Reopen = func(t testing.TB, s spool.Store) spool.Store {
			t.Helper()
			sp := spreadOf(s)
			for _, e := range sp.all[1:] {
				closeStore(t, e)
			}
			return x.newSpread(t, o.Reopen(t, sp.all[0]))
		}
	}
	if o.Advance != nil {
		x.Advance = func(s spool.Store, d time.Duration) { o.Advance(first(s), d) }
	}
	if o.Location != nil {
		x.Location = func(s spool.Store) string { return o.Location(first(s)) }
	}
	if o.Rewind != nil {
		x.Rewind = func(t testing.TB, s spool.Store) func() { return o.Rewind(t, first(s)) }
	}
	if o.Notify != nil {
		x.Notify = func(t testing.TB, s spool.Store, times int) func() { return o.Notify(t, first(s), times) }
	}
	if o.Break != nil {
		x.Break = func(t testing.TB, s spool.Store) (mend func()) {
			var mends []func()
			for _, e := range spreadOf(s).all {
				mends = append(mends, o.Break(t, e))
			}
			return func() {
				for _, mend := range mends {
					mend()
				}
			}
		}
	}
}

func spreadOf(s spool.Store) *spread {
	if p, ok := s.(spreadProber); ok {
		return p.spread
	}
	return s.(*spread)
}

// one returns the instance for the next call.
func (s *spread) one() Engine { return s.all[s.next.Add(1)%uint64(len(s.all))] }

func (s spreadProber) Probe(ctx context.Context) error { return s.one().(spool.Prober).Probe(ctx) }

func (s *spread) Close() error {
	var errs []error
	for _, e := range s.all {
		if c, ok := e.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

func (s *spread) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	return s.one().Append(ctx, a)
}

func (s *spread) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	return s.one().Read(ctx, session, after, max)
}

func (s *spread) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	return s.one().ReadKept(ctx, session, q)
}

func (s *spread) Head(ctx context.Context, session string) (spool.Head, error) {
	return s.one().Head(ctx, session)
}

func (s *spread) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	return s.one().Wait(ctx, session, seen)
}

func (s *spread) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	return s.one().Claim(ctx, c)
}

func (s *spread) Renew(ctx context.Context, l spool.Lease) error    { return s.one().Renew(ctx, l) }
func (s *spread) Release(ctx context.Context, l spool.Lease) error  { return s.one().Release(ctx, l) }
func (s *spread) AwaitDue(ctx context.Context, c spool.Claim) error { return s.one().AwaitDue(ctx, c) }
func (s *spread) Delete(ctx context.Context, session string) error {
	return s.one().Delete(ctx, session)
}

func (s *spread) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	return s.one().Sessions(ctx, q)
}

func (s *spread) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	return s.one().Session(ctx, session)
}

func (s *spread) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	return s.one().Trim(ctx, session, traceFloor, floor)
}

func (s *spread) Expire(ctx context.Context, session string, idle time.Duration) error {
	return s.one().Expire(ctx, session, idle)
}

func (s *spread) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) error {
	return s.one().SaveFold(ctx, session, name, f)
}

func (s *spread) LoadFold(ctx context.Context, session, name string) (spool.SavedFold, error) {
	return s.one().LoadFold(ctx, session, name)
}

func (s *spread) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	return s.one().PutBlob(ctx, session, hash, data)
}

func (s *spread) GetBlob(ctx context.Context, session, hash string) ([]byte, error) {
	return s.one().GetBlob(ctx, session, hash)
}

func (s *spread) Import(ctx context.Context, i spool.Import) (spool.Head, error) {
	return s.one().Import(ctx, i)
}

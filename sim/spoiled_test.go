package sim_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/store/storetest"
)

// unfenced takes the appends of owners that were superseded.
type unfenced struct{ storetest.Engine }

func (s *unfenced) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	res, err := s.Engine.Append(ctx, a)
	if !errors.Is(err, spool.ErrSuperseded) {
		return res, err
	}
	h, err := s.Head(ctx, a.Session)
	if err != nil {
		return spool.Appended{}, err
	}
	a.Epoch, a.Ordinal = h.Epoch, 0
	return s.Engine.Append(ctx, a)
}

// repeating stores some appends twice.
type repeating struct {
	storetest.Engine
	n atomic.Int64
}

func (s *repeating) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	res, err := s.Engine.Append(ctx, a)
	if err == nil && a.Epoch > 0 && s.n.Add(1)%50 == 0 {
		a.Ordinal = 0
		_, _ = s.Engine.Append(ctx, a)
	}
	return res, err
}

// losing acknowledges some appends that it does not store.
type losing struct {
	storetest.Engine
	n atomic.Int64
}

func (s *losing) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if a.Epoch == 0 || len(a.Records) == 0 || s.n.Add(1)%50 > 0 {
		return s.Engine.Append(ctx, a)
	}
	n := uint64(len(a.Records))
	a.Records = nil
	res, err := s.Engine.Append(ctx, a)
	res.First, res.Last = res.Head.Seq+1, res.Head.Seq+n
	res.Head.Seq += n
	return res, err
}

// hasty gives leases that end before their time.
type hasty struct{ storetest.Engine }

func (s *hasty) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	if c.TTL == 0 {
		c.TTL = spool.DefaultLeaseTTL
	}
	asked := c.TTL
	c.TTL = asked / 4
	l, err := s.Engine.Claim(ctx, c)
	l.TTL = asked
	return l, err
}

// skipping leaves out a record of some pages.
type skipping struct {
	storetest.Engine
	n atomic.Int64
}

func (s *skipping) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	recs, h, err := s.Engine.Read(ctx, session, after, max)
	if len(recs) > 2 && s.n.Add(1)%5 == 0 {
		recs = slices.Delete(recs, 1, 2)
	}
	return recs, h, err
}

// forgetful is a provider that has no answer any more when it is asked for the rest.
type forgetful struct{ *provider }

func (f *forgetful) Resume(context.Context, string) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		yield(nil, &model.Error{Code: model.CodeGone, Message: "it is gone"})
	}
}

// everyHundredth skips an event in a hundred.
func everyHundredth() func(string) bool {
	var n atomic.Int64
	return func(string) bool { return n.Add(1)%100 == 0 }
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: the store refuses appends under an old epoch.
var fenceChecks = []check{
	{"OldEpoch", func(t *testing.T, x *suite) {
		s := x.open(t)
		l1 := own(t, s, "s", "a")
		put(t, s, spool.Append{Session: "s", Epoch: l1.Epoch, Records: recs(chunk.Trace, "a", 2)})
		l2 := own(t, s, "s", "b")
		if l2.Epoch <= l1.Epoch || l2.Head.Seq != 2 || l2.Head.Epoch != l2.Epoch {
			t.Fatalf("claims %+v, then %+v", l1, l2)
		}
		for range 2 {
			_, err := s.Append(limit(t), spool.Append{Session: "s", Epoch: l1.Epoch, Writer: "w", Ordinal: 1, Records: recs(chunk.Trace, "late", 1)})
			wantErr(t, err, spool.ErrSuperseded)
		}
		_, err := s.Append(limit(t), spool.Append{Session: "s", Epoch: l1.Epoch, Row: spool.Row{Title: "late"}, Settle: &spool.Settle{}})
		wantErr(t, err, spool.ErrSuperseded)
		wantErr(t, leaser(t, s).Renew(limit(t), l1), spool.ErrSuperseded)
		put(t, s, spool.Append{Session: "s", Epoch: l2.Epoch, Records: recs(chunk.Trace, "b", 1)})
		wantTexts(t, log(t, s, "s", 0, 10), "a/0", "a/1", "b/0")
	}},
	{"EpochNobodyHas", func(t *testing.T, x *suite) {
		s := x.open(t)
		_, err := s.Append(limit(t), spool.Append{Session: "s", Epoch: 1, Records: recs(chunk.Trace, "x", 1)})
		wantErr(t, err, spool.ErrSuperseded)
		_, err = s.Head(limit(t), "s")
		wantErr(t, err, spool.ErrNotFound)
		l := own(t, s, "s", "a")
		_, err = s.Append(limit(t), spool.Append{Session: "s", Epoch: l.Epoch + 1, Records: recs(chunk.Trace, "x", 1)})
		wantErr(t, err, spool.ErrSuperseded)
	}},
	{"CommandsNeedNoLease", func(t *testing.T, x *suite) {
		s := x.open(t)
		own(t, s, "s", "a")
		if res := command(t, s, "s", "hello"); res.First != 1 {
			t.Fatalf("%+v", res)
		}
	}},
	{"TwoWriters", func(t *testing.T, x *suite) {
		s := x.open(t)
		// Each of two owners writes as fast as it can and takes the session
		// back whenever it lost it. In the log the epochs must never fall.
		const takeovers = 10
		var claims atomic.Int64
		parallel(2, func(i int) {
			owner := fmt.Sprint("owner", i)
			for claims.Add(1) <= takeovers {
				l, err := leaser(t, s).Claim(limit(t), spool.Claim{Owner: owner, Session: "s", Force: true})
				if err != nil {
					t.Error(err)
					return
				}
				for n := 0; ; n++ {
					_, err := s.Append(limit(t), spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: uint64(n + 1), Records: recs(chunk.Trace, fmt.Sprintf("%d-%d", l.Epoch, n), 2)})
					if errors.Is(err, spool.ErrSuperseded) {
						break
					}
					if err != nil {
						t.Error(err)
						return
					}
					if claims.Load() > takeovers && n > 5 || n > 200 {
						break
					}
				}
			}
		})
		var epoch, n, k, lastEpoch, lastN, lastK int
		for i, r := range log(t, s, "s", 0, 500) {
			if _, err := fmt.Sscanf(text(r), "%d-%d/%d", &epoch, &n, &k); err != nil {
				t.Fatal(err)
			}
			next := epoch == lastEpoch && (n == lastN && k == lastK+1 || n == lastN+1 && k == 0)
			if i > 0 && !next && (epoch <= lastEpoch || n != 0 || k != 0) {
				t.Fatalf("record %d: %d-%d/%d after %d-%d/%d", r.Seq, epoch, n, k, lastEpoch, lastN, lastK)
			}
			lastEpoch, lastN, lastK = epoch, n, k
		}
	}},
	{"ReleasedLeaseIsHarmless", func(t *testing.T, x *suite) {
		s := x.open(t)
		l1 := own(t, s, "s", "a")
		l2 := own(t, s, "s", "b")
		if err := leaser(t, s).Release(limit(t), l1); err != nil {
			t.Fatalf("releasing a superseded lease: %v", err)
		}
		if err := leaser(t, s).Release(limit(t), spool.Lease{Session: "unknown", Epoch: 3, Owner: "a"}); err != nil {
			t.Fatalf("releasing a lease of nothing: %v", err)
		}
		command(t, s, "s", "x")
		_, err := leaser(t, s).Claim(context.WithoutCancel(t.Context()), spool.Claim{Owner: "c"})
		wantErr(t, err, spool.ErrNothingDue) // l2 still holds it
		put(t, s, spool.Append{Session: "s", Epoch: l2.Epoch, Records: recs(chunk.Trace, "b", 1)})
	}},
}

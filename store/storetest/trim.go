package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// with runs a check for stores that have a role.
func with[R any](run func(*testing.T, *suite, spool.Store, R)) func(*testing.T, *suite) {
	return func(t *testing.T, x *suite) {
		s := x.open(t)
		if r, ok := s.(R); ok {
			run(t, x, s, r)
		}
	}
}

func trim(t testing.TB, s spool.Trimmer, traceFloor, floor uint64) {
	t.Helper()
	if err := s.Trim(limit(t), "s", traceFloor, floor); err != nil {
		t.Fatalf("Trim(%d, %d): %v", traceFloor, floor, err)
	}
}

func wantFloors(t testing.TB, s spool.Store, traceFloor, floor uint64) {
	t.Helper()
	if h := head(t, s, "s"); h.TraceFloor != traceFloor || h.Floor != floor {
		t.Fatalf("floors %d, %d; want %d, %d", h.TraceFloor, h.Floor, traceFloor, floor)
	}
}

// fill appends n pairs of a trace and a kept record, the first ones each on its
// own: k1 has sequence 2.
func fill(t testing.TB, s spool.Store, n int) {
	t.Helper()
	var batch []chunk.Record
	for i := 1; i <= n; i++ {
		batch = append(batch, rec(chunk.Trace, fmt.Sprint("t", i)), rec(chunk.Kept, fmt.Sprint("k", i)))
		if len(batch) >= 100 || i == n || i < 10 {
			put(t, s, spool.Append{Session: "s", Records: batch})
			batch = nil
		}
	}
}

// Promise: watermarks never fall, and a reader below them is told, never given
// a partial answer.
var trimChecks = []check{
	{"Trace", with(func(t *testing.T, x *suite, s spool.Store, r spool.Trimmer) {
		fill(t, s, 5)
		trim(t, r, 6, 0)
		wantFloors(t, s, 6, 0)
		for _, after := range []uint64{0, 5} {
			rs, _, err := s.Read(limit(t), "s", after, 10)
			if len(rs) > 0 {
				t.Fatalf("a partial answer: %v", texts(rs))
			}
			wantErr(t, err, spool.ErrTrimmed)
		}
		wantTexts(t, log(t, s, "s", 6, 10), "t4", "k4", "t5", "k5")
		wantTexts(t, keptLog(t, s, "s", 0, 2), "k1", "k2", "k3", "k4", "k5")
	})},
	{"Floor", with(func(t *testing.T, x *suite, s spool.Store, r spool.Trimmer) {
		fill(t, s, 5)
		trim(t, r, 6, 4)
		wantFloors(t, s, 6, 4)
		rs, _, err := s.ReadKept(limit(t), "s", spool.KeptQuery{After: 3})
		if len(rs) > 0 {
			t.Fatalf("a partial answer: %v", texts(rs))
		}
		wantErr(t, err, spool.ErrTrimmed)
		wantTexts(t, keptLog(t, s, "s", 4, 10), "k3", "k4", "k5")
		back, _, err := s.ReadKept(limit(t), "s", spool.KeptQuery{Backwards: true, Max: 10})
		if err != nil {
			t.Fatal(err)
		}
		wantTexts(t, back, "k5", "k4", "k3")
		if back, _, err = s.ReadKept(limit(t), "s", spool.KeptQuery{Backwards: true, Before: 5}); err != nil || len(back) != 0 {
			t.Fatalf("backwards below the floor: %v, %v", texts(back), err)
		}
	})},
	{"NeverFall", with(func(t *testing.T, x *suite, s spool.Store, r spool.Trimmer) {
		fill(t, s, 5)
		trim(t, r, 6, 2)
		trim(t, r, 3, 1)
		wantFloors(t, s, 6, 2)
		trim(t, r, 0, 8) // the trace floor is never below the floor
		wantFloors(t, s, 8, 8)
		trim(t, r, 99, 99) // nor above the head
		wantFloors(t, s, 10, 10)
		if res := command(t, s, "s", "next"); res.First != 11 {
			t.Fatalf("numbering after a trim of everything: %+v", res)
		}
		wantTexts(t, log(t, s, "s", 10, 5), "next")
		wantErr(t, r.Trim(limit(t), "unknown", 1, 1), spool.ErrNotFound)
	})},
	{"UnderAReader", with(func(t *testing.T, x *suite, s spool.Store, r spool.Trimmer) {
		fill(t, s, 1000)
		ctx, cancel := context.WithCancel(limit(t))
		defer cancel()
		parallel(4, func(i int) {
			if i == 0 {
				defer cancel()
				for n := uint64(0); n <= 2000; n += 100 {
					if err := r.Trim(limit(t), "s", n, n/2); err != nil {
						t.Error(err)
					}
				}
				return
			}
			for after := uint64(0); ctx.Err() == nil; {
				rs, _, err := s.Read(ctx, "s", after, 50)
				switch {
				case errors.Is(err, context.Canceled):
				case errors.Is(err, spool.ErrTrimmed):
					h, err := s.Head(ctx, "s")
					if err == nil && h.TraceFloor <= after {
						t.Errorf("trimmed after %d with the trace floor at %d", after, h.TraceFloor)
						return
					}
					after = max(after, h.TraceFloor)
				case err != nil:
					t.Error(err)
					return
				case len(rs) == 0:
					after = 0
				}
				for _, r := range rs {
					after++
					want := fmt.Sprint("k", after/2)
					if after%2 == 1 {
						want = fmt.Sprint("t", after/2+1)
					}
					if r.Seq != after || text(r) != want {
						t.Errorf("record %d %q, want %d %q", r.Seq, text(r), after, want)
						return
					}
				}
			}
		})
	})},
	{"Delete", with(func(t *testing.T, x *suite, s spool.Store, r spool.Trimmer) {
		fill(t, s, 700)
		command(t, s, "neighbour", "x")
		l := own(t, s, "s", "o")
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1, Row: spool.Row{Title: "old", Status: chunk.StatusActive, Principal: "p"}})
		if err := r.Delete(limit(t), "s"); err != nil {
			t.Fatal(err)
		}
		_, err := s.Head(limit(t), "s")
		wantErr(t, err, spool.ErrNotFound)
		wantErr(t, r.Delete(limit(t), "s"), spool.ErrNotFound)
		wantErr(t, r.Delete(limit(t), "unknown"), spool.ErrNotFound)
		wantErr(t, r.Trim(limit(t), "s", 1, 1), spool.ErrNotFound)
		if rs := log(t, s, "s", 0, 10); len(rs) != 0 {
			t.Fatalf("left behind: %v", texts(rs))
		}
		if rs := keptLog(t, s, "s", 0, 10); len(rs) != 0 {
			t.Fatalf("left behind: %v", texts(rs))
		}
		// The old owner cannot bring it back, and nobody need recover it.
		_, err = s.Append(limit(t), spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 2, Records: recs(chunk.Trace, "x", 1)})
		wantErr(t, err, spool.ErrSuperseded)
		wantErr(t, leaser(t, s).Renew(limit(t), l), spool.ErrSuperseded)
		_, err = claim(t, s, spool.Claim{Session: "s"})
		wantErr(t, err, spool.ErrNothingDue)

		h := command(t, s, "s", "new").Head
		if h.Incarnation <= 1 || h.Epoch <= l.Epoch || h.Seq != 1 || h.Status != chunk.StatusEnded || h.Floor != 0 || h.TraceFloor != 0 {
			t.Fatalf("head of the next incarnation %+v", h)
		}
		_, err = s.Append(limit(t), spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 2, Records: recs(chunk.Trace, "x", 1)})
		wantErr(t, err, spool.ErrSuperseded)
		wantTexts(t, log(t, s, "s", 0, 10), "new")
		if l2 := mustClaim(t, s, spool.Claim{Session: "s"}); l2.Epoch <= h.Epoch {
			t.Fatalf("epoch %d after %d", l2.Epoch, h.Epoch)
		}
		if err := r.Delete(limit(t), "s"); err != nil {
			t.Fatal(err)
		}
		if l3 := own(t, s, "s", "o"); l3.Head.Incarnation <= h.Incarnation || l3.Epoch <= h.Epoch+1 || l3.Head.Seq != 0 {
			t.Fatalf("third incarnation: %+v", l3)
		}
		wantTexts(t, log(t, s, "neighbour", 0, 10), "x")
	})},
	{"DeleteUnderAWriter", with(func(t *testing.T, x *suite, s spool.Store, r spool.Trimmer) {
		parallel(2, func(i int) {
			for n := range 30 {
				if i == 0 {
					if err := r.Delete(limit(t), "s"); err != nil && !errors.Is(err, spool.ErrNotFound) {
						t.Error(err)
					}
				} else if _, err := s.Append(limit(t), spool.Append{Session: "s", Records: recs(chunk.Kept, fmt.Sprint(n), 20)}); err != nil {
					t.Error(err)
				}
			}
		})
		if t.Failed() {
			return
		}
		// Whatever is left is a whole log.
		if h, err := s.Head(limit(t), "s"); err == nil {
			if rs := log(t, s, "s", 0, 100); uint64(len(rs)) != h.Seq || h.Seq%20 != 0 {
				t.Fatalf("%d records under head %+v", len(rs), h)
			}
		}
	})},
}

package storetest

import (
	"fmt"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: an owner's append is idempotent by (Epoch, Writer, Ordinal).
var repeatChecks = []check{
	{"FirstResultAgain", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "a")
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1, Records: recs(chunk.Trace, "one", 3), Row: spool.Row{Status: chunk.StatusActive}}
		first := put(t, s, a)
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "other", 1), Row: spool.Row{Status: chunk.StatusPaused}})
		for range 3 {
			again := put(t, s, a)
			if !again.Repeated || again.First != first.First || again.Last != first.Last {
				t.Fatalf("repeat gave %+v, the first time %+v", again, first)
			}
			if again.Head != head(t, s, "s") || again.Head.Seq != 4 || again.Head.Status != chunk.StatusPaused {
				t.Fatalf("a repeat changed something: %+v", again.Head)
			}
		}
		wantTexts(t, log(t, s, "s", 0, 10), "one/0", "one/1", "one/2", "other/0")
	}},
	{"OrdinalZeroIsNotIdempotent", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "a")
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Records: recs(chunk.Trace, "x", 1)}
		put(t, s, a)
		if res := put(t, s, a); res.Repeated || res.First != 2 {
			t.Fatalf("second: %+v", res)
		}
	}},
	{"EmptyAppend", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "a")
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1, Row: spool.Row{Status: chunk.StatusActive}}
		first := put(t, s, a)
		if first.First <= first.Last || first.Head.Seq != 0 || first.Head.Status != chunk.StatusActive {
			t.Fatalf("empty append: %+v", first)
		}
		if again := put(t, s, a); !again.Repeated || again.First <= again.Last {
			t.Fatalf("its repeat: %+v", again)
		}
	}},
	{"SeveralWriters", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "a")
		results := map[string]spool.Appended{}
		for ordinal := uint64(1); ordinal <= 3; ordinal++ {
			for _, w := range []string{"", "w1", "w2", "é/💡"} {
				a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: w, Ordinal: ordinal, Records: recs(chunk.Trace, fmt.Sprint(w, ordinal), 2)}
				results[w] = put(t, s, a)
				if results[w].Repeated {
					t.Fatalf("writer %q ordinal %d taken for a repeat", w, ordinal)
				}
			}
		}
		for w, first := range results {
			again := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Writer: w, Ordinal: 3, Records: recs(chunk.Trace, "again", 2)})
			if !again.Repeated || again.First != first.First || again.Last != first.Last {
				t.Fatalf("writer %q: repeat %+v, first %+v", w, again, first)
			}
		}
		if h := head(t, s, "s"); h.Seq != 24 {
			t.Fatalf("%d records, want 24", h.Seq)
		}
	}},
	{"LateDuplicateWritesNothing", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "a")
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1, Records: recs(chunk.Trace, "one", 1)}
		put(t, s, a)
		b := a
		b.Ordinal = 5 // a gap is allowed: refused appends use up ordinals
		put(t, s, b)
		_, err := s.Append(limit(t), a)
		wantErr(t, err, chunk.ErrInvalid)
		if h := head(t, s, "s"); h.Seq != 2 {
			t.Fatalf("head %+v", h)
		}
	}},
	{"ForgottenAtTheNextClaim", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "a")
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 7, Records: recs(chunk.Trace, "x", 1)}
		put(t, s, a)
		l2 := own(t, s, "s", "a")
		_, err := s.Append(limit(t), a)
		wantErr(t, err, spool.ErrSuperseded)
		a.Epoch, a.Ordinal = l2.Epoch, 1
		if res := put(t, s, a); res.Repeated || res.First != 2 {
			t.Fatalf("ordinal 1 under the next epoch: %+v", res)
		}
	}},
	{"ManyAtOnce", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "a")
		// The same append from several goroutines, as a client does that lost
		// its answers: one stores it, all get the same numbers.
		for ordinal := uint64(1); ordinal <= 20; ordinal++ {
			var got [4]spool.Appended
			parallel(len(got), func(i int) {
				res, err := s.Append(limit(t), spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: ordinal, Records: recs(chunk.Trace, "x", 2)})
				if err != nil {
					t.Error(err)
				}
				got[i] = res
			})
			stored := 0
			for _, res := range got {
				if res.First != ordinal*2-1 || res.Last != ordinal*2 {
					t.Fatalf("ordinal %d: %+v", ordinal, got)
				}
				if !res.Repeated {
					stored++
				}
			}
			if stored != 1 {
				t.Fatalf("ordinal %d was stored %d times", ordinal, stored)
			}
		}
	}},
}

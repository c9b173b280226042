package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: a reader is a cursor. It may come late, stall, and read behind.
var readChecks = []check{
	{"Edges", func(t *testing.T, x *suite) {
		s := x.open(t)
		for _, after := range []uint64{0, 5} {
			if rs, _, err := s.Read(limit(t), "unknown", after, 10); err != nil || len(rs) != 0 {
				t.Fatalf("unknown session: %v, %v", rs, err)
			}
			if rs, _, err := s.ReadKept(limit(t), "unknown", spool.KeptQuery{After: after}); err != nil || len(rs) != 0 {
				t.Fatalf("unknown session: %v, %v", rs, err)
			}
		}
		put(t, s, spool.Append{Session: "s", Records: recs(chunk.Trace, "x", 3)})
		for after, want := range map[uint64]int{0: 3, 2: 1, 3: 0, 4: 0, 1 << 50: 0} {
			if rs, _, err := s.Read(limit(t), "s", after, 10); err != nil || len(rs) != want {
				t.Fatalf("after %d: %d records, %v", after, len(rs), err)
			}
		}
		if rs, _, err := s.Read(limit(t), "s", 1, 1); err != nil || len(rs) != 1 || rs[0].Seq != 2 {
			t.Fatalf("one after 1: %v, %v", rs, err)
		}
		if rs, _, err := s.Read(limit(t), "s", 0, 0); err != nil || len(rs) != 3 {
			t.Fatalf("max 0: %d records, %v", len(rs), err)
		}
	}},
	{"Kept", func(t *testing.T, x *suite) {
		s := x.open(t)
		var want []string
		for i := range 10 {
			put(t, s, spool.Append{Session: "s", Records: recs(chunk.Trace, "t", 3)})
			put(t, s, spool.Append{Session: "s", Records: recs(chunk.Kept, fmt.Sprint("k", i), 1)})
			want = append(want, fmt.Sprintf("k%d/0", i))
		}
		wantTexts(t, keptLog(t, s, "s", 0, 3), want...)
		wantTexts(t, keptLog(t, s, "s", 4, 100), want[1:]...)
		wantTexts(t, keptLog(t, s, "s", 5, 100), want[1:]...)
		back := func(before uint64, max int) []chunk.Record {
			rs, _, err := s.ReadKept(limit(t), "s", spool.KeptQuery{Before: before, Backwards: true, Max: max})
			if err != nil {
				t.Fatal(err)
			}
			return rs
		}
		wantTexts(t, back(0, 2), "k9/0", "k8/0")
		wantTexts(t, back(40, 2), "k8/0", "k7/0")
		wantTexts(t, back(41, 1), "k9/0")
		wantTexts(t, back(4, 5))
		slices.Reverse(want)
		wantTexts(t, back(0, 0), want...)
	}},
	{"PagesAreBoundedInBytes", func(t *testing.T, x *suite) {
		s := x.open(t)
		put(t, s, spool.Append{Session: "s", Records: recs(chunk.Trace, "small", 1)})
		for range 12 { // together three pages
			put(t, s, spool.Append{Session: "s", Records: []chunk.Record{big(chunk.Kept, chunk.MaxRecordBytes)}})
			put(t, s, spool.Append{Session: "s", Records: recs(chunk.Trace, "small", 1)})
		}
		check := func(what string, rs []chunk.Record, err error) {
			t.Helper()
			if err != nil || len(rs) == 0 {
				t.Fatalf("%s: %d records, %v", what, len(rs), err)
			}
			if last := len(rs) - 1; size(rs[:last]) >= spool.MaxReadBytes {
				t.Fatalf("%s: a page goes on after %d bytes", what, size(rs[:last]))
			}
		}
		page, _, err := s.Read(limit(t), "s", 0, 0)
		check("Read", page, err)
		page, _, err = s.ReadKept(limit(t), "s", spool.KeptQuery{})
		check("ReadKept", page, err)
		page, _, err = s.ReadKept(limit(t), "s", spool.KeptQuery{Backwards: true})
		check("ReadKept backwards", page, err)
		if page[0].Seq != 24 {
			t.Fatalf("the newest kept record is %d", page[0].Seq)
		}
		if all := log(t, s, "s", 0, 1000); len(all) != 25 {
			t.Fatalf("%d records in all pages", len(all))
		}
		if kept := keptLog(t, s, "s", 0, 1000); len(kept) != 12 {
			t.Fatalf("%d kept records in all pages", len(kept))
		}
	}},
	{"LateJoinBeyondAnyBuffer", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "o")
		const batch = 500
		n := 10_000
		if x.stride(t) > 1 {
			n = 5_000 // still more than the largest page
		}
		for i := range n / batch {
			put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: uint64(i + 1), Records: recs(chunk.Trace, fmt.Sprint(i), batch)})
		}
		for _, page := range []int{100, 1000, 4096} {
			all := log(t, s, "s", 0, page)
			if len(all) != n {
				t.Fatalf("%d records, want %d", len(all), n)
			}
			for i, r := range all {
				if want := fmt.Sprintf("%d/%d", i/batch, i%batch); text(r) != want {
					t.Fatalf("record %d is %q, want %q", r.Seq, text(r), want)
				}
			}
		}
		if all := log(t, s, "s", uint64(n-3), 100); len(all) != 3 {
			t.Fatalf("%d records at the end", len(all))
		}
	}},
	{"StalledReader", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "o")
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "a", 20)})
		page, _, err := s.Read(limit(t), "s", 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		before := texts(page)
		// The reader holds its page and does nothing while the log moves on.
		for range 10 {
			put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "b", 100)})
		}
		if !slices.Equal(texts(page), before) {
			t.Fatal("the records of an earlier page changed under their reader")
		}
		if rest := log(t, s, "s", 10, 64); len(rest) != 1010 {
			t.Fatalf("%d records after the stall", len(rest))
		}
	}},
	{"ExpiryUnderAReader", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := mustClaim(t, s, spool.Claim{Owner: "a", Session: "s", Force: true, TTL: short})
		var want []string
		more := func(label string) {
			batch := recs(chunk.Trace, label, 10)
			put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: batch, Row: spool.Row{Status: chunk.StatusActive}})
			want = append(want, texts(batch)...)
		}
		more("before")
		var got []chunk.Record
		page := func() {
			rs, _, err := s.Read(limit(t), "s", uint64(len(got)), 7)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, rs...)
		}
		page()
		x.expire(t, s)
		if x.Advance != nil {
			x.Advance(s, 24*time.Hour)
		}
		page()
		l = mustClaim(t, s, spool.Claim{Owner: "b", TTL: time.Minute})
		more("after")
		for len(got) < len(want) {
			page()
		}
		wantTexts(t, got, want...)
	}},
	{"ReadersBesideAWriter", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "o")
		const batches, size = 60, 10
		parallel(5, func(i int) {
			if i == 0 {
				for n := range batches {
					if _, err := s.Append(limit(t), spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, fmt.Sprint(n), size)}); err != nil {
						t.Error(err)
						return
					}
				}
				return
			}
			var seen spool.Head
			after := uint64(0)
			for after < batches*size {
				rs, _, err := s.Read(limit(t), "s", after, 7*i)
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range rs {
					after++
					if want := fmt.Sprintf("%d/%d", (after-1)/size, (after-1)%size); r.Seq != after || text(r) != want {
						t.Errorf("reader %d: record %d %q, want %d %q", i, r.Seq, text(r), after, want)
						return
					}
				}
				if len(rs) == 0 {
					if seen, _, err = s.Wait(limit(t), "s", seen); err != nil {
						t.Error(err)
						return
					}
					if seen.Seq%size != 0 {
						t.Errorf("head %d inside a batch", seen.Seq)
						return
					}
				}
			}
		})
	}},
}

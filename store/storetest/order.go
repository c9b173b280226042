package storetest

import (
	"fmt"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: one log, one order. Sequences are 1, 2, 3, …; a batch is adjacent,
// whole or absent.
var orderChecks = []check{
	{"ContiguousNumbers", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "a")
		var want []string
		next := uint64(1)
		for i, n := range []int{1, 3, 10, 11, 1, 100, 1000, 7} {
			label := fmt.Sprint("batch", i)
			batch := recs(chunk.Trace, label, n)
			res := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: batch})
			if res.First != next || res.Last != next+uint64(n)-1 || res.Head.Seq != res.Last || res.Repeated {
				t.Fatalf("append of %d gave %+v, want first %d", n, res, next)
			}
			next += uint64(n)
			want = append(want, texts(batch)...)
			if h := head(t, s, "s"); h != res.Head {
				t.Fatalf("Head %+v, the append said %+v", h, res.Head)
			}
		}
		for _, page := range []int{7, 1000, 5000} {
			wantTexts(t, log(t, s, "s", 0, page), want...)
		}
	}},
	{"NewLog", func(t *testing.T, x *suite) {
		s := x.open(t)
		_, err := s.Head(limit(t), "s")
		wantErr(t, err, spool.ErrNotFound)
		res := command(t, s, "s", "first")
		if res.First != 1 || res.Last != 1 {
			t.Fatalf("first append: %+v", res)
		}
		h := res.Head
		if h.Due == 0 {
			t.Fatal("a command did not make the session due")
		}
		h.Due = 0
		if want := (spool.Head{Seq: 1, Incarnation: h.Incarnation, Epoch: h.Epoch, Status: chunk.StatusEnded, Pending: true}); h != want || h.Incarnation < 1 {
			t.Fatalf("head %+v, want %+v", h, want)
		}
	}},
	{"RecordsComeBackWhole", func(t *testing.T, x *suite) {
		s := x.open(t)
		batch := []chunk.Record{
			{Type: "user_message", Agent: "root.1", Time: 1_763_700_000_123, Class: chunk.Kept, Data: []byte(`{"type":"user_message","a":"\u0000 é 漢 🎈 <&>\n"}`)},
			{Type: "of_tomorrow", Agent: "", Time: 0, Class: chunk.Trace, Data: []byte(`{ "type" : "of_tomorrow" , "n": 1.50 }`)},
			{Seq: 99, Type: "custom", Agent: "a", Time: -5, Class: chunk.Kept, Data: []byte(`{}`)},
		}
		put(t, s, spool.Append{Session: "s", Records: batch})
		got := log(t, s, "s", 0, 10)
		if len(got) != len(batch) {
			t.Fatalf("%d records of %d", len(got), len(batch))
		}
		for i, r := range got {
			want := batch[i]
			want.Seq = uint64(i + 1)
			if !sameRecord(r, want) {
				t.Errorf("record %d is %+v (%s), want %+v (%s)", i, r, r.Data, want, want.Data)
			}
		}
		if batch[0].Seq != 0 || batch[2].Seq != 99 {
			t.Error("Append changed the caller's records")
		}
	}},
	{"SessionsAreApart", func(t *testing.T, x *suite) {
		s := x.open(t)
		for i := range 3 {
			for _, id := range []string{"a", "b", "a.1"} {
				if res := command(t, s, id, fmt.Sprint(id, i)); res.First != uint64(i+1) {
					t.Fatalf("%s: %+v", id, res)
				}
			}
		}
		wantTexts(t, log(t, s, "a", 0, 10), "a0", "a1", "a2")
		wantTexts(t, log(t, s, "b", 0, 10), "b0", "b1", "b2")
		wantTexts(t, log(t, s, "a.1", 0, 10), "a.10", "a.11", "a.12")
	}},
	{"BatchesAreAdjacent", func(t *testing.T, x *suite) {
		s := x.open(t)
		const writers, rounds, size = 8, 30, 10
		parallel(writers, func(w int) {
			last := uint64(0)
			for i := range rounds {
				label := fmt.Sprintf("w%d-%d", w, i)
				res, err := s.Append(limit(t), spool.Append{Session: "s", Records: recs(chunk.Kept, label, size)})
				if err != nil || res.Last-res.First != size-1 || res.First <= last {
					t.Errorf("%s after %d: %+v, %v", label, last, res, err)
					return
				}
				last = res.Last
			}
		})
		if t.Failed() {
			return
		}
		all := log(t, s, "s", 0, 333)
		if len(all) != writers*rounds*size {
			t.Fatalf("%d records, want %d", len(all), writers*rounds*size)
		}
		seen := map[string]int{}
		for i := 0; i < len(all); i += size {
			var w, n, k int
			if _, err := fmt.Sscanf(text(all[i]), "w%d-%d/%d", &w, &n, &k); err != nil || k != 0 {
				t.Fatalf("at %d a batch should start, found %q", i+1, text(all[i]))
			}
			label := fmt.Sprintf("w%d-%d", w, n)
			wantTexts(t, all[i:i+size], texts(recs(chunk.Kept, label, size))...)
			if seen[fmt.Sprint(w)] != n {
				t.Fatalf("writer %d: batch %d where %d is next", w, n, seen[fmt.Sprint(w)])
			}
			seen[fmt.Sprint(w)]++
		}
	}},
	{"RefusedBatchLeavesNothing", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "a")
		before := head(t, s, "s")
		batch := append(recs(chunk.Kept, "x", 3), big(chunk.Kept, chunk.MaxRecordBytes+1))
		_, err := s.Append(limit(t), spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1, Records: batch, Row: spool.Row{Title: "no", Status: chunk.StatusActive}})
		wantErr(t, err, chunk.ErrTooLarge)
		_, err = s.Append(limit(t), spool.Append{Session: "s", Epoch: l.Epoch + 1, Records: recs(chunk.Kept, "y", 3)})
		wantErr(t, err, spool.ErrSuperseded)
		if h := head(t, s, "s"); h != before {
			t.Fatalf("head went from %+v to %+v", before, h)
		}
		if rs := log(t, s, "s", 0, 10); len(rs) != 0 {
			t.Fatalf("found %v", texts(rs))
		}
		res := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1, Records: recs(chunk.Kept, "z", 2)})
		if res.Repeated || res.First != 1 || res.Last != 2 {
			t.Fatalf("a refused ordinal counts as stored: %+v", res)
		}
	}},
}

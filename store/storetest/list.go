package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// pages lists everything in pages.
func pages(t testing.TB, s spool.Lister, q spool.SessionQuery) []spool.SessionInfo {
	t.Helper()
	var out []spool.SessionInfo
	for {
		p, err := s.Sessions(limit(t), q)
		if err != nil {
			t.Fatalf("Sessions(%+v): %v", q, err)
		}
		out = append(out, p.Sessions...)
		if q.Max > 0 && len(p.Sessions) > q.Max {
			t.Fatalf("a page of %d, asked for %d", len(p.Sessions), q.Max)
		}
		if p.NextAfter == "" {
			return out
		}
		if len(p.Sessions) == 0 {
			t.Fatal("an empty page with a next one")
		}
		q.After = p.NextAfter
	}
}

func ids(is []spool.SessionInfo) []string {
	out := make([]string, len(is))
	for i, s := range is {
		out[i] = s.Session
	}
	return out
}

// Promise: listings are complete, filtered, most recently updated first.
var listChecks = []check{
	{"PagesAndFilters", with(func(t *testing.T, x *suite, s spool.Store, r spool.Lister) {
		if got := pages(t, r, spool.SessionQuery{}); len(got) != 0 {
			t.Fatalf("an empty store lists %v", ids(got))
		}
		var all, ofAnn, active []string
		for i := range 25 {
			id := fmt.Sprintf("s%02d", i)
			row := spool.Row{Principal: "ann", Title: "T" + id}
			if i%3 == 0 {
				row.Principal = "bob"
			} else {
				ofAnn = append(ofAnn, id)
			}
			if i%5 == 0 {
				row.Status = chunk.StatusActive
				active = append(active, id)
			}
			l := mustClaim(t, s, forced(id, row.Principal, true))
			put(t, s, spool.Append{Session: id, Epoch: l.Epoch, Records: recs(chunk.Kept, "c", 1), Row: row})
			all = append(all, id)
			if x.Advance != nil {
				x.Advance(s, time.Second)
			}
		}
		want := func(got []spool.SessionInfo, ids_ []string) {
			t.Helper()
			gotIDs := ids(got)
			for i := 1; i < len(got); i++ {
				if got[i].Updated > got[i-1].Updated {
					t.Fatalf("%s is listed before %s, which was updated later", got[i-1].Session, got[i].Session)
				}
			}
			if x.Advance == nil {
				slices.Sort(gotIDs) // updated in the same millisecond, perhaps
			} else {
				slices.Reverse(gotIDs)
			}
			if !slices.Equal(gotIDs, ids_) {
				t.Fatalf("listed %v, want %v", gotIDs, ids_)
			}
		}
		for _, n := range []int{0, 1, 7, 25, 26} {
			want(pages(t, r, spool.SessionQuery{Max: n}), all)
			want(pages(t, r, spool.SessionQuery{Max: n, Principal: "ann"}), ofAnn)
			want(pages(t, r, spool.SessionQuery{Max: n, Status: chunk.StatusActive}), active)
		}
		want(pages(t, r, spool.SessionQuery{Status: chunk.StatusActive, Principal: "ann", Max: 2}), []string{"s05", "s10", "s20"})
		if got := pages(t, r, spool.SessionQuery{Principal: "carol"}); len(got) != 0 {
			t.Fatalf("carol has %v", ids(got))
		}
		for _, i := range pages(t, r, spool.SessionQuery{}) {
			one, err := r.Session(limit(t), i.Session)
			if err != nil || one != i || i.Title != "T"+i.Session || i.Head.Seq != 1 || i.Head.Status != i.Status {
				t.Fatalf("listed %+v, alone %+v, %v", i, one, err)
			}
		}
		_, err := r.Sessions(limit(t), spool.SessionQuery{After: "!no continuation"})
		wantErr(t, err, chunk.ErrInvalid)
		_, err = r.Session(limit(t), "unknown")
		wantErr(t, err, spool.ErrNotFound)
	})},
	{"UpdatedComesFirst", with(func(t *testing.T, x *suite, s spool.Store, r spool.Lister) {
		if x.Advance == nil {
			return // updates in the same millisecond have no order
		}
		for _, id := range []string{"a", "b", "c", "a"} {
			x.Advance(s, time.Second)
			command(t, s, id, "x")
		}
		if got := ids(pages(t, r, spool.SessionQuery{Max: 2})); !slices.Equal(got, []string{"a", "c", "b"}) {
			t.Fatalf("listed %v", got)
		}
	})},
	{"UpdatesBetweenPages", with(func(t *testing.T, x *suite, s spool.Store, r spool.Lister) {
		const sessions = 40
		id := func(n int) string { return fmt.Sprintf("s%02d", n) }
		touch := func(n int) {
			if x.Advance != nil {
				x.Advance(s, time.Second)
			}
			command(t, s, id(n), "x")
		}
		for n := range sessions {
			touch(n)
		}
		touched, listed := map[string]bool{}, map[string]int{}
		q := spool.SessionQuery{Max: 7}
		for n := 0; ; n++ {
			p, err := r.Sessions(limit(t), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range p.Sessions {
				listed[i.Session]++
			}
			if q.After = p.NextAfter; q.After == "" {
				break
			}
			for _, other := range []int{n, sessions - 1 - n} { // one from either end of the listing
				touch(other)
				touched[id(other)] = true
			}
			if n > sessions {
				t.Fatal("the listing does not end")
			}
		}
		for n := range sessions {
			if times := listed[id(n)]; times != 1 && !touched[id(n)] {
				t.Errorf("%s was listed %d times; it did not change", id(n), times)
			}
		}
	})},
	{"DeletedIsNotListed", with(func(t *testing.T, x *suite, s spool.Store, r spool.Lister) {
		trimmer, ok := s.(spool.Trimmer)
		if !ok {
			return
		}
		command(t, s, "a", "x")
		command(t, s, "b", "x")
		if err := trimmer.Delete(limit(t), "a"); err != nil {
			t.Fatal(err)
		}
		if got := ids(pages(t, r, spool.SessionQuery{})); !slices.Equal(got, []string{"b"}) {
			t.Fatalf("listed %v", got)
		}
		_, err := r.Session(limit(t), "a")
		wantErr(t, err, spool.ErrNotFound)
	})},
	{"UnicodeIDs", with(func(t *testing.T, x *suite, s spool.Store, r spool.Lister) {
		odd := []string{"\u00e9", "e\u0301", "漢字", "🎈🎈", "a b", `quote"'%_\`, "{x}:*?[a]", "a.1", "A", "ａ", fmt.Sprintf("%0256d", 1)}
		for i, id := range odd {
			res := put(t, s, spool.Append{Session: id, Records: recs(chunk.Kept, fmt.Sprint(i), 1), Row: spool.Row{Title: id, Principal: id, Agent: id}})
			if res.First != 1 {
				t.Fatalf("%q shares a log with another id", id)
			}
		}
		for i, id := range odd {
			wantTexts(t, log(t, s, id, 0, 10), fmt.Sprintf("%d/0", i))
			if got := ids(pages(t, r, spool.SessionQuery{Principal: id})); !slices.Equal(got, []string{id}) {
				t.Fatalf("principal %q has %q", id, got)
			}
			if l := mustClaim(t, s, spool.Claim{Agents: []string{id}}); l.Session != id {
				t.Fatalf("agent %q claimed %q", id, l.Session)
			}
		}
		if got := pages(t, r, spool.SessionQuery{Max: 1}); len(got) != len(odd) {
			t.Fatalf("listed %q", ids(got))
		}
	})},
}

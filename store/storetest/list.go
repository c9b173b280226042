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

// The indexes of listings, and of claims for any session, may lag behind the sessions' rows:
// by a second, and by ten in what they say of Updated.
const (
	lagTries  = 100
	lagPause  = 20 * time.Millisecond
	updateLag = 10 * time.Second
)

// eventually calls look until it says true, or until an index may not lag any more.
func eventually(look func() bool) bool {
	for range lagTries {
		if look() {
			return true
		}
		time.Sleep(lagPause)
	}
	return look()
}

// wantListed checks which sessions a query lists, in this order.
func wantListed(t testing.TB, s spool.Lister, q spool.SessionQuery, want ...string) []spool.SessionInfo {
	t.Helper()
	var got []spool.SessionInfo
	if !eventually(func() bool {
		got = pages(t, s, q)
		return slices.Equal(ids(got), want)
	}) {
		t.Fatalf("%+v lists %q, want %q", q, ids(got), want)
	}
	return got
}

// sameRow reports whether a line of a listing is the session's row.
func sameRow(listed, row spool.SessionInfo) bool {
	if late := row.Updated - listed.Updated; late < 0 || late > updateLag.Milliseconds() {
		return false
	}
	listed.Updated = row.Updated
	return listed == row
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
		wantListed(t, r, spool.SessionQuery{})
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
				x.Advance(s, 2*updateLag)
			}
		}
		want := func(q spool.SessionQuery, want []string) {
			t.Helper()
			var got []spool.SessionInfo
			if !eventually(func() bool {
				got = pages(t, r, q)
				list := ids(got)
				if x.Advance == nil {
					slices.Sort(list) // updated in the same millisecond, perhaps
				} else {
					slices.Reverse(list)
				}
				return slices.Equal(list, want)
			}) {
				t.Fatalf("%+v lists %v, want %v", q, ids(got), want)
			}
			for i := 1; i < len(got); i++ {
				if got[i].Updated > got[i-1].Updated {
					t.Fatalf("%s is listed before %s, which was updated later", got[i-1].Session, got[i].Session)
				}
			}
		}
		for _, n := range []int{0, 1, 7, 25, 26} {
			want(spool.SessionQuery{Max: n}, all)
			want(spool.SessionQuery{Max: n, Principal: "ann"}, ofAnn)
			want(spool.SessionQuery{Max: n, Status: chunk.StatusActive}, active)
		}
		want(spool.SessionQuery{Status: chunk.StatusActive, Principal: "ann", Max: 2}, []string{"s05", "s10", "s20"})
		wantListed(t, r, spool.SessionQuery{Principal: "carol"})
		for _, i := range pages(t, r, spool.SessionQuery{}) {
			one, err := r.Session(limit(t), i.Session)
			if err != nil || !sameRow(i, one) || i.Title != "T"+i.Session || i.Head.Seq != 1 || i.Head.Status != i.Status {
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
			x.Advance(s, 2*updateLag)
			command(t, s, id, "x")
		}
		wantListed(t, r, spool.SessionQuery{Max: 2}, "a", "c", "b")
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
		if !eventually(func() bool { return len(pages(t, r, spool.SessionQuery{})) == sessions }) {
			t.Fatal("not all sessions are listed")
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
		wantListed(t, r, spool.SessionQuery{}, "b")
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
			wantListed(t, r, spool.SessionQuery{Principal: id}, id)
			if l := mustClaim(t, s, spool.Claim{Agents: []string{id}}); l.Session != id {
				t.Fatalf("agent %q claimed %q", id, l.Session)
			}
		}
		if !eventually(func() bool { return len(pages(t, r, spool.SessionQuery{Max: 1})) == len(odd) }) {
			t.Fatalf("listed %q", ids(pages(t, r, spool.SessionQuery{Max: 1})))
		}
	})},
}

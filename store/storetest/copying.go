package storetest

import (
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: a session that is being copied takes no command, is not listed and
// needs no runner, until its owner says otherwise.
var copyingChecks = []check{
	{"OnlyItsOwnerWrites", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "o")
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusCopying}})
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Kept, "c", 2)})
		_, err := s.Append(limit(t), spool.Append{Session: "s", Records: recs(chunk.Kept, "command", 1)})
		wantErr(t, err, spool.ErrNotFound)
		if h := head(t, s, "s"); h.Seq != 2 || h.Due != 0 || h.Status != chunk.StatusCopying {
			t.Fatalf("head %+v", h)
		}
		wantTexts(t, log(t, s, "s", 0, 10), "c/0", "c/1")
		if err := leaser(t, s).Release(limit(t), l); err != nil {
			t.Fatal(err)
		}
		_, err = leaser(t, s).Claim(limit(t), spool.Claim{Owner: "runner"})
		wantErr(t, err, spool.ErrNothingDue)
		l = own(t, s, "s", "o2")
		if l.Head.Seq != 2 || l.Head.Status != chunk.StatusCopying {
			t.Fatalf("claimed with head %+v", l.Head)
		}
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Kept, "d", 1), Row: spool.Row{Status: chunk.StatusPaused}})
		if res := command(t, s, "s", "command"); res.First != 4 {
			t.Fatalf("the command is record %d", res.First)
		}
	}},
	{"NotListed", with(func(t *testing.T, x *suite, s spool.Store, r spool.Lister) {
		command(t, s, "a", "x")
		l := own(t, s, "b", "o")
		put(t, s, spool.Append{Session: "b", Epoch: l.Epoch, Records: recs(chunk.Kept, "c", 1), Row: spool.Row{Status: chunk.StatusCopying}})
		if got := ids(pages(t, r, spool.SessionQuery{})); !slices.Equal(got, []string{"a"}) {
			t.Fatalf("listed %v", got)
		}
		if got := ids(pages(t, r, spool.SessionQuery{Status: chunk.StatusCopying})); !slices.Equal(got, []string{"b"}) {
			t.Fatalf("listed %v as copied", got)
		}
		put(t, s, spool.Append{Session: "b", Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusEnded}})
		if got := pages(t, r, spool.SessionQuery{}); len(got) != 2 {
			t.Fatalf("listed %v", ids(got))
		}
	})},
}

package storetest

import (
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// hide claims a session that does not exist yet, hidden.
func hide(t testing.TB, s spool.Store, session string) spool.Lease {
	t.Helper()
	return mustClaim(t, s, spool.Claim{Session: session, Force: true, Hidden: true})
}

// Promise: a hidden session takes no command, is not listed and needs no runner, until
// its owner shows it.
var hiddenChecks = []check{
	{"OnlyItsOwnerWrites", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := hide(t, s, "s")
		if !l.Head.Hidden {
			t.Fatalf("claimed with head %+v", l.Head)
		}
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Kept, "c", 2), Row: spool.Row{Status: chunk.StatusActive}})
		_, err := s.Append(limit(t), spool.Append{Session: "s", Records: recs(chunk.Kept, "command", 1)})
		wantErr(t, err, spool.ErrNotFound)
		if h := head(t, s, "s"); h.Seq != 2 || h.Due != 0 || h.Pending || !h.Hidden {
			t.Fatalf("head %+v", h)
		}
		wantTexts(t, log(t, s, "s", 0, 10), "c/0", "c/1")
		if err := leaser(t, s).Release(limit(t), l); err != nil {
			t.Fatal(err)
		}
		_, err = leaser(t, s).Claim(limit(t), spool.Claim{Owner: "runner"})
		wantErr(t, err, spool.ErrNothingDue)
		l = own(t, s, "s", "o2")
		if l.Head.Seq != 2 || !l.Head.Hidden {
			t.Fatalf("claimed with head %+v", l.Head)
		}
		if h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Kept, "d", 1), Show: true}).Head; h.Hidden {
			t.Fatalf("shown, with head %+v", h)
		}
		if res := command(t, s, "s", "command"); res.First != 4 {
			t.Fatalf("the command is record %d", res.First)
		}
	}},
	{"OnlyNewSessions", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "x")
		if l := hide(t, s, "s"); l.Head.Hidden {
			t.Fatalf("a visible session was hidden: %+v", l.Head)
		}
		_, err := claim(t, s, spool.Claim{Session: "s", Hidden: true})
		wantErr(t, err, chunk.ErrInvalid)
		_, err = s.Append(limit(t), spool.Append{Session: "s", Records: recs(chunk.Kept, "command", 1), Show: true})
		wantErr(t, err, chunk.ErrInvalid)
	}},
	{"NotListed", with(func(t *testing.T, x *suite, s spool.Store, r spool.Lister) {
		command(t, s, "a", "x")
		l := hide(t, s, "b")
		put(t, s, spool.Append{Session: "b", Epoch: l.Epoch, Records: recs(chunk.Kept, "c", 1)})
		wantListed(t, r, spool.SessionQuery{}, "a")
		wantListed(t, r, spool.SessionQuery{Status: chunk.StatusEnded}, "a")
		wantListed(t, r, spool.SessionQuery{Hidden: true}, "b")
		put(t, s, spool.Append{Session: "b", Epoch: l.Epoch, Show: true})
		if !eventually(func() bool { return len(pages(t, r, spool.SessionQuery{})) == 2 }) {
			t.Fatal("a session that was shown is not listed")
		}
	})},
	{"DeletedAndMadeAgain", with(func(t *testing.T, x *suite, s spool.Store, r spool.Trimmer) {
		hide(t, s, "s")
		if err := r.Delete(limit(t), "s"); err != nil {
			t.Fatal(err)
		}
		if h := command(t, s, "s", "x").Head; h.Hidden {
			t.Fatalf("head %+v", h)
		}
	})},
}

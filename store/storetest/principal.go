package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// create appends a command that creates a principal's session, or goes into it.
func create(t testing.TB, s spool.Store, session, principal string) (spool.Appended, error) {
	t.Helper()
	return s.Append(limit(t), spool.Append{Session: session, SamePrincipal: true,
		Records: recs(chunk.Kept, "by-"+principal, 1), Row: spool.Row{Principal: principal}})
}

// forced is a claim like a producer's.
func forced(session, principal string, same bool) spool.Claim {
	return spool.Claim{Session: session, Force: true, Principal: principal, SamePrincipal: same}
}

// wantPrincipal checks everything that tells whose session it is.
func wantPrincipal(t testing.TB, s spool.Store, session, want string) {
	t.Helper()
	if h := head(t, s, session); h.Principal != want {
		t.Fatalf("%s is %q's by its head, want %q", session, h.Principal, want)
	}
	_, h, err := s.ReadKept(limit(t), session, spool.KeptQuery{Backwards: true, Max: 1})
	if err != nil || h.Principal != want {
		t.Fatalf("%s is %q's by a read (%v), want %q", session, h.Principal, err, want)
	}
	if h, _, err := s.Wait(limit(t), session, spool.Head{}); err != nil || h.Principal != want {
		t.Fatalf("%s is %q's by a wait (%v), want %q", session, h.Principal, err, want)
	}
	r, ok := s.(spool.Lister)
	if !ok {
		return
	}
	i, err := r.Session(limit(t), session)
	if err != nil || i.Principal != want || i.Head.Principal != want {
		t.Fatalf("%s is %q's by its row and %q's by the row's head (%v), want %q", session, i.Principal, i.Head.Principal, err, want)
	}
}

// Promise: a session's principal is that of the append or claim that creates it, and
// stays until the session is deleted.
var principalChecks = []check{
	{"TheFirstAppendSetsIt", func(t *testing.T, x *suite) {
		s := x.open(t)
		for _, first := range []string{"ann", ""} { // an anonymous session stays anonymous
			session := "of-" + first
			if res, err := create(t, s, session, first); err != nil || res.Head.Principal != first {
				t.Fatalf("%+v, %v", res, err)
			}
			res := put(t, s, spool.Append{Session: session, Records: recs(chunk.Kept, "c", 1), Row: spool.Row{Principal: "bob", Title: "T"}})
			if res.Head.Principal != first {
				t.Fatalf("a later command makes it %q's", res.Head.Principal)
			}
			wantPrincipal(t, s, session, first)
			l := mustClaim(t, s, forced(session, "bob", false))
			if l.Head.Principal != first {
				t.Fatalf("a claim makes it %q's", l.Head.Principal)
			}
			res = put(t, s, spool.Append{Session: session, Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive, Principal: "bob"}})
			if res.Head.Principal != first {
				t.Fatalf("an owner makes it %q's", res.Head.Principal)
			}
			wantPrincipal(t, s, session, first)
			if x.Reopen != nil {
				s = x.Reopen(t, s)
				wantPrincipal(t, s, session, first)
			}
		}
	}},
	{"AClaimSetsIt", func(t *testing.T, x *suite) {
		s := x.open(t)
		for _, first := range []string{"ann", ""} {
			session := "of-" + first
			l := mustClaim(t, s, forced(session, first, true))
			if l.Head.Principal != first {
				t.Fatalf("claimed for %q, the head says %q", first, l.Head.Principal)
			}
			put(t, s, spool.Append{Session: session, Epoch: l.Epoch, Records: recs(chunk.Kept, "c", 1), Row: spool.Row{Principal: "bob"}})
			put(t, s, spool.Append{Session: session, Records: recs(chunk.Kept, "d", 1), Row: spool.Row{Principal: "bob"}})
			wantPrincipal(t, s, session, first)
		}
	}},
	{"OthersCannotTakeIt", func(t *testing.T, x *suite) {
		s := x.open(t)
		for _, first := range []string{"ann", ""} {
			session := "of-" + first
			if _, err := create(t, s, session, first); err != nil {
				t.Fatal(err)
			}
			before := head(t, s, session)
			for _, other := range []string{"bob", "an", "ann ", "", "ann"} {
				if other == first {
					continue
				}
				_, err := create(t, s, session, other)
				wantErr(t, err, spool.ErrExists)
				_, err = claim(t, s, forced(session, other, true))
				wantErr(t, err, spool.ErrExists)
			}
			if h := head(t, s, session); h != before {
				t.Fatalf("a refused call changed the head from %+v to %+v", before, h)
			}
			if res, err := create(t, s, session, first); err != nil || res.First != 2 {
				t.Fatalf("its own principal: %+v, %v", res, err)
			}
			mustClaim(t, s, forced(session, first, true))
		}
		// A claim that waits its turn is refused in the same way.
		if _, err := create(t, s, "due", "ann"); err != nil {
			t.Fatal(err)
		}
		_, err := claim(t, s, spool.Claim{Session: "due", Principal: "bob", SamePrincipal: true})
		wantErr(t, err, spool.ErrExists)
		mustClaim(t, s, spool.Claim{Session: "due", Principal: "ann", SamePrincipal: true})
		_, err = claim(t, s, spool.Claim{Principal: "ann", SamePrincipal: true})
		wantErr(t, err, chunk.ErrInvalid)
		l := own(t, s, "owned", "o")
		_, err = s.Append(limit(t), spool.Append{Session: "owned", Epoch: l.Epoch, SamePrincipal: true, Records: recs(chunk.Kept, "x", 1)})
		wantErr(t, err, chunk.ErrInvalid)
	}},
	{"DeletionClearsIt", with(func(t *testing.T, x *suite, s spool.Store, r spool.Trimmer) {
		last := uint64(0)
		for _, who := range []string{"ann", "bob", "", "ann"} {
			res, err := create(t, s, "s", who)
			if err != nil || res.First != 1 || res.Head.Incarnation <= last {
				t.Fatalf("%q: %+v, %v", who, res, err)
			}
			last = res.Head.Incarnation
			wantPrincipal(t, s, "s", who)
			if err := r.Delete(limit(t), "s"); err != nil {
				t.Fatal(err)
			}
		}
	})},
	{"ABlobDoesNotSetIt", with(func(t *testing.T, x *suite, s spool.Store, r spool.BlobStore) {
		if err := r.PutBlob(limit(t), "s", "sha256:b", []byte("blob")); err != nil {
			t.Fatal(err)
		}
		if _, err := create(t, s, "s", "ann"); err != nil {
			t.Fatal(err)
		}
		wantPrincipal(t, s, "s", "ann")
	})},
	{"RaceOfCreators", func(t *testing.T, x *suite) {
		s := x.open(t)
		for round := range 20 {
			session := fmt.Sprint("s", round)
			var won atomic.Pointer[string]
			var wins atomic.Int64
			parallel(6, func(i int) {
				who := []string{"ann", "bob", ""}[i%3]
				var err error
				if i < 3 {
					_, err = create(t, s, session, who)
				} else {
					_, err = leaser(t, s).Claim(limit(t), spool.Claim{Owner: who + "'s", Session: session, Force: true, Principal: who, SamePrincipal: true})
				}
				switch {
				case err == nil:
					if before := won.Swap(&who); before != nil && *before != who {
						t.Errorf("both %q and %q have created %s", *before, who, session)
					}
					wins.Add(1)
				case !errors.Is(err, spool.ErrExists):
					t.Error(err)
				}
			})
			if t.Failed() {
				return
			}
			if wins.Load() != 2 {
				t.Fatalf("%d of six creators have won, want the command and the claim of one principal", wins.Load())
			}
			wantPrincipal(t, s, session, *won.Load())
			for _, r := range log(t, s, session, 0, 10) {
				if text(r) != "by-"+*won.Load()+"/0" {
					t.Fatalf("the log of %q holds %q", *won.Load(), text(r))
				}
			}
		}
	}},
}

package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// wantBytes checks the size of session "s".
func wantBytes(t testing.TB, s spool.Lister, want int) {
	t.Helper()
	if i, err := s.Session(limit(t), "s"); err != nil || i.Bytes != int64(want) {
		t.Fatalf("the session has %d bytes, %v; want %d", i.Bytes, err, want)
	}
}

// Promise: the store knows how large and how old its sessions are, and deletes one for its
// age only if it has that age.
var ageChecks = []check{
	{"Bytes", with(func(t *testing.T, x *suite, s spool.Store, r spool.Lister) {
		batch := []chunk.Record{rec(chunk.Trace, "é"), rec(chunk.Kept, "two"), rec(chunk.Trace, "three"), rec(chunk.Kept, "fourth")}
		put(t, s, spool.Append{Session: "s", Records: batch})
		wantBytes(t, r, size(batch))
		l := own(t, s, "s", "o")
		mine := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1, Records: recs(chunk.Kept, "mine", 3)}
		for range 2 { // the second is a repeat
			put(t, s, mine)
		}
		total := size(batch) + size(mine.Records)
		wantBytes(t, r, total)
		if blobs, ok := s.(spool.BlobStore); ok {
			for range 2 {
				if err := blobs.PutBlob(limit(t), "s", "sha256:b", make([]byte, 70_000)); err != nil {
					t.Fatal(err)
				}
			}
			total += 70_000
			wantBytes(t, r, total)
		}
		if x.Reopen != nil {
			s = x.Reopen(t, s)
			r = s.(spool.Lister)
			wantBytes(t, r, total)
		}
		trimmer, ok := s.(spool.Trimmer)
		if !ok {
			return
		}
		for _, step := range []struct {
			traceFloor, floor uint64
			gone              []chunk.Record
		}{{2, 0, batch[:1]}, {2, 0, nil}, {3, 0, batch[2:3]}, {3, 2, batch[1:2]}, {4, 4, batch[3:]}} {
			trim(t, trimmer, step.traceFloor, step.floor)
			total -= size(step.gone)
			wantBytes(t, r, total)
		}
		if err := trimmer.Delete(limit(t), "s"); err != nil {
			t.Fatal(err)
		}
		again := recs(chunk.Kept, "again", 1)
		put(t, s, spool.Append{Session: "s", Records: again})
		wantBytes(t, r, size(again))
	})},
	{"BlobsBeforeTheirSession", with(func(t *testing.T, x *suite, s spool.Store, r spool.BlobStore) {
		lister, ok := s.(spool.Lister)
		if !ok {
			return
		}
		if err := r.PutBlob(limit(t), "s", "sha256:b", make([]byte, 5000)); err != nil {
			t.Fatal(err)
		}
		batch := recs(chunk.Kept, "c", 2)
		put(t, s, spool.Append{Session: "s", Records: batch})
		wantBytes(t, lister, 5000+size(batch))
	})},
	{"Idle", with(func(t *testing.T, x *suite, s spool.Store, r spool.Lister) {
		if x.Advance == nil {
			return
		}
		const step = 25 * time.Second
		for i := range 9 { // s8 is the latest
			put(t, s, spool.Append{Session: fmt.Sprint("s", i), Records: recs(chunk.Kept, "c", 1), Row: spool.Row{Principal: "ann"}})
			x.Advance(s, step)
		}
		all := []string{"s8", "s7", "s6", "s5", "s4", "s3", "s2", "s1", "s0"}
		for i := range all {
			for _, q := range []spool.SessionQuery{{}, {Principal: "ann"}, {Status: chunk.StatusEnded}, {Max: 2}} {
				q.Idle = time.Duration(i+1) * step
				wantListed(t, r, q, all[i:]...)
				q.Idle += updateLag + 1 // a part of a millisecond counts as a whole one
				wantListed(t, r, q, all[i+1:]...)
			}
		}
		wantListed(t, r, spool.SessionQuery{Idle: 10 * step})
	})},
	{"Usage", with(func(t *testing.T, x *suite, s spool.Store, r spool.Measurer) {
		want := func(u spool.Usage) {
			t.Helper()
			got, err := r.Usage(limit(t), "")
			u.Now, u.Oldest = got.Now, got.Oldest
			if err != nil || got != u || (got.Oldest == 0) != (u.Sessions == 0) || got.Oldest > got.Now {
				t.Fatalf("%+v, %v; want %+v", got, err, u)
			}
		}
		want(spool.Usage{})
		small, large := recs(chunk.Kept, "small", 1), recs(chunk.Trace, "large", 10)
		put(t, s, spool.Append{Session: "s", Records: small})
		first, err := r.Usage(limit(t), "")
		if err != nil {
			t.Fatal(err)
		}
		if x.Advance != nil {
			x.Advance(s, time.Hour)
		}
		put(t, s, spool.Append{Session: "large", Records: large})
		hidden := hide(t, s, "hidden")
		put(t, s, spool.Append{Session: "hidden", Epoch: hidden.Epoch, Records: large})
		want(spool.Usage{Sessions: 2, Bytes: int64(size(small) + size(large)), Largest: int64(size(large))})
		if u, err := r.Usage(limit(t), ""); err != nil || u.Oldest != first.Oldest || x.Advance != nil && u.Now-u.Oldest < time.Hour.Milliseconds() {
			t.Fatalf("%+v, %v; the first was appended to at %d", u, err, first.Oldest)
		}
		if trimmer, ok := s.(spool.Trimmer); ok {
			if err := trimmer.Delete(limit(t), "large"); err != nil {
				t.Fatal(err)
			}
			want(spool.Usage{Sessions: 1, Bytes: int64(size(small)), Largest: int64(size(small))})
		}
	})},
	{"UsageOfAPrincipal", with(func(t *testing.T, x *suite, s spool.Store, r spool.Measurer) {
		want := func(principal string, sessions int64, bytes int) {
			t.Helper()
			u, err := r.Usage(limit(t), principal)
			if err != nil || u.Sessions != sessions || u.Bytes != int64(bytes) || (u.Oldest == 0) != (sessions == 0) {
				t.Fatalf("%q uses %+v, %v; want %d sessions and %d bytes", principal, u, err, sessions, bytes)
			}
		}
		want("ann", 0, 0)
		batch := recs(chunk.Kept, "said", 1)
		n := size(batch)
		for i, principal := range []string{"ann", "bob", "", "ann", "anna", "Ann"} {
			put(t, s, spool.Append{Session: fmt.Sprint("s", i), Records: batch, Row: spool.Row{Principal: principal}})
		}
		put(t, s, spool.Append{Session: "s3", Records: batch, Row: spool.Row{Principal: "bob"}}) // it stays ann's
		want("ann", 2, 3*n)
		want("bob", 1, n)
		want("nobody", 0, 0)
		want("", 6, 7*n)
		if trimmer, ok := s.(spool.Trimmer); ok {
			if err := trimmer.Delete(limit(t), "s0"); err != nil {
				t.Fatal(err)
			}
			want("ann", 1, 2*n)
			put(t, s, spool.Append{Session: "s0", Records: batch, Row: spool.Row{Principal: "bob"}})
			want("ann", 1, 2*n)
			want("bob", 2, 2*n)
		}
	})},
	{"Expire", with(func(t *testing.T, x *suite, s spool.Store, r spool.Expirer) {
		wantErr(t, r.Expire(limit(t), "s", 0), spool.ErrNotFound)
		if x.Advance == nil {
			return
		}
		command(t, s, "s", "a")
		x.Advance(s, time.Hour)
		wantErr(t, r.Expire(limit(t), "s", time.Hour+time.Second), spool.ErrBusy)
		command(t, s, "s", "b") // a message that comes in time keeps the session
		wantErr(t, r.Expire(limit(t), "s", time.Hour), spool.ErrBusy)
		before := head(t, s, "s")
		l := own(t, s, "s", "o")
		x.Advance(s, time.Hour)
		if err := leaser(t, s).Renew(limit(t), l); err != nil {
			t.Fatal(err)
		}
		wantErr(t, r.Expire(limit(t), "s", time.Hour), spool.ErrBusy) // it has an owner
		wantTexts(t, log(t, s, "s", 0, 10), "a", "b")
		if err := leaser(t, s).Release(limit(t), l); err != nil {
			t.Fatal(err)
		}
		if err := r.Expire(limit(t), "s", time.Hour); err != nil {
			t.Fatal(err)
		}
		_, err := s.Head(limit(t), "s")
		wantErr(t, err, spool.ErrNotFound)
		wantErr(t, r.Expire(limit(t), "s", time.Hour), spool.ErrNotFound)
		if h := command(t, s, "s", "c").Head; h.Seq != 1 || h.Incarnation <= before.Incarnation || h.Epoch <= l.Epoch {
			t.Fatalf("made again with head %+v", h)
		}
	})},
}

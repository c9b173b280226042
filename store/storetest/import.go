package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

// elsewhere is a session as another store may have it: 40 records, of which 1 to 10 and the
// trace up to 25 are gone, with a command that waits.
func elsewhere(session string) (spool.SessionInfo, []chunk.Record) {
	var all []chunk.Record
	for seq := uint64(11); seq <= 40; seq++ {
		class := chunk.Trace
		if seq%3 == 0 {
			class = chunk.Kept
		}
		if r := rec(class, fmt.Sprint("r", seq)); seq > 25 || class == chunk.Kept {
			r.Seq = seq
			all = append(all, r)
		}
	}
	return spool.SessionInfo{
		Session: session,
		Row:     spool.Row{Status: chunk.StatusPaused, Agent: "writer", Principal: "ann", Title: "A title"},
		Head: spool.Head{Seq: 40, Incarnation: 5, TraceFloor: 25, Floor: 10, Epoch: 7, Status: chunk.StatusPaused,
			Due: 1_700_000_000_000, Pending: true, Principal: "ann"},
		Updated: 1_700_000_000_000,
	}, all
}

// until returns the records up to a sequence, and the rest.
func until(all []chunk.Record, seq uint64) (head, rest []chunk.Record) {
	i := slices.IndexFunc(all, func(r chunk.Record) bool { return r.Seq > seq })
	return all[:i], all[i:]
}

func imported(t testing.TB, r spool.Importer, i spool.Import) spool.Head {
	t.Helper()
	h, err := r.Import(limit(t), i)
	if err != nil {
		t.Fatalf("Import(%s, after %d, %d records): %v", i.Info.Session, i.After, len(i.Records), err)
	}
	return h
}

// wantImported checks a session that was imported as elsewhere says.
func wantImported(t testing.TB, s spool.Store, info spool.SessionInfo, all []chunk.Record) spool.Head {
	t.Helper()
	h := head(t, s, info.Session)
	want := info.Head
	want.Incarnation, want.Epoch = h.Incarnation, h.Epoch
	if h != want || h.Incarnation < info.Head.Incarnation || h.Epoch <= info.Head.Epoch {
		t.Fatalf("head %+v, elsewhere %+v", h, info.Head)
	}
	_, above := until(all, h.TraceFloor)
	if got := log(t, s, info.Session, h.TraceFloor, 7); !slices.EqualFunc(got, above, sameRecord) {
		t.Fatalf("records %v, want %v", texts(got), texts(above))
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(r chunk.Record) bool { return r.Class != chunk.Kept })
	if got := keptLog(t, s, info.Session, h.Floor, 3); !slices.EqualFunc(got, kept, sameRecord) {
		t.Fatalf("kept records %v, want %v", texts(got), texts(kept))
	}
	_, _, err := s.Read(limit(t), info.Session, h.TraceFloor-1, 10)
	wantErr(t, err, spool.ErrTrimmed)
	_, _, err = s.ReadKept(limit(t), info.Session, spool.KeptQuery{After: h.Floor - 1})
	wantErr(t, err, spool.ErrTrimmed)
	if lister, ok := s.(spool.Lister); ok {
		got, err := lister.Session(limit(t), info.Session)
		if err != nil || got.Row != info.Row || got.Updated != info.Updated || got.Bytes < int64(size(all)) {
			t.Fatalf("row %+v, %v; elsewhere %+v", got, err, info)
		}
		list := wantListed(t, lister, spool.SessionQuery{Principal: info.Principal}, info.Session)
		if !sameRow(list[0], got) {
			t.Fatalf("listed %+v, want %+v", list, got)
		}
	}
	return h
}

// Promise: a session of another store goes on where it was, under the same positions.
var importChecks = []check{
	{"GoesOn", with(func(t *testing.T, x *suite, s spool.Store, r spool.Importer) {
		info, all := elsewhere("s")
		if blobs, ok := s.(spool.BlobStore); ok {
			if err := blobs.PutBlob(limit(t), "s", "sha256:x", []byte("large")); err != nil {
				t.Fatal(err)
			}
		}
		l := hide(t, s, "s")
		at := uint64(0)
		for _, to := range []uint64{15, 25, 26, 33} {
			some, rest := until(all, to)
			h := imported(t, r, spool.Import{Info: info, Epoch: l.Epoch, After: at, Records: some})
			if at, all = some[len(some)-1].Seq, rest; h.Seq != at || !h.Hidden {
				t.Fatalf("head %+v after record %d", h, at)
			}
		}
		_, err := s.Append(limit(t), spool.Append{Session: "s", Records: recs(chunk.Kept, "command", 1)})
		wantErr(t, err, spool.ErrNotFound)
		if lister, ok := s.(spool.Lister); ok {
			wantListed(t, lister, spool.SessionQuery{})
		}
		seen := head(t, s, "s")
		done := startWait(limit(t), s, "s", seen)
		h := imported(t, r, spool.Import{Info: info, Epoch: l.Epoch, After: at, Records: all, Done: true})
		if got := <-done; got.err != nil || got.head != h {
			t.Fatalf("Wait gave %+v, %v", got.head, got.err)
		}
		_, all = elsewhere("s")
		wantImported(t, s, info, all)
		if blobs, ok := s.(spool.BlobStore); ok {
			if data, err := blobs.GetBlob(limit(t), "s", "sha256:x"); err != nil || string(data) != "large" {
				t.Fatalf("blob %q, %v", data, err)
			}
		}
		// The copier's lease has ended, and so have those of the other store.
		for _, epoch := range []uint64{l.Epoch, info.Head.Epoch} {
			_, err := s.Append(limit(t), spool.Append{Session: "s", Epoch: epoch, Records: recs(chunk.Trace, "late", 1)})
			wantErr(t, err, spool.ErrSuperseded)
		}
		// The command makes it due, until an owner has seen it.
		l = mustClaim(t, s, spool.Claim{Agents: []string{"writer"}})
		if l.Session != "s" || l.Row != info.Row {
			t.Fatalf("claimed %+v", l)
		}
		if h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 39}}).Head; !h.Pending {
			t.Fatalf("settled with head %+v", h)
		}
		if h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 40}}).Head; h.Pending || h.Due != 0 {
			t.Fatalf("not settled: %+v", h)
		}
		if res := command(t, s, "s", "next"); res.First != 41 {
			t.Fatalf("the next record is %d", res.First)
		}
		if trimmer, ok := s.(spool.Trimmer); ok {
			trim(t, trimmer, 41, 30)
			wantTexts(t, keptLog(t, s, "s", 30, 10), "r33", "r36", "r39", "next")
		}
	})},
	{"ContinuesAndStartsOver", with(func(t *testing.T, x *suite, s spool.Store, r spool.Importer) {
		info, all := elsewhere("s")
		some, rest := until(all, 30)
		first := hide(t, s, "s")
		imported(t, r, spool.Import{Info: info, Epoch: first.Epoch, Records: some})
		if x.Reopen != nil {
			s = x.Reopen(t, s)
			r = s.(spool.Importer)
		}
		l := hide(t, s, "s") // by another process, which takes it over
		_, err := r.Import(limit(t), spool.Import{Info: info, Epoch: first.Epoch, After: 30, Records: rest, Done: true})
		wantErr(t, err, spool.ErrSuperseded)
		if l.Head.Seq != 30 || !l.Head.Hidden {
			t.Fatalf("claimed with head %+v", l.Head)
		}
		// Meanwhile more of the other log was trimmed.
		later := info
		later.Head.TraceFloor, later.Head.Floor = 32, 15
		_, rest = until(all, 32)
		imported(t, r, spool.Import{Info: later, Epoch: l.Epoch, After: 30, Records: rest, Done: true})
		_, all = until(all, 15)
		wantImported(t, s, later, slices.DeleteFunc(all, func(r chunk.Record) bool { return r.Seq <= 32 && r.Class == chunk.Trace }))

		// Another session is imported twice, since the first attempt was of another log.
		info, all = elsewhere("other")
		info.Principal, info.Head.Principal = "bob", "bob"
		wrong := recs(chunk.Trace, "wrong", 3)
		for i := range wrong {
			wrong[i].Seq = uint64(i + 1)
		}
		before := info
		before.Head.TraceFloor, before.Head.Floor = 0, 0
		l = hide(t, s, "other")
		imported(t, r, spool.Import{Info: before, Epoch: l.Epoch, Records: wrong})
		l = hide(t, s, "other")
		imported(t, r, spool.Import{Info: info, Epoch: l.Epoch, Records: all, Done: true})
		wantImported(t, s, info, all)
		if lister, ok := s.(spool.Lister); ok {
			if got, err := lister.Session(limit(t), "other"); err != nil || got.Bytes != int64(size(all)) {
				t.Fatalf("%d bytes, want %d (%v)", got.Bytes, size(all), err)
			}
		}
	})},
	{"Refused", with(func(t *testing.T, x *suite, s spool.Store, r spool.Importer) {
		info, all := elsewhere("s")
		refused := func(what string, i spool.Import, want error) {
			t.Helper()
			if _, err := r.Import(limit(t), i); err == nil {
				t.Fatalf("%s: accepted", what)
			} else {
				wantErr(t, err, want)
			}
		}
		refused("no claim", spool.Import{Info: info, Epoch: 1, Records: all, Done: true}, spool.ErrSuperseded)
		_, err := s.Head(limit(t), "s")
		wantErr(t, err, spool.ErrNotFound)
		l := hide(t, s, "s")
		part := func(change func(i *spool.Import)) spool.Import {
			i := spool.Import{Info: info, Epoch: l.Epoch, Records: slices.Clone(all), Done: true}
			change(&i)
			return i
		}
		for what, change := range map[string]func(i *spool.Import){
			"a hole":                   func(i *spool.Import) { i.Records = slices.Delete(i.Records, 10, 11) },
			"the end is missing":       func(i *spool.Import) { i.Records = i.Records[:10] },
			"a record twice":           func(i *spool.Import) { i.Records[10] = i.Records[9] },
			"below the floor":          func(i *spool.Import) { i.Records[0].Seq = 10 },
			"trace below its floor":    func(i *spool.Import) { i.Records[0].Class = chunk.Trace },
			"beyond the head":          func(i *spool.Import) { i.Info.Head.Seq = 39 },
			"a part is missing":        func(i *spool.Import) { i.After, i.Records = 30, i.Records[len(i.Records)-10:] },
			"hidden elsewhere":         func(i *spool.Import) { i.Info.Head.Hidden = true },
			"no incarnation":           func(i *spool.Import) { i.Info.Head.Incarnation = 0 },
			"an epoch without a limit": func(i *spool.Import) { i.Info.Head.Epoch = contract.MaxNumber },
			"no epoch":                 func(i *spool.Import) { i.Epoch = 0 },
		} {
			refused(what, part(change), chunk.ErrInvalid)
		}
		refused("another epoch", part(func(i *spool.Import) { i.Epoch++ }), spool.ErrSuperseded)
		refused("a long title", part(func(i *spool.Import) { i.Info.Title = long("t", contract.MaxTitle) + "éé" }), chunk.ErrTooLarge)
		if h := head(t, s, "s"); h != l.Head {
			t.Fatalf("the head was %+v and is %+v", l.Head, h)
		}
		imported(t, r, part(func(*spool.Import) {}))
		h := wantImported(t, s, info, all)
		refused("twice", part(func(*spool.Import) {}), spool.ErrExists)
		l = own(t, s, "s", "o")
		refused("a visible session", part(func(*spool.Import) {}), spool.ErrExists)
		if got := head(t, s, "s"); got.Seq != h.Seq || got.Hidden {
			t.Fatalf("the head was %+v and is %+v", h, got)
		}
	})},
	{"NumbersOnlyGrow", with(func(t *testing.T, x *suite, s spool.Store, r spool.Importer) {
		trimmer, ok := s.(spool.Trimmer)
		if !ok {
			return
		}
		var h spool.Head
		for range 8 { // higher than elsewhere
			l := own(t, s, "s", "o")
			h = l.Head
			if err := trimmer.Delete(limit(t), "s"); err != nil {
				t.Fatal(err)
			}
		}
		info, all := elsewhere("s")
		l := hide(t, s, "s")
		imported(t, r, spool.Import{Info: info, Epoch: l.Epoch, Records: all, Done: true})
		if got := wantImported(t, s, info, all); got.Incarnation <= h.Incarnation || got.Epoch <= h.Epoch {
			t.Fatalf("the head was %+v and is %+v", h, got)
		}
	})},
}

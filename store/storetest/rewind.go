package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// given is the largest epoch and incarnation that a session's users were told.
type given struct{ epoch, incarnation uint64 }

func (g *given) see(h spool.Head) {
	g.epoch, g.incarnation = max(g.epoch, h.Epoch), max(g.incarnation, h.Incarnation)
}

// past is a store that was set back, and what its users knew before.
type past struct {
	s     spool.Store
	x     *suite
	told  map[string]*given
	early spool.Lease // of session "open", from before the mark
	late  spool.Lease // the latest one, which is lost
	seen  spool.Head  // of session "open", when the store was set back
	waits chan waited
	due   chan error
}

const (
	keptRecords = 6 // of session "open", which are there afterwards
	lostRecords = 8
)

func (p *past) write(t testing.TB, l spool.Lease, ordinal uint64, label string, n int) {
	t.Helper()
	p.see(put(t, p.s, spool.Append{Session: l.Session, Epoch: l.Epoch, Writer: "w", Ordinal: ordinal,
		Records: recs(chunk.Trace, label, n), Row: spool.Row{Status: chunk.StatusActive}}).Head, l.Session)
}

func (p *past) see(h spool.Head, session string) {
	if p.told[session] == nil {
		p.told[session] = &given{}
	}
	p.told[session].see(h)
}

func (p *past) own(t testing.TB, session, id string) spool.Lease {
	t.Helper()
	l := mustClaim(t, p.s, spool.Claim{ID: id, Owner: "o", Session: session, Force: true, TTL: time.Hour})
	p.see(l.Head, session)
	return l
}

func (p *past) delete(t testing.TB, session string) {
	t.Helper()
	if err := p.s.(spool.Trimmer).Delete(limit(t), session); err != nil {
		t.Fatal(err)
	}
}

// setBack runs a check on a store that was set back while it was used.
func setBack(run func(*testing.T, *past)) func(*testing.T, *suite) {
	return func(t *testing.T, x *suite) {
		if x.Rewind == nil {
			return
		}
		p := &past{s: x.open(t), x: x, told: map[string]*given{}, due: make(chan error, 1)}
		_, trims := p.s.(spool.Trimmer)
		p.early = p.own(t, "open", "c1")
		p.write(t, p.early, 1, "early", keptRecords)
		p.own(t, "idle", "")
		p.own(t, "deleted", "")
		p.own(t, "deleted later", "")
		if trims {
			p.delete(t, "deleted")
		}
		back := x.Rewind(t, p.s)
		p.write(t, p.early, 2, "lost", 2)
		p.late = p.own(t, "open", "c2")
		p.write(t, p.late, 1, "lost", lostRecords-2)
		for _, session := range []string{"idle", "deleted", "made later"} {
			p.own(t, session, "")
			p.own(t, session, "")
		}
		if trims {
			p.delete(t, "deleted later")
			p.own(t, "deleted later", "")
		}
		p.seen = head(t, p.s, "open")
		p.waits = startWait(limit(t), p.s, "open", p.seen)
		ctx := limit(t)
		go func() { p.due <- leaser(t, p.s).AwaitDue(ctx, spool.Claim{Owner: "w", Session: "open"}) }()
		back()
		run(t, p)
	}
}

// Promise: if the engine is set back to an earlier state, nothing that was given out is
// given out again, and those who knew what is lost are told.
var rewindChecks = []check{
	{"OthersNotice", func(t *testing.T, x *suite) {
		s := x.open(t)
		raiser, ok := s.(spool.Raiser)
		if !ok {
			return
		}
		_, err := raiser.RaiseAbove(limit(t), "none", spool.Head{Incarnation: 1})
		wantErr(t, err, spool.ErrNotFound)
		l := own(t, s, "s", "o")
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1, Records: recs(chunk.Trace, "r", 3), Row: spool.Row{Status: chunk.StatusActive}}
		known := put(t, s, a).Head
		waits := startWait(limit(t), s, "s", known)
		known.Seq, known.Epoch = known.Seq+100, known.Epoch+5 // what was lost
		h, err := raiser.RaiseAbove(limit(t), "s", known)
		if err != nil || h.Incarnation <= known.Incarnation || h.Epoch <= known.Epoch || h.Seq != 3 {
			t.Fatalf("raised to %+v, %v", h, err)
		}
		if again, err := raiser.RaiseAbove(limit(t), "s", known); err != nil || again != h || head(t, s, "s") != h {
			t.Fatalf("raised again to %+v, %v; was %+v", again, err, h)
		}
		if got := <-waits; got.err != nil || got.head != h {
			t.Fatalf("Wait gave %+v, %v", got.head, got.err)
		}
		_, err = s.Append(limit(t), a)
		wantErr(t, err, spool.ErrSuperseded)
		wantErr(t, leaser(t, s).Renew(limit(t), l), spool.ErrSuperseded)
		if next := mustClaim(t, s, spool.Claim{Owner: "next"}); next.Epoch <= h.Epoch {
			t.Fatalf("claimed %+v", next)
		}
		wantTexts(t, log(t, s, "s", 0, 10), texts(a.Records)...)
	}},
	{"OldOwnersAreRefused", setBack(func(t *testing.T, p *past) {
		for what, l := range map[string]spool.Lease{"kept": p.early, "lost": p.late} {
			for ordinal := uint64(1); ordinal <= 3; ordinal++ { // a repeat is none: what it repeats may be lost
				_, err := p.s.Append(limit(t), spool.Append{Session: "open", Epoch: l.Epoch, Writer: "w", Ordinal: ordinal, Records: recs(chunk.Trace, "late", 1)})
				if !errors.Is(err, spool.ErrSuperseded) {
					t.Errorf("the owner of the lease that was %s appends %d: %v", what, ordinal, err)
				}
			}
			wantErr(t, leaser(t, p.s).Renew(limit(t), l), spool.ErrSuperseded)
			if err := leaser(t, p.s).Release(limit(t), l); err != nil {
				t.Error(err)
			}
		}
		if h := head(t, p.s, "open"); h.Seq != keptRecords {
			t.Fatalf("head %+v, want %d records", h, keptRecords)
		}
	})},
	{"LeasesEnd", setBack(func(t *testing.T, p *past) {
		if err := <-p.due; err != nil && !errors.Is(err, spool.ErrUnavailable) {
			t.Fatal(err)
		}
		l := mustClaim(t, p.s, spool.Claim{Owner: "next", TTL: time.Minute})
		if l.Session != "open" || l.Head.Seq != keptRecords || l.Head.Status != chunk.StatusActive {
			t.Fatalf("claimed %+v", l)
		}
		p.write(t, l, 1, "next", 1) // ordinals are forgotten
		wantTexts(t, log(t, p.s, "open", keptRecords, 10), "next/0")
	})},
	{"ClaimsAreNotRepeated", setBack(func(t *testing.T, p *past) {
		for _, id := range []string{"c1", "c2"} {
			told := *p.told["open"]
			if l := p.own(t, "open", id); l.Epoch <= told.epoch {
				t.Fatalf("claim %s gave epoch %d, and %d before", id, l.Epoch, told.epoch)
			}
		}
	})},
	{"NumbersOnlyGrow", setBack(func(t *testing.T, p *past) {
		for session, told := range p.told {
			was := *told
			if h, err := p.s.Head(limit(t), session); err == nil && (h.Incarnation <= was.incarnation || h.Epoch < was.epoch) {
				t.Errorf("%s has head %+v; told was %+v", session, h, was)
			}
			l := p.own(t, session, "")
			if l.Epoch <= was.epoch || l.Head.Incarnation <= was.incarnation || l.Epoch >= 1<<53 || l.Head.Incarnation >= 1<<53 {
				t.Errorf("%s: %+v; told was %+v", session, l, was)
			}
		}
	})},
	{"WaitersAreTold", setBack(func(t *testing.T, p *past) {
		got := <-p.waits
		if got.err == nil && got.head.Incarnation <= p.seen.Incarnation || got.err != nil && !errors.Is(got.err, spool.ErrUnavailable) {
			t.Fatalf("Wait gave %+v, %v; seen was %+v", got.head, got.err, p.seen)
		}
		if h, next, err := p.s.Wait(limit(t), "open", p.seen); err != nil || h.Incarnation <= p.seen.Incarnation || len(next) > 0 {
			t.Fatalf("Wait gave %+v, %v, %v; seen was %+v", h, texts(next), err, p.seen)
		}
	})},
	{"ReadersAreTold", func(t *testing.T, x *suite) {
		for _, more := range []int{0, 1, lostRecords, 2 * lostRecords} {
			setBack(func(t *testing.T, p *past) {
				logs := spool.NewLogs(p.s, nil)
				defer logs.Close()
				g, err := logs.Log("open")
				if err != nil {
					t.Fatal(err)
				}
				if more > 0 {
					p.write(t, p.own(t, "open", ""), 1, "new", more)
				}
				r := g.Reader(spool.ReadOptions{After: spool.Cursor{Seq: p.seen.Seq, Incarnation: p.seen.Incarnation}, Follow: true})
				rs, err := r.Next(limit(t))
				if !errors.Is(err, spool.ErrCursorAhead) {
					t.Fatalf("a reader whose cursor is lost gets %v, %v", texts(rs), err)
				}
				all := log(t, p.s, "open", 0, 100)
				if len(all) != keptRecords+more || text(all[0]) != "early/0" || more > 0 && text(all[keptRecords]) != "new/0" {
					t.Fatalf("the log is %v", texts(all))
				}
			})(t, x)
		}
	}},
	{"UnderAReader", func(t *testing.T, x *suite) {
		if x.Rewind == nil {
			return
		}
		s := x.open(t)
		l := own(t, s, "s", "o")
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "early", keptRecords)})
		back := x.Rewind(t, s)
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "lost", lostRecords)})
		logs := spool.NewLogs(s, nil)
		defer logs.Close()
		g, err := logs.Log("s")
		if err != nil {
			t.Fatal(err)
		}
		r := g.Reader(spool.ReadOptions{Follow: true})
		var got []string
		for len(got) < keptRecords+lostRecords {
			rs, err := r.Next(limit(t))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, texts(rs)...)
		}
		back()
		next := own(t, s, "s", "next")
		put(t, s, spool.Append{Session: "s", Epoch: next.Epoch, Records: recs(chunk.Trace, "new", 2*lostRecords)})
		for {
			rs, err := r.Next(limit(t))
			if errors.Is(err, spool.ErrCursorAhead) {
				break
			}
			if err != nil || len(rs) > 0 {
				t.Fatalf("a reader gets %v after %s, %v", texts(rs), got[len(got)-1], err)
			}
		}
		if want := fmt.Sprintf("lost/%d", lostRecords-1); got[len(got)-1] != want {
			t.Fatalf("the reader had %v", got)
		}
	}},
}

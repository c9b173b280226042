package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// losing returns a store over s whose connections lose the request of every seventh call
// and the answer of every third one, from now on.
func losing(e Engine) *Rewound {
	r := NewRewound(e)
	var calls atomic.Int64
	r.Lose(func() Lost {
		switch n := calls.Add(1); {
		case n%7 == 0:
			return LostRequest
		case n%3 == 0:
			return LostAnswer
		}
		return LostNothing
	})
	return r
}

// insist repeats a call until its answer comes.
func insist(call func() error) error {
	for {
		if err := call(); !unavailable(err) {
			return err
		}
	}
}

// Promise: a call whose request or answer was lost can be repeated, and happens once.
var cutChecks = []check{
	{"OneOwner", with(func(t *testing.T, _ *suite, s spool.Store, e Engine) {
		lossy := losing(e)
		epoch := uint64(0)
		var want []string
		for n := range 8 {
			c := spool.Claim{ID: fmt.Sprint("c", n), Owner: "o", TTL: time.Hour, Session: "s", Force: true}
			var l spool.Lease
			granted := uint64(0) // by a claim whose answer was lost
			if err := insist(func() (err error) {
				l, err = lossy.Claim(limit(t), c)
				if h, herr := s.Head(limit(t), "s"); err != nil && herr == nil && h.Epoch > epoch {
					granted = h.Epoch
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if l.Epoch <= epoch || granted != 0 && granted != l.Epoch {
				t.Fatalf("claim %d gave epoch %d after %d; its answer that was lost was %d", n, l.Epoch, epoch, granted)
			}
			epoch = l.Epoch
			for ordinal := uint64(1); ordinal <= 4; ordinal++ {
				label := fmt.Sprintf("%d-%d", n, ordinal)
				a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: ordinal, Records: recs(chunk.Trace, label, 2)}
				if err := insist(func() error { _, err := lossy.Append(limit(t), a); return err }); err != nil {
					t.Fatal(err)
				}
				want = append(want, texts(a.Records)...)
			}
			if err := insist(func() error { return lossy.Renew(limit(t), l) }); err != nil {
				t.Fatal(err)
			}
			if n%2 == 0 {
				if err := insist(func() error { return lossy.Release(limit(t), l) }); err != nil {
					t.Fatal(err)
				}
			}
		}
		wantTexts(t, log(t, s, "s", 0, 100), want...)
	})},
	{"ManyOwners", with(func(t *testing.T, _ *suite, s spool.Store, e Engine) {
		lossy := losing(e)
		const owners, turns = 4, 5
		var acked [owners][]string
		parallel(owners, func(i int) {
			for n := range turns {
				c := spool.Claim{ID: fmt.Sprintf("c%d-%d", i, n), Owner: fmt.Sprint("o", i), TTL: time.Hour, Session: "s", Force: true}
				var l spool.Lease
				if err := insist(func() (err error) { l, err = lossy.Claim(limit(t), c); return err }); err != nil {
					t.Error(err)
					return
				}
				for ordinal := uint64(1); ordinal <= 4; ordinal++ {
					label := fmt.Sprintf("%d-%d-%d", l.Epoch, i, ordinal)
					a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: ordinal, Records: recs(chunk.Trace, label, 2)}
					err := insist(func() error { _, err := lossy.Append(limit(t), a); return err })
					if errors.Is(err, spool.ErrSuperseded) {
						break
					}
					if err != nil {
						t.Error(err)
						return
					}
					acked[i] = append(acked[i], label)
				}
			}
		})
		if t.Failed() {
			return
		}
		stored := map[string]int{}
		last := uint64(0)
		all := log(t, s, "s", 0, 100)
		for n := 0; n < len(all); n += 2 {
			var epoch uint64
			var owner, ordinal int
			if _, err := fmt.Sscanf(text(all[n]), "%d-%d-%d/0", &epoch, &owner, &ordinal); err != nil || epoch < last {
				t.Fatalf("record %d is %q, after one of epoch %d", n+1, text(all[n]), last)
			}
			last = epoch
			label := fmt.Sprintf("%d-%d-%d", epoch, owner, ordinal)
			wantTexts(t, all[n:min(n+2, len(all))], texts(recs(chunk.Trace, label, 2))...)
			if stored[label]++; stored[label] > 1 {
				t.Fatalf("%s is stored twice", label)
			}
		}
		for _, labels := range acked {
			for _, label := range labels {
				if stored[label] == 0 {
					t.Fatalf("%s was acknowledged and is not stored", label)
				}
			}
		}
	})},
	{"UnderWaiters", func(t *testing.T, x *suite) {
		if x.Break == nil {
			return
		}
		s := x.open(t)
		l := own(t, s, "s", "o")
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "a", 1), Settle: &spool.Settle{}})
		seen := head(t, s, "s")
		ctx := limit(t)
		var waiting []chan waited
		var due []chan error
		for range 5 {
			waiting = append(waiting, startWait(ctx, s, "s", seen))
			done := make(chan error, 1)
			due = append(due, done)
			go func() { done <- leaser(t, s).AwaitDue(ctx, spool.Claim{Owner: "w", Session: "other"}) }()
		}
		settle()
		mend := x.Break(t, s)
		settle()
		mend()
		var want spool.Head
		if err := insist(func() error {
			res, err := s.Append(limit(t), spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: 1, Records: recs(chunk.Trace, "b", 1)})
			want = res.Head
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := insist(func() error {
			_, err := s.Append(limit(t), spool.Append{Session: "other", Records: recs(chunk.Kept, "c", 1)})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for i, done := range waiting { // the cut may end a wait, and then the next one finds the change
			got := <-done
			for unavailable(got.err) {
				got = <-startWait(ctx, s, "s", seen)
			}
			if got.err != nil || got.head != want {
				t.Fatalf("waiter %d: %+v, %v; want %+v", i, got.head, got.err, want)
			}
		}
		for i, done := range due {
			err := <-done
			for unavailable(err) {
				err = leaser(t, s).AwaitDue(ctx, spool.Claim{Owner: "w", Session: "other"})
			}
			if err != nil {
				t.Fatalf("waiter %d for what is due: %v", i, err)
			}
		}
	}},
	{"CancelledInFlight", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "o")
		const writers, each = 4, 25
		parallel(writers, func(w int) {
			for n := range each {
				a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: fmt.Sprint("w", w), Ordinal: uint64(n + 1), Records: recs(chunk.Trace, fmt.Sprintf("%d-%d", w, n), 2)}
				ctx, cancel := context.WithCancel(limit(t))
				begun := make(chan struct{})
				go func() {
					<-begun
					cancel()
				}()
				close(begun)
				_, err := s.Append(ctx, a)
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
					return
				}
				if err != nil { // stored or not: the repeat settles it
					if _, err := s.Append(limit(t), a); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
		if t.Failed() {
			return
		}
		next := make([]int, writers)
		all := log(t, s, "s", 0, 100)
		for i := 0; i < len(all); i += 2 {
			var w, n int
			if _, err := fmt.Sscanf(text(all[i]), "%d-%d/0", &w, &n); err != nil || n != next[w] {
				t.Fatalf("record %d is %q", i+1, text(all[i]))
			}
			wantTexts(t, all[i:i+2], texts(recs(chunk.Trace, fmt.Sprintf("%d-%d", w, n), 2))...)
			next[w]++
		}
		if len(all) != writers*each*2 {
			t.Fatalf("%d records, want %d", len(all), writers*each*2)
		}
	}},
}

func unavailable(err error) bool { return errors.Is(err, spool.ErrUnavailable) }
